"""Digits: scikit-learn's 1,797 images of 8 x 8 pixels, a few hundred of them for training.

The data come with scikit-learn (a test set of the UCI "Optical Recognition of Handwritten Digits"),
so this task needs no download. It is ours, not the paper's: the paper's network, its optimiser and
clip on CIFAR-10, at ten times its rate and for fewer epochs, since the set is small.
"""

import functools
import hashlib

import torch
from torch import Tensor

from penex.lab.data import Data, Part, channel_statistics
from penex.lab.data.split import stratified_split
from penex.lab.errors import LabError
from penex.lab.models.cnn import cnn
from penex.lab.recipe import Recipe
from penex.lab.tasks import Task

LARGEST = 900  # of 1,797: the rest is split into validation and test, whatever the training size
VALIDATION = 197
TEST = 700


@functools.cache
def _images() -> tuple[Tensor, Tensor]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise LabError(
            "The task digits needs scikit-learn: pip install scikit-learn (or 'penex[lab]')."
        ) from error
    digits = load_digits()
    return torch.tensor(digits.images, dtype=torch.uint8).unsqueeze(1), torch.tensor(
        digits.target
    ).long()


def load(seed: int, train_size: int) -> Data:
    """The digits, split by the seed: a smaller training set is a part of the larger one."""
    if not 10 <= train_size <= LARGEST:
        raise LabError(
            f"digits has from 10 to {LARGEST} images for training; got a train size of "
            f"{train_size}."
        )
    images, labels = _images()
    test, val, pool = stratified_split(labels, (TEST, VALIDATION, -1), seed)
    train = Part(images[pool[:train_size]], labels[pool[:train_size]])
    mean, std = channel_statistics(train.inputs)
    checksum = hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
    return Data(
        train=train,
        val=Part(images[val], labels[val]),
        test=Part(images[test], labels[test]),
        classes=tuple("0123456789"),
        mean=mean,
        std=std,
        facts={"source": "sklearn.datasets.load_digits", "sha256": checksum},
    )


TASK = Task(
    name="digits",
    title="scikit-learn's handwritten digits, 8 x 8 pixels, 10 classes",
    load=load,
    train_size=300,
    model="cnn",
    build=cnn,
    recipe=Recipe(epochs=60, lr=1e-3, clip=5.0),
)
