"""CIFAR-10 as in the paper's main table, and CIFAR-10 with wrong labels.

40,000 images to train on, 10,000 to validate, the official 10,000 to test; the paper's network,
200 epochs of Adam at 1e-4, clip 5; inputs from -1 to 1; no augmentation. The noisy task makes a
tenth of the training labels wrong: `flip` as the paper's text has it; `--noise-kind resample` is
the authors' code, where validation is noisy too. Where the votes of CIFAR-10H lie beside the files
(`human/cifar10h.npz`), the test set carries them.
"""

import dataclasses
from pathlib import Path

import torch

from penex.lab.data import Collection, cifar, people
from penex.lab.data.noise import LabelNoise
from penex.lab.engine.recipe import Recipe
from penex.lab.ground.errors import LabError
from penex.lab.models.cnn import cnn
from penex.lab.tasks import AS_PRINTED, Task, data_root

_FOLDER = "cifar-10-batches-py"


def collect(root: Path | None = None) -> Collection:
    """The official files in a folder, or in the folder inside it that the archive makes."""
    root = data_root() if root is None else root
    for folder in (root, root / _FOLDER):
        if cifar.is_cifar10(folder):
            half = torch.full((3, 1, 1), 127.5)  # (x / 255 - 0.5) / 0.5
            found = cifar.read_cifar10(folder)
            assert found.test is not None
            votes, facts = people.votes(root, found.test.targets, len(found.classes))
            return dataclasses.replace(
                found,
                test=found.test._replace(votes=votes),
                mean=half,
                std=half,
                facts={**found.facts, **facts},
            )
    raise LabError(
        f"CIFAR-10 is not in {root}: it needs {_FOLDER}/ with data_batch_1 to 5 and test_batch "
        "(178 MiB). Get it with `penex data get cifar10`, or say where it is with --data or "
        "PENEX_DATA."
    )


RECIPE = Recipe(epochs=200, lr=1e-4, clip=5.0, matmul_precision="medium")

TASK = Task(
    name="cifar10",
    title="CIFAR-10, the paper's network and recipe",
    collect=collect,
    train_size=40_000,
    model="cnn",
    build=cnn,
    recipe=RECIPE,
    arguments=AS_PRINTED,
    preprocessing={"kind": "images", "image_size": 32},
)

NOISY = dataclasses.replace(
    TASK,
    name="cifar10_noisy",
    title="CIFAR-10 with a tenth of the training labels wrong",
    recipe=RECIPE,
    label_noise=LabelNoise(0.1),
)
