"""Labelled texts as they were read: from folders of .txt files or a column of a .csv file."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from penex.lab.data import Collection, Examples, folders, table
from penex.lab.data.tokens import Tokenizer
from penex.lab.ground.errors import LabError, unknown
from penex.lab.ground.sentences import count

SUFFIXES = (".txt",)


class Text(NamedTuple):
    """A text.

    Attributes:
        name: where it came from, as a file or a line.
        label: its class.
        text: its words.
    """

    name: str
    label: str
    text: str


@dataclass(frozen=True)
class Texts:
    """Labelled texts, each once.

    Attributes:
        kept: the texts.
        copies: how many were left out as copies of earlier ones.
        torn: how many were left out since they are there under several classes.
        empty: how many were left out since nothing stands in them.
    """

    kept: tuple[Text, ...]
    copies: int = 0
    torn: int = 0
    empty: int = 0

    @property
    def notes(self) -> Iterator[str]:
        """What was left out, in sentences."""
        if self.copies:
            yield f"{count(self.copies, 'text')} left out: exact copies of others."
        if self.torn:
            yield (
                f"{count(self.torn, 'text')} left out: they are there under several classes, so "
                "no model can have them right."
            )
        if self.empty:
            yield f"{count(self.empty, 'text')} left out: nothing stands in them."


def distinct(found: Iterable[Text]) -> Texts:
    """Each text once, in order; white space around it makes no difference.

    >>> given = [("a", "x", "one"), ("b", "x", " one"), ("c", "x", "two"), ("d", "y", "two")]
    >>> texts = distinct(Text(*one) for one in given)
    >>> [text.name for text in texts.kept], texts.copies, texts.torn, texts.empty
    (['a'], 1, 2, 0)
    """
    known: dict[str, list[Text]] = {}
    empty = 0
    for one in found:
        stripped = one.text.strip()
        if stripped:
            known.setdefault(stripped, []).append(one._replace(text=stripped))
        else:
            empty += 1
    agreed = [alike for alike in known.values() if len({one.label for one in alike}) == 1]
    total, kept = sum(map(len, known.values())), sum(map(len, agreed))
    return Texts(
        tuple(alike[0] for alike in agreed),
        copies=kept - len(agreed),
        torn=total - kept,
        empty=empty,
    )


def decoded(path: Path) -> str:
    """The text of a file in UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LabError(
            f"{path} is no text in UTF-8 (byte {error.start} is {error.object[error.start]:#04x}): "
            "save it as UTF-8."
        ) from error


def of_folder(root: Path) -> tuple[dict[str, Texts], tuple[str, ...]]:
    """The texts of root/<class>/ or root/<part>/<class>/, by part, and sentences."""
    listing = folders.list_files(root, folders.Kind("texts", "text files (.txt)", SUFFIXES))
    found: dict[str, list[Text]] = {}
    for one in listing.found:
        text = Text(listing.name(one.path), one.label, decoded(one.path))
        found.setdefault(one.part, []).append(text)
    return {part: distinct(some) for part, some in found.items()}, tuple(listing.notes)


def of_table(path: Path, text_column: str, label_column: str | None) -> tuple[Texts, list[str]]:
    """The texts in a column of a .csv file, and sentences."""
    content = table.read_table(path)
    if text_column not in content.header:
        raise unknown("column", text_column, content.header)
    if label_column == text_column:
        raise LabError(f"--text-column and --label-column are the same: {text_column}.")
    labels, said = table.labels_of(path, content, label_column)
    place = content.header.index(text_column)
    return distinct(
        Text(f"line {line}", str(label), row[place])
        for line, label, row in zip(content.lines, labels.tolist(), content.rows, strict=True)
    ), said


def is_folder_of_texts(root: Path) -> bool:
    """Whether a folder has text files in its folders, and no images."""
    from penex.lab.data.pixels import suffixes

    images, texts = tuple(suffixes()), False
    for path in root.glob("*/**/*"):
        if path.suffix.lower() in images:
            return False
        texts = texts or path.suffix.lower() in SUFFIXES
    return texts


def collection(
    parts: dict[str, Texts], tokenizer: Tokenizer, facts: dict[str, Any], notes: Sequence[str] = ()
) -> Collection:
    """Texts as the data of a task; their classes in the order of their names.

    Args:
        parts: train, and what else came apart.
        tokenizer: of the encoder that reads them.
        facts: where they came from.
        notes: sentences for the user.
    """
    labels = sorted({one.label for part in parts.values() for one in part.kept}, key=_by_number)
    if not labels:
        raise LabError("There is no text to train on: all were left out as empty or contradictory.")
    place = {label: k for k, label in enumerate(labels)}
    examples = {
        name: Examples(
            tokenizer.ids([one.text for one in part.kept]),
            torch.tensor([place[one.label] for one in part.kept], dtype=torch.int64),
            names=tuple(one.name for one in part.kept),
        )
        for name, part in parts.items()
    }
    return Collection(
        classes=tuple(labels),
        mean=torch.zeros(1),  # ids are taken as they are
        std=torch.ones(1),
        facts={**facts, "length": tokenizer.length},
        notes=(*notes, *(note for part in parts.values() for note in part.notes)),
        **examples,
    )


def _by_number(label: str) -> tuple[bool, int, str]:
    """Numbers first, by their size: 2 before 10."""
    digits = label.removeprefix("-")
    number = digits.isascii() and digits.isdigit()
    return not number, int(label) if number else 0, label
