"""Arrays in an .npz file: x and y, or x_train, y_train, x_test, ...; MedMNIST's names too."""

import math
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penex.lab.data import Collection, Examples, sizes
from penex.lab.ground.errors import LabError

Array = np.ndarray[Any, Any]

_PARTS = ("train", "val", "test")
_LAYOUTS = (  # (inputs, targets) of train, val, test
    tuple((f"x_{part}", f"y_{part}") for part in _PARTS),
    tuple((f"{part}_images", f"{part}_labels") for part in _PARTS),
    (("x", "y"), ("x_val", "y_val"), ("x_test", "y_test")),
)
_NAMES = "class_names"
_MOST_CHANNELS = 4
_ROUNDING = 1e-4  # of a feature's range
_LOOKED_AT = 4096  # examples of a part
_OTHER_SCALE = 4.0  # times as large on average: a part from elsewhere, or prepared otherwise
_LARGEST_LABEL = 2**53  # from there on float64 has no whole numbers of its own


def load(
    path: Path, wanted: Callable[[list[str]], list[str]], *, most: float = math.inf
) -> dict[str, Array]:
    """Some arrays of an .npz file. Nothing in it is executed: an array of objects is refused.

    Args:
        path: the file.
        wanted: (names in the file) -> names to read.
        most: how many bytes the arrays may have.
    """
    try:
        with path.open("rb") as file:
            opened = np.load(file, allow_pickle=False)
            if isinstance(opened, np.ndarray):
                raise ValueError("it is a single array: name it .npy")
            with opened:
                names = wanted(list(opened.files))
                total = sum(_declared(opened.zip, name) for name in names)
                if total > most:
                    raise sizes.too_large(path, total)
                return {name: opened[name] for name in names}
    except (LabError, OSError):
        raise
    except MemoryError as error:
        raise LabError(f"There is not enough memory for the arrays of {path}.") from error
    except Exception as error:  # a damaged zip raises all kinds
        if "Object arrays" in str(error):
            what = "it holds an array of Python objects; save numbers or strings instead"
        else:
            why = "it is none by its content" if "pickle" in str(error) else error
            what = f"it is truncated or no .npz file ({why})"
        raise LabError(f"{path} cannot be read: {what}.") from error


def _declared(archive: zipfile.ZipFile, name: str) -> int:
    """The bytes of an array, by its header; a ValueError if its file has another number of them.

    numpy takes all of this memory before it reads the first byte.
    """
    inside = archive.getinfo(name if name in archive.namelist() else f"{name}.npy")
    with archive.open(inside) as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        else:
            shape, _, dtype = np.lib.format.read_array_header_2_0(member)
        size = math.prod(shape) * dtype.itemsize
        there = inside.file_size - member.tell()
    if there != size and not dtype.hasobject:
        raise ValueError(f"the array {name} should have {size} bytes, but has {there}")
    return size


def read(path: Path, *, allow_large: bool = False) -> Collection:
    """The data of an .npz file."""
    layout: tuple[tuple[str, str], ...] = ()
    notes: list[str] = []

    def wanted(names: list[str]) -> list[str]:
        nonlocal layout
        layout = next((pairs for pairs in _LAYOUTS if set(pairs[0]) <= set(names)), ())
        if not layout:
            raise LabError(
                f"{path} needs the arrays x and y, or x_train and y_train (and x_val, y_val, "
                f"x_test, y_test if you like); it has {', '.join(sorted(names)) or 'none'}."
            )
        for x, y in layout:
            if (x in names) != (y in names):
                notes.append(f"{x if x in names else y} is left out: {x} and {y} go together.")
        used = [name for pair in layout for name in pair if set(pair) <= set(names)]
        return [*used, *([_NAMES] if _NAMES in names else [])]

    arrays = load(path, wanted, most=sizes.most(path, allow_large))
    found = {
        part: (arrays[x], arrays[y])
        for part, (x, y) in zip(_PARTS, layout, strict=True)
        if x in arrays and arrays[x].ndim and len(arrays[x])
    }
    if "train" not in found:
        raise LabError(f"{path} has no training examples.")
    targets = {part: _labels(y, path, part) for part, (_, y) in found.items()}
    for part, (x, _) in found.items():
        if len(x) != len(targets[part]):
            raise LabError(f"{path}: {part} has {len(x)} inputs but {len(targets[part])} labels.")
    classes, indices = class_indices(targets, path, arrays.get(_NAMES))
    if _NAMES in arrays and targets["train"].dtype.kind != "i":
        notes.append(f"{_NAMES} is left out: the labels are names already.")
    parts: dict[str, Examples] = {}
    for part, (x, _) in found.items():
        inputs = as_inputs(x, path, part)
        if parts and inputs.shape[1:] != parts["train"].inputs.shape[1:]:
            raise LabError(f"{path}: the inputs of {part} have another shape than those of train.")
        parts[part] = Examples(inputs, indices[part])
    notes += _other_scales({part: x for part, (x, _) in found.items()}, path)
    return Collection(
        classes=classes,
        facts={"source": "an .npz file"},
        notes=tuple(notes),
        **narrowed(parts),  # type: ignore[arg-type]
    )


def _other_scales(parts: dict[str, Array], path: Path) -> Iterator[str]:
    """Sentences on parts whose numbers have another size than those of train.

    A LabError if they have another type too, whole numbers or not: then one was divided by 255, and
    the other was not.
    """
    some = {part: x[:: max(1, len(x) // _LOOKED_AT)] for part, x in parts.items()}
    train = some["train"]
    size = np.abs(train).mean(dtype=np.float64)
    for part, x in some.items():
        other = np.abs(x).mean(dtype=np.float64)
        if not 0 < _OTHER_SCALE * min(size, other) < max(size, other):
            continue
        said = (
            f"the inputs of train go from {train.min():g} to {train.max():g} ({train.dtype}), "
            f"those of {part} from {x.min():g} to {x.max():g} ({x.dtype})"
        )
        if (train.dtype.kind == "f") != (x.dtype.kind == "f"):
            raise LabError(f"{path}: {said}. Bring them to one scale.")
        yield f"Another scale? {said[0].upper()}{said[1:]}."


def as_inputs(x: Array, path: Path, part: str) -> torch.Tensor:
    """(N, C, H, W) images or (N, F) vectors: uint8, float32, or float64 where the file has more."""
    if x.dtype == bool or x.dtype.kind not in "uif":
        raise LabError(f"{path}: the inputs of {part} must be numbers; they are {x.dtype}.")
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and _channels_last(x.shape[1:]):
        x = x.transpose(0, 3, 1, 2)
    if x.ndim not in (2, 4) or 0 in x.shape[1:]:
        raise LabError(
            f"{path}: the inputs of {part} must be (N, height, width), (N, height, width, "
            f"channels), (N, channels, height, width) or (N, features); they are {x.shape}."
        )
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            finite = np.isfinite(x.astype(np.float32)).all()
        if not finite:
            raise LabError(
                f"{path}: the inputs of {part} hold a number that is not finite in float32."
            )
        single = x.dtype.kind == "f" and x.dtype.itemsize <= 4
        x = x.astype(np.float32 if single else np.float64)
    return torch.from_numpy(np.ascontiguousarray(x))


def narrowed(parts: dict[str, Examples]) -> dict[str, Examples]:
    """The parts with floating-point inputs in float32, unless the training part needs float64."""
    train = parts["train"].inputs
    if train.dtype == torch.float64 and not _float32_will_do(train):
        return parts
    return {
        name: part._replace(inputs=part.inputs.float()) if part.inputs.is_floating_point() else part
        for name, part in parts.items()
    }


def _float32_will_do(x: torch.Tensor) -> bool:
    """Whether float32 tells the values of each channel or feature apart as well as float64.

    A time in seconds since 1970, or an identity number, differs from its neighbours by less than
    float32 can hold: what is left after taking its mean would be rounding. One that never changes
    needs no digits.

    >>> some = torch.tensor([[0.1, 3.0], [0.1, 4.0]], dtype=torch.float64)
    >>> _float32_will_do(some), _float32_will_do(some + 1.7e9)
    (True, False)
    """
    dims = [0, *range(2, x.dim())]
    lost = (x - x.float()).abs().amax(dims)
    spread = x.amax(dims) - x.amin(dims)
    return bool(((lost <= _ROUNDING * spread) | (spread == 0)).all())


def _channels_last(shape: tuple[int, ...]) -> bool:
    """Whether images of three axes are (height, width, channels): few channels, or a square.

    >>> _channels_last((32, 32, 3)), _channels_last((3, 32, 32)), _channels_last((16, 16, 5))
    (True, False, True)
    """
    first, middle, last = shape
    if (last <= _MOST_CHANNELS) != (first <= _MOST_CHANNELS):
        return last <= _MOST_CHANNELS
    return abs(first - middle) < abs(middle - last)


def _labels(y: Array, path: Path, part: str) -> Array:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise LabError(
            f"{path}: the labels of {part} must be one for each example; they have the shape "
            f"{y.shape} ({_advice(y)})."
        )
    if y.dtype.kind in "fiu":
        large = np.abs(y.astype(np.float64))
        if ((large > _LARGEST_LABEL) & np.isfinite(large)).any():
            raise LabError(f"{path}: the labels of {part} must be between -2^53 and 2^53.")
    if y.dtype.kind == "f" and np.isfinite(y).all() and np.array_equal(y, y.round()):
        y = y.astype(np.int64)
    if y.dtype.kind not in "iuUSb":
        raise LabError(f"{path}: the labels of {part} must be whole numbers or names.")
    if y.dtype.kind == "S":
        return np.array([_text(name, path) for name in y.tolist()])
    return y.astype(np.int64) if y.dtype.kind in "iub" else y.astype(np.str_)


def _advice(y: Array) -> str:
    """What to do about labels with several numbers an example."""
    if y.ndim == 2 and y.dtype.kind in "fiub" and ((y != 0).sum(axis=1) == 1).all():
        return "one in each row is not 0: save y.argmax(axis=1) instead"
    return "several labels an example are not supported"


def _text(name: Any, path: Path) -> str:
    """A name that may be bytes."""
    try:
        return name.decode() if isinstance(name, bytes) else str(name)
    except UnicodeDecodeError as error:
        raise LabError(f"{path}: the name {name!r} is not text in UTF-8.") from error


def class_indices(
    labels: dict[str, Array], path: Path, names: Array | None = None
) -> tuple[tuple[str, ...], dict[str, torch.Tensor]]:
    """Class names and, for each part, indices into them.

    With `names`, labels are indices already.

    >>> class_indices({"train": np.array(["b", "a", "b"])}, Path("x"))
    (('a', 'b'), {'train': tensor([1, 0, 1])})
    """
    everything = np.concatenate(list(labels.values()))
    if names is not None and everything.dtype.kind == "i":
        known = [_text(name, path) for name in np.ravel(names).tolist()]
        low, high = int(everything.min()), int(everything.max())
        if len(set(known)) != len(known) or low < 0 or high >= len(known):
            raise LabError(
                f"{path}: class_names must have a different name for each label from 0; it has "
                f"{len(set(known))} names, and labels go from {low} to {high}."
            )
        return tuple(known), {part: torch.from_numpy(y) for part, y in labels.items()}
    values = np.unique(everything)
    indices = {
        part: torch.from_numpy(np.searchsorted(values, y).astype(np.int64))
        for part, y in labels.items()
    }
    return tuple(str(value) for value in values.tolist()), indices
