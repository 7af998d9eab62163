"""A user's data, whatever form they have, and what is to be said of them."""

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from penex.lab.data import Collection, Examples, arrays, cache, catalogue, cifar, images, table
from penex.lab.data import bbc as bbc_news
from penex.lab.data.download import extract, is_archive
from penex.lab.errors import LabError

LEAST = 5  # of a class: with fewer, a part of the split may well have none
_UNEVEN = 5.0


def quiet(done: int, total: int) -> None:
    """No one watches."""


def read(
    path: Path,
    *,
    image_size: int | None = None,
    label_column: str | None = None,
    progress: images.Progress = quiet,
) -> Collection:
    """The data at a path: a folder of images, an .npz, a .csv, an archive, or official files.

    Args:
        path: where they are.
        image_size: the side of the square that images are brought to; None to choose.
        label_column: of a .csv file.
        progress: (done, total) while images are decoded.
    """
    collection = _read(path, image_size, label_column, progress)
    _check(path, collection)
    return replace(collection, facts={**collection.facts, "sha256": checksum(collection)})


def _read(
    path: Path, size: int | None, label_column: str | None, progress: images.Progress
) -> Collection:
    if not path.exists():
        raise LabError(f"There is nothing at {path}.")
    if path.is_file() and is_archive(path):
        inside = _opened(path)
        try:
            return _read(inside, size, label_column, progress)
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
        return _medical(path, arrays.read(path))
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


def _opened(archive: Path) -> Path:
    """An archive, taken apart into the cache once."""
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:24]
    folder = cache.root() / f"archive-{digest}"
    if not folder.exists():  # made beside and renamed, so that it is whole or absent
        beside = folder.with_name(f".{folder.name}.{os.getpid()}")
        try:
            extract(archive, beside)
            with suppress(OSError):  # another process was first
                beside.rename(folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    inside = [p for p in folder.iterdir() if not p.name.startswith((".", "__MACOSX"))]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


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


def observations(collection: Collection) -> Iterator[str]:
    """What someone should know before training, besides the collection's own notes."""
    counts = torch.bincount(collection.train.targets, minlength=len(collection.classes))
    high, low = int(counts.argmax()), int(counts.argmin())
    if counts[high] > _UNEVEN * counts[low]:
        names = collection.classes
        yield (
            f"The classes are uneven: {names[high]} has {int(counts[high])} examples, {names[low]} "
            f"{int(counts[low])}. --class-weights balanced makes them count alike."
        )
    seen = {name: _hashes(part) for name, part in collection.parts.items()}
    for name, hashes in seen.items():
        copies = sum(count - 1 for count in hashes.values())
        if copies:
            extra = " A random split may put copies on both sides." if len(seen) == 1 else ""
            yield f"{copies} examples of {name} are exact copies of others there.{extra}"
    parts = list(seen)
    for k, first in enumerate(parts):
        for second in parts[k + 1 :]:
            shared = sum(count for digest, count in seen[second].items() if digest in seen[first])
            if shared:
                yield f"{shared} examples of {second} are in {first} too, exactly."


def _hashes(part: Examples) -> Counter[bytes]:
    rows = part.inputs.flatten(1).numpy()
    return Counter(hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows)
