"""CIFAR-10 and CIFAR-100 as their official Python files: pickles, read without running code."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from penex.lab.data import Collection, Examples, pickles
from penex.lab.data.catalogue import checksum_note
from penex.lab.ground.errors import LabError

_TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def _remedy(path: Path) -> str:
    """What a file should be, and where to get it."""
    name = "cifar10" if "batch" in path.name else "cifar100"
    sizes = {"train": "148 MiB", "meta": "2 KiB", "batches.meta": "1 KiB"}
    size = sizes.get(path.name, "30 MiB")
    return (
        f"It has {path.stat().st_size:,} bytes; the official one has {size}. Get it with "
        f"`penex data get {name}`."
    )


def unpickle(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle of arrays, lists, numbers and text; anything else is refused."""
    try:
        value = pickles.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise LabError(f"{path} is missing: the data set is not complete.") from error
    except OSError:
        raise
    except Exception as error:  # a damaged pickle raises all kinds
        raise LabError(
            f"{path} cannot be read: {str(error) or type(error).__name__}. {_remedy(path)}"
        ) from error
    if not isinstance(value, dict):
        raise LabError(f"{path} is not one of CIFAR's files: it holds a {type(value).__name__}.")
    return {k.decode() if isinstance(k, bytes) else str(k): v for k, v in value.items()}


def _images(paths: list[Path], label: str) -> Examples:
    images, labels = [], []
    for path in paths:
        content = unpickle(path)
        data, targets = pickles.array_of(content.get("data"), ["u1"]), content.get(label)
        if (
            data is None
            or data.ndim != 2
            or data.shape[1] != 3072
            or not isinstance(targets, list)
            or len(targets) != len(data)
            or not all(isinstance(target, int) and 0 <= target < 1000 for target in targets)
        ):
            raise LabError(
                f"{path} is not one of CIFAR's files: it needs data (N x 3072 bytes) and {label}."
            )
        images.append(data.reshape(-1, 3, 32, 32))
        labels.append(np.array(targets, dtype=np.int64))
    return Examples(
        torch.from_numpy(np.concatenate(images)), torch.from_numpy(np.concatenate(labels))
    )


def is_cifar10(folder: Path) -> bool:
    """Whether a folder holds CIFAR-10's Python files, or some of them."""
    return (folder / "data_batch_1").is_file() or (folder / "batches.meta").is_file()


def is_cifar100(folder: Path) -> bool:
    """Whether a folder holds CIFAR-100's Python files, or some of them."""
    return (folder / "meta").is_file() and (folder / "train").is_file()


def read_cifar10(folder: Path) -> Collection:
    """CIFAR-10: 50,000 images to train on and 10,000 to test on, 32 pixels, 10 classes."""
    train = [folder / f"data_batch_{k}" for k in range(1, 6)]
    meta = folder / "batches.meta"
    names = unpickle(meta).get("label_names", _TEN) if meta.exists() else _TEN
    return _collection("cifar10", folder, train, [folder / "test_batch"], "labels", names)


def read_cifar100(folder: Path, *, coarse: bool = False) -> Collection:
    """CIFAR-100: the same sizes, 100 fine or 20 coarse classes."""
    kind = "coarse" if coarse else "fine"
    names = unpickle(folder / "meta").get(f"{kind}_label_names", [])
    return _collection(
        "cifar100", folder, [folder / "train"], [folder / "test"], f"{kind}_labels", names
    )


def _collection(
    name: str, folder: Path, train: list[Path], test: list[Path], label: str, names: Any
) -> Collection:
    trained, tested = _images(train, label), _images(test, label)
    if not isinstance(names, list) or not all(isinstance(n, bytes | str) for n in names):
        raise LabError(f"{folder}: the names of the classes are no list of texts.")
    classes = tuple(n.decode("latin-1") if isinstance(n, bytes) else n for n in names)
    highest = int(max(trained.targets.max(), tested.targets.max()))
    if highest >= len(classes):
        raise LabError(f"{folder}: a label is {highest}, but there are {len(classes)} class names.")
    sums, note = checksum_note(name, [*train, *test])
    return Collection(
        trained,
        classes=classes,
        test=tested,
        facts={"source": name, "md5": sums},
        notes=(note,) if note else (),
    )
