"""A user's data, whatever form they have."""

import hashlib
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from penex.lab.data import Collection, arrays, catalogue, cifar, images, table
from penex.lab.data import bbc as bbc_news
from penex.lab.data.archives import is_archive, opened
from penex.lab.data.decoding import Progress
from penex.lab.ground.errors import LabError

LEAST = 5  # of a class: with fewer, a part of the split may well have none


def quiet(done: int, total: int) -> None:
    """No one watches."""


def read(
    path: Path,
    *,
    image_size: int | None = None,
    label_column: str | None = None,
    allow_large: bool = False,
    progress: Progress = quiet,
) -> Collection:
    """The data at a path: a folder of images, an .npz, a .csv, an archive, or official files.

    Args:
        path: where they are.
        image_size: the side of the square that images are brought to; None to choose.
        label_column: of a .csv file.
        allow_large: take a compressed file though it becomes much larger.
        progress: (done, total) while images are decoded.
    """
    collection = _read(path, image_size, label_column, progress, allow_large=allow_large)
    _check(path, collection)
    return replace(collection, facts={**collection.facts, "sha256": checksum(collection)})


def _read(
    path: Path, size: int | None, label_column: str | None, progress: Progress, *, allow_large: bool
) -> Collection:
    if not path.exists():
        raise LabError(f"There is nothing at {path}.")
    if path.is_file() and is_archive(path):
        inside = opened(path, allow_large=allow_large)
        try:
            return _read(inside, size, label_column, progress, allow_large=allow_large)
        except LabError as error:  # the user has never seen the cache
            raise LabError(str(error).replace(str(inside), str(path))) from error
    suffix = "" if path.is_dir() else path.suffix.lower()
    if label_column is not None and suffix != ".csv":
        raise LabError(f"--label-column is for a .csv; {path} is none.")
    if size is not None and suffix:
        raise LabError(f"--image-size is for image files; {path} holds numbers.")
    if path.is_dir():
        official = _cifar(path)
        if official is not None:
            if size is not None:
                raise LabError(f"--image-size is for image files; {path} holds CIFAR's arrays.")
            return official()
        if bbc_news.is_bbc(path):
            raise LabError(f"{path} holds texts; this version trains on images and tables only.")
        return images.read(path, size, progress)
    if suffix == ".npz":
        return _medical(path, arrays.read(path, allow_large=allow_large))
    if suffix == ".csv":
        return table.read(path, label_column)
    raise LabError(
        f"{path} is no data set that penex reads: give a folder with a folder of images for each "
        "class, an .npz, a .csv, or an archive of such a folder."
    )


def _cifar(path: Path) -> Callable[[], Collection] | None:
    """How to read the CIFAR files in a folder, or in the folder inside that the archive makes."""
    for folder in (path, path / "cifar-10-batches-py"):
        if cifar.is_cifar10(folder):
            return partial(cifar.read_cifar10, folder)
    for folder in (path, path / "cifar-100-python"):
        if cifar.is_cifar100(folder):
            return partial(cifar.read_cifar100, folder)
    return None


def _medical(path: Path, collection: Collection) -> Collection:
    """Class names, licence and checksum of a MedMNIST file, which it does not hold itself."""
    name = path.stem
    known = catalogue.medmnist().get(name.partition("_")[0])
    if known is None or name not in catalogue.official():
        return collection
    sums, note = catalogue.checksum_note(name, [path])
    classes = collection.classes
    if len(known["classes"]) == len(classes):
        classes = tuple(known["classes"])
    facts = {**collection.facts, "source": name, "md5": sums, "licence": known["licence"]}
    notes = (*collection.notes, note) if note else collection.notes
    return replace(collection, classes=classes, facts=facts, notes=notes)


def _check(path: Path, collection: Collection) -> None:
    """Refuse what cannot be compared, with the remedy."""
    classes, parts = collection.classes, collection.parts
    if len(classes) < 2:
        raise LabError(
            f"{path} has the single class {classes[0]!r}: there is nothing to tell apart."
        )
    _check_names(path, classes)
    counts = {
        name: torch.bincount(part.targets, minlength=len(classes)) for name, part in parts.items()
    }
    for name, count in counts.items():
        for label in (count == 0).nonzero().flatten().tolist():
            raise LabError(
                f"{path}: the class {classes[label]!r} has no example in {name}. Add some, or take "
                "the class out of the other parts."
            )
    least = LEAST - (len(parts) - 1)
    rarest = int(counts["train"].argmin())
    if counts["train"][rarest] < least:
        raise LabError(
            f"{path}: the class {classes[rarest]!r} has {int(counts['train'][rarest])} examples; "
            f"each needs at least {least} to be split. Add examples or take the class out."
        )


def _check_names(path: Path, classes: tuple[str, ...]) -> None:
    """Refuse names of classes that nobody could tell apart: empty, or alike in Unicode's eyes."""
    known: dict[str, str] = {}
    for name in classes:
        if not name.strip():
            raise LabError(f"{path}: the class {name!r} has no name that can be read. Give it one.")
        form = unicodedata.normalize("NFC", name)
        if form in known:
            how = "" if known[form] == name else ", written with other code points"
            raise LabError(f"{path}: the class {name!r} is there twice{how}. Rename one.")
        known[form] = name


def checksum(collection: Collection) -> str:
    """One checksum of everything that a model can see.

    Decoded images have theirs already (`facts["content"]`), from when they were decoded.
    """
    content = collection.facts.get("content")
    seen = collection.classes, content, collection.facts.get("columns")
    digest = hashlib.sha256(repr(seen).encode())
    for name, part in collection.parts.items():
        digest.update(f"{name} {tuple(part.inputs.shape)} {part.inputs.dtype}".encode())
        for rows in () if content else torch.split(part.inputs, 4096):
            digest.update(rows.contiguous().numpy().tobytes())
        digest.update(part.targets.numpy().tobytes())
    return digest.hexdigest()
