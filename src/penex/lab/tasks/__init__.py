"""Tasks by name. A task is a file: data, model, recipe, search space, the paper's numbers."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from penex import registry
from penex.lab.data import Collection
from penex.lab.errors import unknown
from penex.lab.recipe import Recipe


def _registered_search() -> dict[str, tuple[registry.Parameter, ...]]:
    return {name: entry.parameters for name, entry in registry.LOSSES.items()}


@dataclass(frozen=True, eq=False)
class Task:
    """What is trained on what.

    Attributes:
        name: the name on the command line and on disk.
        title: the task in a line.
        collect: () -> the data, not yet split.
        train_size: the number of training examples unless the user says otherwise.
        model: the name of the network, for the record.
        build: (shape of an input, number of logits) -> the network.
        recipe: how it is trained.
        val: how many examples to validate on, or which share of those not for testing; the
            paper's share.
        test: how many examples to test on, or which share, if no test set came with the data.
        preprocessing: how a new file becomes an input: its kind (``images``, ``table``,
            ``arrays``) and what that needs.
        identity: what else decides a result: the checksum of a user's data, how they are read.
        rates: learning rates of losses that have their own.
        search: what is tuned for each loss, and between which edges.
        paper: the paper's numbers, by loss and metric.
    """

    name: str
    title: str
    collect: Callable[[], Collection]
    train_size: int
    model: str
    build: Callable[[Sequence[int], int], nn.Module]
    recipe: Recipe
    val: float = 0.2
    test: float = 0.2
    preprocessing: Mapping[str, Any] = field(default_factory=lambda: {"kind": "arrays"})
    identity: Mapping[str, Any] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    search: Mapping[str, tuple[registry.Parameter, ...]] = field(default_factory=_registered_search)
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


# Each task's module has a TASK. They are imported when asked for: a task may need a library that
# the others do not.
_MODULES = {"digits": "penex.lab.tasks.digits"}

NAMES = tuple(_MODULES)


def find(name: str) -> Task:
    """The task of a name, or a LabError that suggests the nearest one.

    >>> find("digits").train_size
    300
    """
    if name not in _MODULES:
        raise unknown("task", name, NAMES)
    task: Task = importlib.import_module(_MODULES[name]).TASK
    return task
