"""Tasks by name. A task is a file: data, model, recipe, search space."""

import functools
import importlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from penex import registry
from penex.lab.data import Collection
from penex.lab.data.noise import LabelNoise
from penex.lab.data.split import fold_size
from penex.lab.engine.recipe import Recipe
from penex.lab.ground.errors import LabError, unknown
from penex.lab.models.encoder import Encoder


def registered_search() -> dict[str, tuple[registry.Parameter, ...]]:
    """What is tuned for each loss unless a task says otherwise."""
    return {name: entry.parameters for name, entry in registry.LOSSES.items()}


@dataclass(frozen=True, eq=False)
class Task:
    """What is trained on what.

    Attributes:
        name: the name on the command line and on disk.
        title: the task in a line.
        collect: () -> the data, not yet split; one that reads official files takes a folder too.
        train_size: the number of training examples unless the user says otherwise.
        model: the name of the network, for the record.
        build: (shape of an input, number of logits) -> the network.
        recipe: how it is trained.
        val: how many examples to validate on, or which share of those not for testing; the
            paper's share.
        test: how many examples to test on, or which share, if no test set came with the data.
        preprocessing: how a new file becomes an input: its kind (``images``, ``table``,
            ``arrays``) and what that needs.
        label_noise: wrong labels that belong to the task, unless the user asks for others.
        identity: what else decides a result: the checksum of a user's data, how they are read.
        sizes: the sides of images that it can be had with, if there is a choice; `collect` then
            takes one as image_size.
        rates: learning rates of losses that have their own.
        arguments: of losses that are other ones here than by default, unless the user gives them:
            the paper's tasks have the paper's PENEX.
        search: what is tuned for each loss, and between which edges.
        folds: if there are any, a run tests on the fold that its seed says: see `split.fold`.
        encoder: of a task whose inputs are texts: what reads them, and what is fine-tuned;
            `collect` then takes it, and what it is decides results too.
        frozen: whether the encoder stays as it is and `build` makes what learns on its features.
    """

    name: str
    title: str
    collect: Callable[..., Collection]
    train_size: int
    model: str
    build: Callable[[Sequence[int], int], nn.Module]
    recipe: Recipe
    val: float = 0.2
    test: float = 0.2
    preprocessing: Mapping[str, Any] = field(default_factory=lambda: {"kind": "arrays"})
    label_noise: LabelNoise | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    rates: Mapping[str, float] = field(default_factory=dict)
    arguments: Mapping[str, Mapping[str, float | bool | str | None]] = field(default_factory=dict)
    search: Mapping[str, tuple[registry.Parameter, ...]] = field(default_factory=registered_search)
    folds: int = 0
    encoder: Encoder | None = None
    frozen: bool = False

    @property
    def decisive(self) -> dict[str, Any]:
        """What decides a result besides names and numbers: checksums, sizes, the encoder."""
        return {**self.identity, **(self.encoder.identity if self.encoder else {})}


# Arguments of losses on the paper's tasks: PENEX as it is printed.
AS_PRINTED: Mapping[str, Mapping[str, str]] = {"penex": {"scale": "paper"}}


def data_root() -> Path:
    """Where official files lie unless the user says: PENEX_DATA, or ./data."""
    return Path(os.environ.get("PENEX_DATA", "data"))


# Where each task is. Modules are imported when asked for: a task may need a library that the others
# do not.
_MODULES = {
    "digits": ("penex.lab.tasks.digits", "TASK"),
    "cifar10": ("penex.lab.tasks.cifar10", "TASK"),
    "cifar10_noisy": ("penex.lab.tasks.cifar10", "NOISY"),
    "cifar100": ("penex.lab.tasks.cifar100", "TASK"),
    "pathmnist": ("penex.lab.tasks.pathmnist", "TASK"),
    "cifar10n_aggre": ("penex.lab.tasks.cifar_n", "AGGRE"),
    "cifar10n_random1": ("penex.lab.tasks.cifar_n", "RANDOM1"),
    "cifar10n_worse": ("penex.lab.tasks.cifar_n", "WORSE"),
    "cifar100n": ("penex.lab.tasks.cifar_n", "HUNDRED"),
    "bbc_news": ("penex.lab.tasks.bbc_news", "TASK"),
    "cifar10_resnet18": ("penex.lab.tasks.resnet18", "TEN"),
    "cifar100_resnet18": ("penex.lab.tasks.resnet18", "HUNDRED"),
    "imagenet": ("penex.lab.tasks.imagenet", "IMAGENET"),
    "tiny_imagenet": ("penex.lab.tasks.imagenet", "TINY"),
    "imagenette": ("penex.lab.tasks.imagenet", "IMAGENETTE"),
}

NAMES = tuple(_MODULES)

_registered: dict[str, Task] = {}


def register(task: Task) -> Task:
    """Make a task known by its name, beside those that are here."""
    if task.name in _MODULES or _registered.get(task.name, task) is not task:
        raise LabError(f"There is a task {task.name!r} already.")
    _registered[task.name] = task
    return task


def placed(task: Task, folder: Path) -> Task:
    """A task with its official files in a folder."""
    if not inspect.signature(task.collect).parameters:  # it reads no files
        raise LabError(f"Give the task {task.name!r} or --data, not both.")
    return replace(task, collect=functools.partial(task.collect, folder))


def resized(task: Task, side: int) -> Task:
    """A task with images of another size, if it has a choice."""
    if side not in task.sizes:
        which = f"in {', '.join(map(str, task.sizes))} pixels" if task.sizes else "in one size only"
        raise LabError(f"The task {task.name} comes {which}; got --image-size {side}.")
    return replace(
        task,
        title=f"{task.title} (at {side} pixels)",
        collect=functools.partial(task.collect, image_size=side),
        preprocessing={**task.preprocessing, "image_size": side},
        identity={**task.identity, "image_size": side},
    )


def encoded(task: Task, name: str) -> Task:
    """A task with another encoder of its texts, by its name or its folder."""
    if task.encoder is None:
        raise LabError(f"--encoder reads texts; the inputs of {task.name} are none.")
    encoder = Encoder(name)
    return replace(
        task,
        collect=functools.partial(task.collect, encoder=encoder),
        build=encoder.build,
        encoder=encoder,
    )


def folded(task: Task, folds: int) -> Task:
    """A task whose seeds test on one fold each, and train on all the others but for validation."""
    collection = task.collect()
    n = len(collection.train.targets)
    if not 2 <= folds <= n:
        raise LabError(f"There must be at least 2 folds and at most {n} examples; got {folds}.")
    return replace(
        task,
        collect=lambda: collection,
        train_size=fold_size(collection, folds, task.val),
        identity={**task.identity, "folds": folds},
        folds=folds,
    )


def find(name: str) -> Task:
    """The task of a name, or a LabError that suggests the nearest one.

    >>> find("digits").train_size
    300
    """
    if name in _registered:
        return _registered[name]
    if name not in _MODULES:
        raise unknown("task", name, (*NAMES, *_registered))
    module, attribute = _MODULES[name]
    task: Task = getattr(importlib.import_module(module), attribute)
    return task
