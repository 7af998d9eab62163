"""A .csv file with columns of numbers and words, and a column of labels."""

import csv
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch

from penex.lab.data import Collection, Examples
from penex.lab.data.arrays import class_indices, narrowed
from penex.lab.ground.errors import LabError, unknown

Array = np.ndarray[Any, Any]

_LARGEST = float(np.finfo(np.float32).max)
_LONGEST = 2**31 - 1  # characters of a value: a text may be long
_MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}


class Table(NamedTuple):
    """A .csv file, all as text.

    Attributes:
        header: the names of the columns.
        rows: the values of each row.
        lines: the line of the file on which each row ends.
    """

    header: list[str]
    rows: list[list[str]]
    lines: list[int]


def read_table(path: Path) -> Table:
    """The content of a .csv file; its delimiter is a comma, a semicolon or a tab."""
    rows, lines = [], []
    csv.field_size_limit(_LONGEST)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            delimiter = _delimiter(file)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for row in reader:
                if len(row) > 1 or (row and row[0].strip()):
                    rows.append(row)
                    lines.append(reader.line_num)
    except (UnicodeDecodeError, csv.Error) as error:
        raise LabError(f"{path} cannot be read as a .csv file in UTF-8: {error}.") from error
    if len(rows) < 2:
        raise LabError(f"{path} needs a header and rows below it; it has {len(rows)} lines.")
    header = [name.strip() for name in rows[0]]
    twice = _twice(header)
    if twice is not None:
        raise LabError(f"{path} has the column {twice!r} twice: rename one.")
    for line, row in zip(lines[1:], rows[1:], strict=True):
        if len(row) != len(header):
            raise LabError(f"{path}, line {line}: {len(row)} values for {len(header)} columns.")
    return Table(header, rows[1:], lines[1:])


def _twice(names: Iterable[str]) -> str | None:
    """The first of some names that was there before.

    >>> _twice(["a", "b", "b", "a"])
    'b'
    """
    seen = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _delimiter(file: TextIO) -> str:
    """The delimiter by which the first rows have the same number of values, the most if several."""

    def columns(delimiter: str) -> tuple[bool, int]:
        file.seek(0)
        rows = itertools.islice((row for row in csv.reader(file, delimiter=delimiter) if row), 2)
        widths = [len(row) for row in rows] or [0]
        return len(set(widths)) == 1 and widths[0] > 1, widths[0]

    best = max(",;\t", key=columns)
    file.seek(0)
    return best


Words = Mapping[str, Sequence[str]]


def words_of(path: Path, table: Table, columns: list[str]) -> dict[str, list[str]]:
    """The columns that hold words, and the words in each; a few among numbers are a mistake."""
    found = {}
    place_of = {name: place for place, name in enumerate(table.header)}
    for name in columns:
        values = [row[place_of[name]].strip() for row in table.rows]
        there = [text for text in values if text.lower() not in _MISSING]
        if 2 * sum(_parsed(text) is None for text in there) <= len(there):
            continue
        found[name] = sorted(set(values))
        if len(found[name]) > len(values) / 2:
            raise LabError(
                f"{path}: the column {name!r} has {len(found[name])} different words in "
                f"{len(values)} lines, so they are no categories. Give --text-column {name!r} if "
                "it holds texts; else encode it as numbers or drop it."
            )
    return found


def numbers(path: Path, table: Table, columns: list[str], words: Words) -> torch.Tensor:
    """The values of some columns, (N, F) float64, each word a column of 0 and 1.

    Args:
        path: of the table, for messages.
        table: its content.
        columns: which.
        words: those that columns of words may hold.
    """
    blocks = []
    place_of = {name: place for place, name in enumerate(table.header)}
    for name in columns:
        values = [row[place_of[name]].strip() for row in table.rows]
        known = {word: k for k, word in enumerate(words.get(name, ()))}
        block = np.zeros((len(values), len(known) or 1))
        for k, text in enumerate(values):
            place = known.get(text) if known else 0
            number = 1.0 if known else _parsed(text)
            if place is None or number is None or not abs(number) <= _LARGEST:
                where = f"{path}, line {table.lines[k]}, column {name!r}"
                raise LabError(f"{where}: {_what_is_wrong(text, len(known))}")
            block[k, place] = number
        blocks.append(block)
    return torch.from_numpy(np.concatenate(blocks, axis=1))


def _parsed(text: str) -> float | None:
    """A number; None if a text is none. Python reads 1_000 and the digits of all scripts.

    >>> _parsed("-1e3"), _parsed("1_000"), _parsed("red")
    (-1000.0, None, None)
    """
    try:
        return float(text) if "_" not in text and text.isascii() else None
    except ValueError:
        return None


def _what_is_wrong(text: str, words: int) -> str:
    """Why a value is no number, or none of a column's words if it has some."""
    if words:
        return f"{text!r} is none of the {words} words there."
    if text.lower() in _MISSING:
        return "the value is missing. Fill it in, or drop the line or the column."
    if _parsed(text) is None:
        return f"{text!r} is no number. Encode the column as numbers or drop it."
    return f"{text!r} is not finite in float32."


def read(path: Path, label_column: str | None) -> Collection:
    """The examples of a .csv file; every column but the labels is a feature."""
    table = read_table(path)
    place = _place(path, table, label_column)
    dropped, notes = _nameless(table)
    features = [name for name in table.header if name not in (dropped, label_column)]
    if not features:
        raise LabError(f"{path} has no column besides {table.header[place]!r}.")
    values, said = labels_of(path, table, label_column)
    classes, indices = class_indices({"train": values}, path)
    names = tuple(f"line {line}" for line in table.lines)
    words = words_of(path, table, features)
    train = Examples(numbers(path, table, features, words), indices["train"], names=names)
    facts = {"source": "a .csv file", "columns": features, "label_column": label_column}
    if words:
        every = ", ".join(f"{name} ({len(words[name])})" for name in words)
        notes.append(f"Each word of these columns becomes one of 0 and 1: {every}.")
    return Collection(
        narrowed({"train": train})["train"],
        classes=classes,
        facts={**facts, **({"words": words} if words else {})},
        notes=(*notes, *said),
    )


def labels_of(path: Path, table: Table, label_column: str | None) -> tuple[Array, list[str]]:
    """The labels of a table, numbers or names, and sentences about them."""
    place = _place(path, table, label_column)
    label_column = table.header[place]
    labels = [row[place].strip() for row in table.rows]
    for line, label in zip(table.lines, labels, strict=True):
        if label.lower() in _MISSING:
            raise LabError(
                f"{path}, line {line}, column {label_column!r}: the label is missing. Fill it in, "
                "or drop the line."
            )
    return _label_values(path, label_column, labels, table.lines)


def _place(path: Path, table: Table, label_column: str | None) -> int:
    """Which column holds the labels."""
    if label_column is None:
        raise LabError(
            f"{path} needs --label-column: which of {', '.join(table.header)} holds the class?"
        )
    if label_column not in table.header:
        raise unknown("column", label_column, table.header)
    return table.header.index(label_column)


def _nameless(table: Table) -> tuple[str | None, list[str]]:
    """Whether the column without a name, if there is one, is to be dropped; and a sentence.

    Only one that surely tells nothing is: empty, or the number of the row, as pandas and R write.
    """
    if "" not in table.header:
        return None, []
    place = table.header.index("")
    values = [row[place].strip() for row in table.rows]
    if not any(values):
        return "", ["The column without a name is empty, and left out."]
    for first in (0, 1):
        if values == [str(k + first) for k in range(len(values))]:
            return "", [f"The column without a name numbers the rows from {first}: it is left out."]
    return None, ["The column without a name is taken for a feature: it does not number the rows."]


def _label_values(
    path: Path, column: str, labels: list[str], lines: list[int]
) -> tuple[Array, list[str]]:
    """Numbers if all labels are whole numbers in their usual form, else names; and sentences.

    A few words among numbers are a mistake, and so are several labels in one cell.
    """
    _refuse_several(path, column, labels, lines)
    if all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", label) for label in labels):
        return np.array([int(label) for label in labels], dtype=np.int64), []
    strange = [k for k, label in enumerate(labels) if not re.fullmatch(r"[+-]?[0-9]+", label)]
    if strange and len(strange) < len(labels) / 2:
        k = strange[0]
        raise LabError(
            f"{path}, line {lines[k]}, column {column!r}: the label {labels[k]!r} stands among "
            "whole numbers. Make all labels numbers, or all of them names."
        )
    if len(set(labels)) > len(labels) / 2:
        raise LabError(
            f"{path}: the column {column!r} has {len(set(labels))} different values in "
            f"{len(labels)} lines, so it is no class. Choose another --label-column."
        )
    said = []
    if not strange:
        example = next(label for label in labels if str(int(label[:18])) != label)
        said = [f"The labels are taken as names, as they are written: {example!r} is one of them."]
    return np.array(labels), said


def _refuse_several(path: Path, column: str, labels: list[str], lines: list[int]) -> None:
    """Refuse a label that is made of others: a|b where a and b are labels too."""
    known = set(labels)
    for label, line in zip(labels, lines, strict=True):
        pieces = [piece.strip(" '\"") for piece in re.split(r"[,;|]", label.strip("[](){}"))]
        if len(pieces) > 1 and known.issuperset(pieces):
            raise LabError(
                f"{path}, line {line}, column {column!r}: {label!r} holds several labels; each "
                "line needs one. Leave such lines out, or make one label of them."
            )
