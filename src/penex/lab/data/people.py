"""Labels that people gave to CIFAR's images: CIFAR-10N, CIFAR-100N and the votes of CIFAR-10H.

They fit the official order of the images, and are read from small .npz files or from the files that
their authors publish, whose pickles are not run.
"""

import hashlib
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penex.lab.data import arrays, catalogue, pickles, sizes
from penex.lab.ground.errors import LabError

Array = np.ndarray[Any, Any]

CLEAN = "clean_label"
_FILES = {  # by the set's name in the catalogue; the first that is there is read
    "cifar10n": ("cifar10n.npz", "CIFAR-10_human.pt"),
    "cifar100n": ("cifar100n.npz", "CIFAR-100_human.pt"),
    "cifar10h": ("cifar10h.npz", "cifar10h-counts.npy", "cifar10h-probs.npy"),
}
_FOLDER = "human"
_INTEGERS = ("u1", "i1", "i2", "i4", "i8")
_LARGEST = 100_000_000  # bytes of a pickle of labels: the published ones have 2.4 MB
_AGREE = 0.9  # of the test labels: CIFAR-10H's majority is right for 99 %


def find(root: Path, name: str) -> Path | None:
    """The file of a set in a folder, or in its folder `human`; None if there is none."""
    places = (root / part / file for part in (_FOLDER, ".") for file in _FILES[name])
    return next((path for path in places if path.is_file()), None)


def is_people(path: Path) -> bool:
    """Whether a file has the name of one of these."""
    return any(path.name in files for files in _FILES.values())


def has_votes(path: Path) -> bool:
    """Whether a file has the name of one with votes, not labels."""
    return path.name in _FILES["cifar10h"]


def labels(root: Path, name: str, kind: str, official: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """The labels of a kind for the training images, and facts about them for the record.

    Args:
        root: the folder of official files.
        name: ``cifar10n`` or ``cifar100n``.
        kind: which labels of the file: ``worse_label``, ...
        official: the official labels, which those that the file calls clean must equal.
    """
    path = find(root, name)
    if path is None:
        entry = catalogue.find(name)
        files = ", ".join(f"{_FOLDER}/{file}" for file in _FILES[name])
        raise LabError(
            f"{entry.title.partition(':')[0]}'s labels are not in {root}: it needs {files}, or one "
            f"of them without the folder. Get them with `penex data get {name}`, or from "
            f"{entry.url} (Wei et al., ICLR 2022)."
        )
    found = read(path)
    for wanted in (CLEAN, kind):
        if wanted not in found:
            raise LabError(f"{path} has no {wanted}; it has {', '.join(found) or 'no labels'}.")
        if len(found[wanted]) != len(official):
            raise LabError(
                f"{path} does not fit the images: {wanted} has {len(found[wanted]):,} labels, and "
                f"there are {len(official):,} training images."
            )
    clean, given = (torch.from_numpy(found[wanted]) for wanted in (CLEAN, kind))
    others = int((clean != official).sum())
    if others:
        raise LabError(
            f"{path} does not fit the images: what it calls the clean labels are others than "
            f"theirs at {others:,} of {len(official):,} places. Both must have the official order."
        )
    low, high, classes = int(given.min()), int(given.max()), int(official.max()) + 1
    if low < 0 or high >= classes:
        raise LabError(f"{path}: {kind} goes from {low} to {high}; right is 0 to {classes - 1}.")
    facts = {
        "labels": {kind: hashlib.sha256(given.numpy().tobytes()).hexdigest()},
        "labels_wrong": int((given != official).sum()),
    }
    return given, facts


def votes(root: Path, targets: Tensor, classes: int) -> tuple[Tensor | None, dict[str, Any]]:
    """People's votes for the test images, if their file is there, and facts for the record.

    Args:
        root: the folder of official files.
        targets: the official test labels.
        classes: how many classes there are.
    """
    path = find(root, "cifar10h")
    if path is None:
        return None, {}
    counts = read_votes(path)
    if counts.shape != (len(targets), classes):
        raise LabError(
            f"{path} does not fit the images: its votes have the shape {counts.shape}, and there "
            f"are {len(targets):,} test images of {classes} classes."
        )
    found = torch.from_numpy(counts)
    agree = float((found.argmax(dim=1) == targets).double().mean())
    if agree < _AGREE:
        raise LabError(
            f"{path} does not fit the images: most people agree with the label of {agree:.0%} of "
            "the test images, not of nearly all. Both must have the official order; without the "
            "file, the votes are left out."
        )
    return found, {"votes": {path.name: catalogue.md5_of(path)}}


def read(path: Path) -> dict[str, Array]:
    """Every list of labels in a file, by name, in int64."""
    if path.suffix == ".npz":
        found: dict[str, Any] = dict(_npz(path))
    else:
        found = {
            str(name): np.array(value) if isinstance(value, list) else _unpickled(value)
            for name, value in _torch_file(path).items()
        }
    return {
        name: value.astype(np.int64)
        for name, value in found.items()
        if value is not None and value.ndim == 1 and value.dtype.kind in "iu"
    }


def _npz(path: Path) -> dict[str, Array]:
    return arrays.load(path, lambda names: names, most=sizes.most(path, False))


def _unpickled(value: Any) -> Array | None:
    return pickles.array_of(value, _INTEGERS)


def _torch_file(path: Path) -> dict[Any, Any]:
    """The dictionary that `torch.save` wrote: a pickle in a zip file."""
    try:
        with zipfile.ZipFile(path) as archive:
            (inside,) = (
                member
                for member in archive.infolist()
                if PurePosixPath(member.filename).name == "data.pkl"
            )
            with archive.open(inside) as file:
                content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ValueError(f"its pickle has more than {_LARGEST:,} bytes")
        value = pickles.loads(content)
    except OSError:
        raise
    except Exception as error:  # a damaged zip or pickle raises all kinds
        why = str(error) or type(error).__name__
        raise LabError(f"{path} cannot be read: {why}.") from error
    if not isinstance(value, dict):
        raise LabError(f"{path} holds no labels: it is a {type(value).__name__}.")
    return value


def read_votes(path: Path) -> Array:
    """The votes in a file, (images, classes), in float32; or their shares."""
    if path.suffix == ".npz":
        counts = _npz(path).get("counts", np.empty(0))
    else:
        try:
            counts = np.load(path, mmap_mode="r", allow_pickle=False)  # no more than is there
        except (ValueError, EOFError) as error:
            raise LabError(f"{path} cannot be read: it is no .npy file of numbers.") from error
    numbers = counts.ndim == 2 and counts.dtype.kind in "iuf"
    if not numbers or not np.isfinite(counts).all() or (counts < 0).any():
        raise LabError(
            f"{path} must hold the number of votes (counts), 0 or more, for each image and class."
        )
    if not (counts.sum(axis=1) > 0).all():
        raise LabError(f"{path} has an image that nobody voted on.")
    return counts.astype(np.float32)
