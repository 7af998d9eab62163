"""A .csv file with numeric columns and a column of labels."""

import csv
import itertools
import re
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch

from penex.lab.data import Collection, Examples
from penex.lab.data.arrays import class_indices, narrowed
from penex.lab.errors import LabError, unknown

Array = np.ndarray[Any, Any]

_LARGEST = float(np.finfo(np.float32).max)
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
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            delimiter = _delimiter(file)
            reader = csv.reader(file, delimiter=delimiter)
            for row in reader:
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
    except (UnicodeDecodeError, csv.Error) as error:
        raise LabError(f"{path} cannot be read as a .csv file in UTF-8: {error}.") from error
    if len(rows) < 2:
        raise LabError(f"{path} needs a header and rows below it; it has {len(rows)} lines.")
    header = [name.strip() for name in rows[0]]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise LabError(f"{path} has the column {twice[0]!r} twice: rename one.")
    for line, row in zip(lines[1:], rows[1:], strict=True):
        if len(row) != len(header):
            raise LabError(f"{path}, line {line}: {len(row)} values for {len(header)} columns.")
    return Table(header, rows[1:], lines[1:])


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


def numbers(path: Path, table: Table, columns: list[str]) -> torch.Tensor:
    """The values of some columns, (N, F) float64."""
    places = [table.header.index(name) for name in columns]
    values = np.empty((len(table.rows), len(places)), dtype=np.float64)
    for k, row in enumerate(table.rows):
        for j, place in enumerate(places):
            values[k, j] = _number(path, row[place].strip(), table.lines[k], columns[j])
    return torch.from_numpy(values)


def _number(path: Path, text: str, line: int, column: str) -> float:
    where = f"{path}, line {line}, column {column!r}"
    if text.lower() in _MISSING:
        raise LabError(
            f"{where}: the value is missing. Fill it in, or drop the line or the column."
        )
    try:
        number = float(text)
    except ValueError as error:
        raise LabError(
            f"{where}: {text!r} is no number. Encode the column as numbers or drop it."
        ) from error
    if not abs(number) <= _LARGEST:
        raise LabError(f"{where}: {text!r} is not finite in float32.")
    return number


def read(path: Path, label_column: str | None) -> Collection:
    """The examples of a .csv file; every column but the labels is a feature."""
    table = read_table(path)
    if label_column is None:
        raise LabError(
            f"{path} needs --label-column: which of {', '.join(table.header)} holds the class?"
        )
    if label_column not in table.header:
        raise unknown("column", label_column, table.header)
    features = [name for name in table.header if name not in ("", label_column)]
    if not features:
        raise LabError(f"{path} has no column besides {label_column!r}.")
    place = table.header.index(label_column)
    labels = [row[place].strip() for row in table.rows]
    for line, label in zip(table.lines, labels, strict=True):
        if label.lower() in _MISSING:
            raise LabError(
                f"{path}, line {line}, column {label_column!r}: the label is missing. Fill it in, "
                "or drop the line."
            )
    values = _label_values(path, label_column, labels, table.lines)
    classes, indices = class_indices({"train": values}, path)
    train = Examples(numbers(path, table, features), indices["train"])
    note = "The column without a name, a row number by its look, is left out."
    return Collection(
        narrowed({"train": train})["train"],
        classes=classes,
        facts={"source": "a .csv file", "columns": features, "label_column": label_column},
        notes=(note,) if "" in table.header else (),
    )


def _label_values(path: Path, column: str, labels: list[str], lines: list[int]) -> Array:
    """Whole numbers if all labels are, else names; a few words among numbers are a mistake."""
    whole = [re.fullmatch(r"[+-]?[0-9]{1,18}", label) is not None for label in labels]
    if all(whole):
        return np.array([int(label) for label in labels], dtype=np.int64)
    strange = [k for k, is_whole in enumerate(whole) if not is_whole]
    if len(strange) < len(labels) / 2:
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
    return np.array(labels)
