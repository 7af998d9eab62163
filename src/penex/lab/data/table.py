"""A .csv file with numeric columns and a column of labels."""

import csv
import math
from pathlib import Path

import numpy as np
import torch

from penex.lab.data import Collection, Examples
from penex.lab.data.arrays import class_indices
from penex.lab.errors import LabError, unknown

_MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}


def read_columns(path: Path) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a .csv file, all as text."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            file.seek(0)
            rows = list(csv.reader(file, delimiter=_delimiter(head)))
    except (UnicodeDecodeError, csv.Error) as error:
        raise LabError(f"{path} cannot be read as a .csv file in UTF-8: {error}.") from error
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise LabError(f"{path} needs a header and rows below it; it has {len(rows)} lines.")
    header = [name.strip() for name in rows[0]]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise LabError(f"{path} has the column {twice[0]!r} twice: rename one.")
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise LabError(f"{path}, line {number}: {len(row)} values for {len(header)} columns.")
    return header, rows[1:]


def _delimiter(head: str) -> str:
    return max(",;\t", key=head.count)


def numbers(
    path: Path, header: list[str], rows: list[list[str]], columns: list[str]
) -> torch.Tensor:
    """The values of some columns, (N, F) float32."""
    places = [header.index(name) for name in columns]
    values = np.empty((len(rows), len(places)), dtype=np.float32)
    for k, row in enumerate(rows):
        for j, place in enumerate(places):
            text = row[place].strip()
            where = f"{path}, line {k + 2}, column {columns[j]!r}"
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
            if not math.isfinite(number):
                raise LabError(f"{where}: {text!r} is not finite.")
            values[k, j] = number
    return torch.from_numpy(values)


def read(path: Path, label_column: str | None) -> Collection:
    """The examples of a .csv file; every column but the labels is a feature."""
    header, rows = read_columns(path)
    if label_column is None:
        raise LabError(
            f"{path} needs --label-column: which of {', '.join(header)} holds the class?"
        )
    if label_column not in header:
        raise unknown("column", label_column, header)
    features = [name for name in header if name != label_column]
    if not features:
        raise LabError(f"{path} has no column besides {label_column!r}.")
    place = header.index(label_column)
    labels = [row[place].strip() for row in rows]
    for number, label in enumerate(labels, 2):
        if label.lower() in _MISSING:
            raise LabError(
                f"{path}, line {number}, column {label_column!r}: the label is missing. Fill it "
                "in, or drop the line."
            )
    classes, indices = class_indices({"train": _label_values(path, label_column, labels)})
    return Collection(
        Examples(numbers(path, header, rows, features), indices["train"]),
        classes=classes,
        facts={"source": "a .csv file", "columns": features, "label_column": label_column},
    )


def _label_values(path: Path, column: str, labels: list[str]) -> np.ndarray:
    """Whole numbers if all labels are, else names; a few words among numbers are a mistake."""
    whole = [label.lstrip("+-").isdigit() for label in labels]
    if all(whole):
        return np.array([int(label) for label in labels])
    strange = [k for k, is_whole in enumerate(whole) if not is_whole]
    if len(strange) < len(labels) / 2:
        k = strange[0]
        raise LabError(
            f"{path}, line {k + 2}, column {column!r}: the label {labels[k]!r} stands among whole "
            "numbers. Make all labels numbers, or all of them names."
        )
    if len(set(labels)) > len(labels) / 2:
        raise LabError(
            f"{path}: the column {column!r} has {len(set(labels))} different values in "
            f"{len(labels)} lines, so it is no class. Choose another --label-column."
        )
    return np.array(labels)
