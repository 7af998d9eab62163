"""Arrays in an .npz file: x and y, or x_train, y_train, x_test, ...; MedMNIST's names too."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penex.lab.data import Collection, Examples
from penex.lab.errors import LabError

Array = np.ndarray[Any, Any]

_LAYOUTS = (  # (inputs, targets) of train, val, test
    (("x_train", "y_train"), ("x_val", "y_val"), ("x_test", "y_test")),
    (
        ("train_images", "train_labels"),
        ("val_images", "val_labels"),
        ("test_images", "test_labels"),
    ),
    (("x", "y"), ("x_val", "y_val"), ("x_test", "y_test")),
)


def load_npz(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file. Nothing in it is executed: an array of objects is refused."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        if "Object arrays" in str(error) or "pickle" in str(error):
            what = "it holds an array of Python objects; save numbers or strings instead"
        else:
            what = f"it is truncated or no .npz file ({error})"
        raise LabError(f"{path} cannot be read: {what}.") from error


def read(path: Path) -> Collection:
    """The data of an .npz file."""
    arrays = load_npz(path)
    for layout in _LAYOUTS:
        if all(name in arrays for name in layout[0]):
            break
    else:
        raise LabError(
            f"{path} needs the arrays x and y, or x_train and y_train (and x_val, y_val, x_test, "
            f"y_test if you like); it has {', '.join(sorted(arrays)) or 'none'}."
        )
    found = {
        part: (arrays[x], arrays[y])
        for part, (x, y) in zip(("train", "val", "test"), layout, strict=True)
        if x in arrays and y in arrays and len(arrays[x])
    }
    if "train" not in found:
        raise LabError(f"{path} has no training examples.")
    targets = {part: _labels(y, path, part) for part, (_, y) in found.items()}
    classes, indices = class_indices(targets, arrays.get("class_names"))
    parts = {}
    for part, (x, _) in found.items():
        inputs = as_inputs(x, path, part)
        if len(inputs) != len(indices[part]):
            raise LabError(
                f"{path}: {part} has {len(inputs)} inputs but {len(indices[part])} labels."
            )
        if inputs.shape[1:] != as_inputs(found["train"][0], path, "train").shape[1:]:
            raise LabError(f"{path}: the inputs of {part} have another shape than those of train.")
        parts[part] = Examples(inputs, indices[part])
    return Collection(
        classes=classes,
        facts={"source": "an .npz file", "arrays": [name for pair in layout for name in pair]},
        **parts,  # type: ignore[arg-type]
    )


def as_inputs(x: Array, path: Path, part: str) -> torch.Tensor:
    """(N, C, H, W) images or (N, F) vectors, uint8 or float32."""
    if x.dtype == bool or x.dtype.kind not in "uif":
        raise LabError(f"{path}: the inputs of {part} must be numbers; they are {x.dtype}.")
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        x = x.transpose(0, 3, 1, 2)
    elif x.ndim not in (2, 4):
        raise LabError(
            f"{path}: the inputs of {part} must be (N, height, width), (N, height, width, "
            f"channels), (N, channels, height, width) or (N, features); they are {x.shape}."
        )
    if x.dtype != np.uint8:
        x = x.astype(np.float32)
        if not np.isfinite(x).all():
            raise LabError(f"{path}: the inputs of {part} hold a number that is not finite.")
    return torch.from_numpy(np.ascontiguousarray(x))


def _labels(y: Array, path: Path, part: str) -> Array:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise LabError(
            f"{path}: the labels of {part} must be one for each example; they have the shape "
            f"{y.shape} (several labels an example are not supported)."
        )
    if y.dtype.kind == "f" and np.array_equal(y, y.round()):
        y = y.astype(np.int64)
    if y.dtype.kind not in "iuUSb":
        raise LabError(
            f"{path}: the labels of {part} must be whole numbers or names; got {y.dtype}."
        )
    return y


def class_indices(
    labels: dict[str, Array], names: Array | None = None
) -> tuple[tuple[str, ...], dict[str, torch.Tensor]]:
    """Class names and, for each part, indices into them.

    With `names`, labels are indices already.

    >>> class_indices({"train": np.array(["b", "a", "b"])})
    (('a', 'b'), {'train': tensor([1, 0, 1])})
    """
    everything = np.concatenate(list(labels.values()))
    if names is not None and everything.dtype.kind in "iu" and everything.max() < len(names):
        indices = {part: torch.from_numpy(y.astype(np.int64)) for part, y in labels.items()}
        return tuple(str(name) for name in names), indices
    values = np.unique(everything)
    indices = {
        part: torch.from_numpy(np.searchsorted(values, y).astype(np.int64))
        for part, y in labels.items()
    }
    return tuple(v.decode() if isinstance(v, bytes) else str(v) for v in values.tolist()), indices
