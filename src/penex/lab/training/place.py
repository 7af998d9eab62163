"""Where runs are carried out: a folder, a device with the data in its memory, and who watches."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from penex.lab.data import Data
from penex.lab.data.noise import LabelNoise
from penex.lab.data.split import fold, split
from penex.lab.engine import loop, seeds
from penex.lab.ground.errors import LabError
from penex.lab.records import Json, Record
from penex.lab.tasks import Task
from penex.lab.tasks.runs import Run


@dataclass(frozen=True)
class Hooks:
    """What someone who watches runs is told, and may ask for.

    Attributes:
        begin: (run, epochs already trained) before training.
        epoch: (run, line) after each epoch.
        done: (run, record, whether it was there already) after each run.
        stop: asked after each step; True to save and stop.
        save_seconds: how often to save a checkpoint.
        keep_checkpoints: whether a run that is done keeps its last one.
        say: a sentence on what is worth knowing beside the numbers.
    """

    begin: Callable[[Run, int], None] = lambda run, epochs: None
    epoch: Callable[[Run, Json], None] = lambda run, line: None
    done: Callable[[Run, Record, bool], None] = lambda run, record, reused: None
    stop: Callable[[], bool] = loop.never
    save_seconds: float = 30.0
    keep_checkpoints: bool = False
    say: Callable[[str], None] = lambda text: None

    def __post_init__(self) -> None:
        if not self.save_seconds >= 0:
            raise LabError(f"save_seconds must be a number of at least 0; got {self.save_seconds}.")


@dataclass(frozen=True)
class Portion:
    """What is carried out in one go: a pack of runs, or a run alone.

    Attributes:
        runs: those that are not done.
        names: of all that are, or were, in the pack; none for a run that is trained alone.
    """

    runs: list[Run]
    names: list[str] = field(default_factory=list)


class Engine(Protocol):
    """Who carries runs out elsewhere: afterwards their records are in the place's folder."""

    @property
    def device(self) -> torch.device:
        """Where the models are trained."""

    def __call__(self, portions: list[Portion], place: "Place") -> None:
        """Carry them out, in any order, and tell the place's hooks."""


class _Splits:
    """A task's data on a device, and the splits of it that were asked for."""

    def __init__(self, task: Task, device: torch.device) -> None:
        self.task = task
        self._collection = task.collect().to(device)
        self.facts = self._collection.facts
        self._known: dict[tuple[int, int, LabelNoise | None], Data] = {}

    def get(self, seed: int, train_size: int, noise: LabelNoise | None) -> Data:
        key = (seed, train_size, noise)
        if key not in self._known:
            make = self._fold if self.task.folds else self._split
            self._known[key] = make(seed, train_size, noise)
        return self._known[key]

    def _split(self, seed: int, train_size: int, noise: LabelNoise | None) -> Data:
        data = split(self._collection, seed, train_size, val=self.task.val, test=self.task.test)
        return noise.apply(data, seeds.derive(seed, "label noise")) if noise else data

    def _fold(self, seed: int, train_size: int, noise: LabelNoise | None) -> Data:
        """All folds of an order have the same labels: what one is tested on, others learned."""
        task, pool = self.task, self._collection
        if noise:
            pool = noise.spoil(pool, seeds.derive(seed // task.folds, "label noise"))
        return fold(pool, seed, task.folds, train_size, val=task.val)


@dataclass(frozen=True)
class Place:
    """The one object that whoever trains is handed.

    Attributes:
        out: the folder of all tasks.
        device: where to train.
        hooks: who watches.
        engine: who carries packs out, if it is not this process.
    """

    out: Path
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    hooks: Hooks = field(default_factory=Hooks)
    engine: Engine | None = None
    _held: list[_Splits] = field(default_factory=list, repr=False, compare=False)

    def record(self, run: Run) -> Record:
        """What a run leaves, or left, here."""
        return Record.of(self.out, run.config)

    def data(self, run: Run) -> Data:
        """The data of a run, on the device. Runs share their inputs; those of a seed all of it.

        The next task's data take the place of the last one's.
        """
        return self._splits(run).get(run.seed, run.train_size, run.treatment.label_noise)

    def facts(self, run: Run) -> Json | None:
        """What is known of a run's data as they are here, their checksums; None without data."""
        try:
            return self._splits(run).facts
        except (LabError, OSError):  # a record can be read where the data are not
            return None

    def _splits(self, run: Run) -> _Splits:
        if not self._held or self._held[0].task != run.task:
            self._held.clear()  # before the others come: memory may not do for both
            self._held.append(_Splits(run.task, self.device))
        return self._held[0]
