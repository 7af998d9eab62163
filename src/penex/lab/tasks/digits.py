"""Digits: scikit-learn's 1,797 images of 8 x 8 pixels, a few hundred of them for training.

The data come with scikit-learn (a test set of the UCI "Optical Recognition of Handwritten Digits"),
so this task needs no download. It is ours, not the paper's: the paper's network, its optimiser and
clip on CIFAR-10, at ten times its rate and for fewer epochs, since the set is small.
"""

import hashlib

import torch

from penex.lab.data import Collection, Examples
from penex.lab.engine.recipe import Recipe
from penex.lab.ground.errors import LabError
from penex.lab.models.cnn import cnn
from penex.lab.tasks import Task


def collect() -> Collection:
    """All digits."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise LabError("The task digits needs scikit-learn: pip install scikit-learn.") from error
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.uint8).unsqueeze(1)
    labels = torch.tensor(digits.target).long()
    checksum = hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
    return Collection(
        Examples(images, labels),
        classes=tuple("0123456789"),
        facts={"source": "sklearn.datasets.load_digits", "sha256": checksum},
    )


TASK = Task(
    name="digits",
    title="scikit-learn's handwritten digits, 8 x 8 pixels, 10 classes",
    collect=collect,
    train_size=300,
    model="cnn",
    build=cnn,
    val=197,
    test=700,  # 900 are left: room for --train-size 100 300 900
    recipe=Recipe(epochs=60, lr=1e-3, clip=5.0),
)
