"""A user's data, whatever form they have."""

import hashlib
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from penex.lab.data import Collection, arrays, catalogue, cifar, images, table, texts
from penex.lab.data import bbc as bbc_news
from penex.lab.data.archives import is_archive, opened
from penex.lab.data.decoding import Progress
from penex.lab.data.tokens import Tokenizer
from penex.lab.ground.errors import LabError

LEAST = 5  # of a class: with fewer, a part of the split may well have none


def quiet(done: int, total: int) -> None:
    """No one watches."""


def read(
    path: Path,
    *,
    image_size: int | None = None,
    label_column: str | None = None,
    text_column: str | None = None,
    tokenizer: Callable[[], Tokenizer] | None = None,
    allow_large: bool = False,
    progress: Progress = quiet,
) -> Collection:
    """The data at a path: a folder of images or texts, an .npz, a .csv, an archive, official files.

    Args:
        path: where they are.
        image_size: the side of the square that images are brought to; None to choose.
        label_column: of a .csv file.
        text_column: of a .csv file that holds texts.
        tokenizer: () -> what makes numbers of texts, if there are any.
        allow_large: take a compressed file though it becomes much larger.
        progress: (done, total) while images are decoded.
    """
    how = _How(image_size, label_column, text_column, tokenizer, allow_large, progress)
    collection = _read(path, how)
    _check(path, collection)
    return replace(collection, facts={**collection.facts, "sha256": checksum(collection)})


class _How(NamedTuple):
    """The options of `read`."""

    size: int | None
    label_column: str | None
    text_column: str | None
    tokenizer: Callable[[], Tokenizer] | None
    allow_large: bool
    progress: Progress


class FoundTexts(NamedTuple):
    """Texts that are no numbers yet.

    Attributes:
        parts: train, and what else came apart.
        source: what they came from.
        notes: sentences about what was left out.
    """

    parts: dict[str, texts.Texts]
    source: str
    notes: tuple[str, ...]


def read_texts(path: Path, text_column: str | None, label_column: str | None) -> FoundTexts | None:
    """The texts of a folder, or of a column of a .csv file; None if a path holds none.

    Args:
        path: where they are.
        text_column: of a .csv file.
        label_column: likewise.
    """
    if text_column is not None:
        found, said = texts.of_table(path, text_column, label_column)
        return FoundTexts({"train": found}, "a .csv file of texts", tuple(said))
    if not path.is_dir():
        return None
    if bbc_news.is_bbc(path):
        return FoundTexts({"train": bbc_news.read(path)}, "a folder of texts", ())
    if texts.is_folder_of_texts(path):
        parts, notes = texts.of_folder(path)
        return FoundTexts(parts, "a folder of texts", notes)
    return None


def _read(path: Path, how: _How) -> Collection:
    size, label_column, allow_large = how.size, how.label_column, how.allow_large
    if not path.exists():
        raise LabError(f"There is nothing at {path}.")
    if path.is_file() and is_archive(path):
        inside = opened(path, allow_large=allow_large)
        try:
            return _read(inside, how)
        except LabError as error:  # the user has never seen the cache
            raise LabError(str(error).replace(str(inside), str(path))) from error
    suffix = "" if path.is_dir() else path.suffix.lower()
    if label_column is not None and suffix != ".csv":
        raise LabError(f"--label-column is for a .csv; {path} is none.")
    if how.text_column is not None and suffix != ".csv":
        raise LabError(f"--text-column is for a .csv; {path} is none.")
    if size is not None and suffix:
        raise LabError(f"--image-size is for image files; {path} holds numbers.")
    if path.is_dir():
        official = _cifar(path)
        if official is not None:
            if size is not None:
                raise LabError(f"--image-size is for image files; {path} holds CIFAR's arrays.")
            return official()
    words = read_texts(path, how.text_column, label_column)
    if words is not None:
        if size is not None:
            raise LabError(f"--image-size is for image files; {path} holds texts.")
        if how.tokenizer is None:
            raise LabError(f"{path} holds texts, and nothing is given to read them with.")
        facts = {"source": words.source}
        return texts.collection(words.parts, how.tokenizer(), facts, words.notes)
    if path.is_dir():
        return images.read(path, size, how.progress)
    if suffix == ".npz":
        return _medical(path, arrays.read(path, allow_large=allow_large))
    if suffix == ".csv":
        return table.read(path, label_column)
    raise LabError(
        f"{path} is no data set that penex reads: give a folder with a folder of images or texts "
        "for each class, an .npz, a .csv, or an archive of such a folder."
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
    facts = collection.facts
    content = facts.get("content")
    seen = collection.classes, content, facts.get("columns"), *filter(None, [facts.get("words")])
    digest = hashlib.sha256(repr(seen).encode())
    for name, part in collection.parts.items():
        digest.update(f"{name} {tuple(part.inputs.shape)} {part.inputs.dtype}".encode())
        for rows in () if content else torch.split(part.inputs, 4096):
            digest.update(rows.contiguous().numpy().tobytes())
        digest.update(part.targets.numpy().tobytes())
    return digest.hexdigest()
