"""Small tables that come with scikit-learn, as a user's own data."""

from pathlib import Path

import numpy as np

from penex.lab.tasks import Task, own

NAMES = ("breast_cancer", "wine")


def task(name: str, folder: Path) -> Task:
    """A table as the task that `penex compare --data table.npz` makes of it."""
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}.npz", x=x, y=y)
    return own.own(folder / f"{name}.npz")[0]
