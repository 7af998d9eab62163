"""Small tables, as a user's own data: those of scikit-learn, and files without a header."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from penex.lab.data import table
from penex.lab.ground.errors import LabError
from penex.lab.tasks import Task, own

NAMES = ("breast_cancer", "wine")

TRAIN, VAL, TEST = 300, 100, 1000  # rows of a file that has enough; of a smaller one 64, 16, 20 %
MOST = TRAIN + VAL + TEST

Array = np.ndarray[Any, Any]


def task(name: str, folder: Path) -> Task:
    """A table of scikit-learn as the task that `penex compare --data table.npz` makes of it."""
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return _task(name, folder, x, y)


def from_file(path: Path, folder: Path) -> Task:
    """A file without a header, the class in its last column, as a task of little data.

    Args:
        path: of the file; lines that begin with @ say what it is and are passed over.
        folder: where the task's data are written.
    """
    x, y = columns(path)
    rows = np.random.default_rng(0).permutation(len(y))[:MOST]
    return of_little_data(_task(path.stem, folder, x[rows], y[rows]), len(rows))


def of_little_data(task: Task, rows: int) -> Task:
    """A task that is split as little data are.

    Args:
        task: of all rows.
        rows: how many they are.
    """
    if rows < 5 * VAL:
        return task
    test = (rows - TRAIN - VAL) / rows
    return replace(task, train_size=TRAIN, val=VAL / rows, test=test)


def columns(path: Path) -> tuple[Array, Array]:
    """The numbers of a file, a column of words becoming one of 0 and 1 for each word; the classes.

    Args:
        path: of the file.
    """
    with path.open(newline="", encoding="utf-8") as file:
        lines = (line for line in file if line.strip() and not line.startswith("@"))
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    if not rows or len({len(row) for row in rows}) > 1 or len(rows[0]) < 2:
        raise LabError(f"{path} is no table: rows of the same length, the class last.")
    names = [str(k) for k in range(len(rows[0]) - 1)]
    content = table.Table([*names, "class"], rows, list(range(1, len(rows) + 1)))
    x = table.numbers(path, content, names, table.words_of(path, content, names))
    return x.numpy(), np.array([row[-1] for row in rows])


def _task(name: str, folder: Path, x: Array, y: Array) -> Task:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}.npz", x=x, y=y)
    return own.own(folder / f"{name}.npz")[0]
