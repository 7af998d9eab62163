"""CIFAR-100 as in the paper's appendix: its network with 100 outputs, Adam at 1e-4, clip 15.

50,000 images for training, 80 % of them (40,000) to train on and the rest to validate, and the
official 10,000 to test on; fine labels. The set carries no licence of its own (Krizhevsky 2009).
"""

import dataclasses
from pathlib import Path

import torch

from penex.lab.data import Collection, cifar
from penex.lab.engine.recipe import Recipe
from penex.lab.ground.errors import LabError
from penex.lab.models.cnn import cnn
from penex.lab.tasks import AS_PRINTED, Task, data_root

_FOLDER = "cifar-100-python"


def collect(root: Path | None = None) -> Collection:
    """The official files in a folder, or in the folder inside it that the archive makes."""
    root = data_root() if root is None else root
    for folder in (root, root / _FOLDER):
        if cifar.is_cifar100(folder):
            half = torch.full((3, 1, 1), 127.5)  # (x / 255 - 0.5) / 0.5
            return dataclasses.replace(cifar.read_cifar100(folder), mean=half, std=half)
    raise LabError(
        f"CIFAR-100 is not in {root}: it needs {_FOLDER}/ with train, test and meta (178 MiB). Get "
        "it with `penex data get cifar100`, or say where it is with --data or PENEX_DATA."
    )


TASK = Task(
    name="cifar100",
    title="CIFAR-100, the paper's network and recipe",
    collect=collect,
    train_size=40_000,
    model="cnn",
    build=cnn,
    recipe=Recipe(epochs=200, lr=1e-4, clip=15.0, matmul_precision="medium"),
    arguments=AS_PRINTED,
    preprocessing={"kind": "images", "image_size": 32},
)
