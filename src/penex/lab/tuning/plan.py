"""What is tuned, and what makes two studies the same one."""

from dataclasses import dataclass, field
from typing import Any

from penex import registry
from penex.lab.ground.errors import LabError
from penex.lab.records.identity import Json
from penex.lab.tasks import Task, runs

FORMAT = 1

# How values are suggested, in words that change when that does; studies that do not say used it.
FIRST_SAMPLER = "TPE, made anew for each number"
SAMPLER = FIRST_SAMPLER

_MOST_TRIALS = 100_000


@dataclass(frozen=True)
class Tuning:
    """What is tuned, and how.

    Attributes:
        task: what is trained on what.
        losses: their names.
        trials: how many for each loss.
        batch: how many of them are suggested, trained and told together.
        seed: of the suggestions; the runs themselves have seed 0.
        train_size: the number of training examples; None for the task's own.
        changes: what is changed in the task's recipe.
        treatment: what is done to the data.
    """

    task: Task
    losses: tuple[str, ...]
    trials: int = 50
    batch: int = 10
    seed: int = 0
    train_size: int | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    treatment: runs.Treatment = field(default_factory=runs.Treatment)

    def __post_init__(self) -> None:
        if not 1 <= self.trials <= _MOST_TRIALS:
            raise LabError(f"A study needs from 1 to {_MOST_TRIALS:,} trials; got {self.trials}.")
        if not 1 <= self.batch <= _MOST_TRIALS:
            raise LabError(f"A batch has from 1 to {_MOST_TRIALS:,} trials; got {self.batch}.")
        if not self.losses:
            raise LabError("There is no loss to tune.")
        for name in self.losses:
            runs.LossSpec(name).check()
            if not self.space(name):
                known = ", ".join(n for n in registry.LOSSES if self.task.search.get(n))
                raise LabError(f"The loss {name} has no parameter to tune; these have: {known}.")
        if len(set(self.losses)) < len(self.losses):
            raise LabError("A loss is there twice: name each once.")

    def space(self, loss: str) -> tuple[registry.Parameter, ...]:
        """What is tuned for a loss, and between which edges."""
        return tuple(self.task.search.get(loss, registry.find(loss).parameters))

    def run(self, loss: str, values: dict[str, float]) -> runs.Run:
        """The run of a trial."""
        spec = runs.LossSpec(loss, dict(values))
        return runs.plan(self.task, spec, 0, self.train_size, self.changes, self.treatment)

    def identity(self, loss: str) -> Json:
        """What makes two studies the same one, besides their number of trials."""
        config = self.run(loss, {}).config
        return {
            "format": FORMAT,
            "task": config["task"],
            "loss": loss,
            "search": {p.name: [p.low, p.high] for p in self.space(loss)},
            "sampler": SAMPLER,
            "seed": self.seed,
            "batch": self.batch,
            "run": {k: v for k, v in config.items() if k not in ("task", "loss", "seed")},
        }


def study_name(task: str, loss: str) -> str:
    """The name of a study in its storage.

    >>> study_name("digits", "penex")
    'digits penex'
    """
    return f"{task} {loss}"
