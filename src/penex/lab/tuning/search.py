"""What is tuned, and what makes two studies the same one."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penex import registry
from penex.lab.engine.recipe import Recipe
from penex.lab.ground.errors import LabError, unknown
from penex.lab.records.identity import Json
from penex.lab.records.views import View
from penex.lab.tasks import Task, runs

FORMAT = 1

# How values are suggested, in words that change when that does; studies that do not say used it.
FIRST_SAMPLER = "TPE, made anew for each number"
SAMPLER = FIRST_SAMPLER

_MOST_TRIALS = 100_000


def _rate(recipe: Recipe) -> registry.Parameter:
    low, high = 0.3 * recipe.lr, 30 * recipe.lr  # a published rate is rather too low than too high
    return registry.Parameter("lr", recipe.lr, low, high, "the learning rate", log=True)


def _decay(recipe: Recipe) -> registry.Parameter:
    what = "how strongly the parameters are drawn to 0"
    return registry.Parameter("weight_decay", recipe.weight_decay, 1e-6, 1e-2, what, log=True)


# What of a recipe can be tuned, by the recipe without tuning.
ALONG = {"lr": _rate, "weight_decay": _decay}


@dataclass(frozen=True)
class Tuning:
    """What is tuned, and how.

    Attributes:
        task: what is trained on what.
        losses: their names, with arguments if some are to be held: ``penex:rho=1e-6``.
        trials: how many for each loss.
        batch: how many of them are suggested, trained and told together.
        seed: of the suggestions; the runs themselves have seed 0.
        train_size: the number of training examples; None for the task's own.
        changes: what is changed in the task's recipe.
        treatment: what is done to the data.
        along: what of the recipe is searched along with the loss's own parameters.
        view: how a trial is judged.
        ranges: edges of parameters that are searched elsewhere than the task says.
    """

    task: Task
    losses: tuple[str, ...]
    trials: int = 50
    batch: int = 10
    seed: int = 0
    train_size: int | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    treatment: runs.Treatment = field(default_factory=runs.Treatment)
    along: tuple[str, ...] = ()
    view: View = field(default_factory=View)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.trials <= _MOST_TRIALS:
            raise LabError(f"A study needs from 1 to {_MOST_TRIALS:,} trials; got {self.trials}.")
        if not 1 <= self.batch <= _MOST_TRIALS:
            raise LabError(f"A batch has from 1 to {_MOST_TRIALS:,} trials; got {self.batch}.")
        if not self.losses:
            raise LabError("There is no loss to tune.")
        for name in self.along:
            if name not in ALONG:
                kinds = "parts of the recipe to tune"
                raise unknown("part of the recipe to tune", name, ALONG, kinds)
        for name in self.losses:
            if not self.space(name):
                known = ", ".join(n for n in registry.LOSSES if self.task.search.get(n))
                raise LabError(
                    f"The loss {name} has no parameter to tune; these have: {known}. The learning "
                    "rate is tuned by --with lr."
                )
        if len(set(self.losses)) < len(self.losses):
            raise LabError("A loss is there twice: name each once.")
        self._check_ranges()

    def _check_ranges(self) -> None:
        """A LabError if a range is of nothing that is tuned, or has an edge that is not legal."""
        spaces = {loss: {p.name: p for p in self.space(loss)} for loss in self.losses}
        for name, (low, high) in self.ranges.items():
            tuned = [loss for loss, space in spaces.items() if name in space]
            if not tuned:
                known = dict.fromkeys(name for space in spaces.values() for name in space)
                raise unknown("parameter to tune", name, known, "parameters to tune")
            if spaces[tuned[0]][name].log and low <= 0:
                raise LabError(f"{name} is searched by its logarithm, above 0; got {low}.")
            for loss in tuned:
                for edge in (low, high):
                    contender(loss, {name: edge}).loss.check()
                    self.run(loss, {name: edge})

    def space(self, loss: str) -> tuple[registry.Parameter, ...]:
        """What is tuned for a loss, and between which edges."""
        spec = runs.LossSpec.parse(loss)
        own = self.task.search.get(spec.name, registry.find(spec.name).parameters)
        free = [one for one in own if one.name not in spec.arguments]
        every = (*free, *(ALONG[name](self._recipe(spec)) for name in self.along))
        edges = {p.name: self.ranges.get(p.name, (p.low, p.high)) for p in every}
        return tuple(replace(p, low=edges[p.name][0], high=edges[p.name][1]) for p in every)

    def _recipe(self, spec: runs.LossSpec) -> Recipe:
        return runs.plan(self.task, spec, 0, self.train_size, self.changes, self.treatment).recipe

    def run(self, loss: str, values: dict[str, float]) -> runs.Run:
        """The run of a trial."""
        one = contender(loss, values)
        return runs.plan(self.task, one, 0, self.train_size, self.changes, self.treatment)

    def identity(self, loss: str) -> Json:
        """What makes two studies the same one, besides their number of trials."""
        config = self.run(loss, {}).config
        log = [one.name for one in self.space(loss) if one.log]
        return {
            "format": FORMAT,
            "task": config["task"],
            "loss": loss,
            "search": {p.name: [p.low, p.high] for p in self.space(loss)},
            **({"log": log} if log else {}),
            **({"judged": self.view.identity} if self.view.identity else {}),
            "sampler": SAMPLER,
            "seed": self.seed,
            "batch": self.batch,
            "run": {k: v for k, v in config.items() if k not in ("task", "loss", "seed")},
        }


def ranges_of(texts: Iterable[str]) -> dict[str, tuple[float, float]]:
    """The edges of parameters, from words of the command line.

    >>> ranges_of(["alpha=-0.9:-0.05"])
    {'alpha': (-0.9, -0.05)}
    """
    found: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, _, edges = text.partition("=")
        words = edges.split(":")
        try:
            low, high = map(float, words)
        except ValueError:  # other words, or another number of them
            low = high = math.nan
        if not name or name in found or not -math.inf < low < high < math.inf:
            raise LabError(
                f"A range is name=low:high, as alpha=-0.9:-0.05, each name once; got {text!r}."
            )
        found[name] = low, high
    return found


def contender(loss: str, values: dict[str, float]) -> runs.Contender:
    """A loss with the values of a trial, those of the recipe beside it.

    >>> str(contender("penex:rho=1e-6", {"alpha": 0.1, "lr": 3e-4}))
    'penex:rho=1e-06,alpha=0.1@lr=0.0003'
    """
    spec = runs.LossSpec.parse(loss)
    own: dict[str, runs.Value] = {k: v for k, v in values.items() if k not in ALONG}
    recipe: dict[str, runs.Value] = {k: v for k, v in values.items() if k in ALONG}
    return runs.Contender(runs.LossSpec(spec.name, {**spec.arguments, **own}), recipe)


def study_name(task: str, loss: str) -> str:
    """The name of a study in its storage.

    >>> study_name("digits", "penex")
    'digits penex'
    """
    return f"{task} {loss}"
