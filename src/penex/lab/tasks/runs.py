"""What a run is: a task, a loss, a recipe and a seed."""

import inspect
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch

from penex import registry
from penex.lab.data.noise import LabelNoise
from penex.lab.engine.learner import AnyLoss
from penex.lab.engine.recipe import Recipe
from penex.lab.ground.errors import LabError, unknown
from penex.lab.records import Json, identity
from penex.lab.records.reading import FORMAT
from penex.lab.tasks import Task

Value = float | bool | str | None

RECIPE = tuple(one.name for one in fields(Recipe))  # what a contender may have of its own

# What the engine, the data or the processes decide, and no one else.
_ENGINES = ("weight", "ignore_index", "reduction", "accumulate", "process_group")
_OLD = ("size_average", "reduce")  # torch's own, superseded
_UNRECORDED = (*_ENGINES, *_OLD, "label_smoothing", "impl", "overwrite_logits")  # unless given


@dataclass(frozen=True)
class LossSpec:
    """A loss by its name, with arguments: ``penex``, or ``penex:alpha=0.03,order=listing``.

    One of the user's own is ``module:Class``, or ``module:Class:alpha=0.03``.

    Attributes:
        name: the name in the registry.
        arguments: what was given, over the registry's defaults.
    """

    name: str
    arguments: dict[str, Value] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "LossSpec":
        """The loss of a word on the command line.

        >>> LossSpec.parse("penex:alpha=0.03").arguments
        {'alpha': 0.03}
        """
        name, _, rest = text.partition(":")
        if rest and name not in registry.LOSSES:  # module:Class, arguments after another colon
            attribute, _, rest = rest.partition(":")
            name = f"{name}:{attribute}"
        arguments = _pairs(rest)
        if arguments is None:
            raise LabError(
                f"{text!r} is not a loss: write name:argument=value, as penex:alpha=0.03, each "
                "argument once."
            )
        spec = cls(name, arguments)
        spec.check()
        return spec

    def check(self) -> None:
        """A LabError if the loss cannot be made or does not work: now, not in the third hour."""
        try:
            names = inspect.signature(registry.find(self.name).make).parameters
        except ValueError as error:
            raise LabError(str(error)) from error
        legal = [n for n in names if n not in (*_ENGINES, *_OLD, "options")]
        if "options" in names:
            legal.append("label_smoothing")
        wrong = [name for name in self.arguments if name not in legal]
        if wrong:
            takes = f"it takes {', '.join(legal)}" if legal else "it takes none"
            raise LabError(f"The loss {self.name} has no argument {wrong[0]!r} here; {takes}.")
        loss = self.make()
        try:
            logits = torch.zeros(2, 3, requires_grad=True)
            both = torch.tensor([0, 1])
            loss.remember(*logits.shape)
            torch.autograd.backward(loss(logits, both, **loss.asked(both)))
        except Exception as error:
            raise LabError(f"The loss {self} does not work: {error}") from error

    @property
    def resolved(self) -> dict[str, Value]:
        """Every argument that decides the loss, given or not: defaults may change.

        >>> LossSpec.parse("ex_log_penalty:alpha=1").resolved
        {'alpha': 1.0, 'rho': None}
        """
        entry = registry.find(self.name)
        signature = inspect.signature(entry.make).parameters
        known = {
            name: parameter.default
            for name, parameter in signature.items()
            if name not in _UNRECORDED and parameter.default is not inspect.Parameter.empty
        }
        every = {**known, **entry.defaults, **self.arguments}
        return {
            k: float(v) if isinstance(v, int) and not isinstance(v, bool) else v
            for k, v in every.items()
        }

    def make(self, **options: Any) -> AnyLoss:
        """The loss itself, or a LabError if there is none such."""
        try:
            return registry.make(self.name, **{**self.arguments, **options})
        except (TypeError, ValueError) as error:
            raise LabError(f"The loss {self} cannot be made: {error}") from error

    def __str__(self) -> str:
        given = ",".join(f"{key}={value}" for key, value in self.arguments.items())
        return f"{self.name}:{given}" if given else self.name


@dataclass(frozen=True)
class Contender:
    """A loss in a comparison, with what is changed in the recipe for it alone.

    As a word: ``penex:alpha=0.03@lr=3e-4``.

    Attributes:
        loss: what is minimised.
        changes: of the recipe.
    """

    loss: LossSpec
    changes: dict[str, Value] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Contender":
        """The contender of a word on the command line.

        >>> Contender.parse("ce@lr=3e-4")
        Contender(loss=LossSpec(name='ce', arguments={}), changes={'lr': 0.0003})
        """
        loss, at, rest = text.partition("@")
        changes = _pairs(rest)
        if changes is None or bool(at) != bool(changes) or not changes.keys() <= set(RECIPE):
            raise LabError(
                f"{text!r} is not a loss with a recipe of its own: write loss@name=value, as "
                f"ce@lr=3e-4, each name once, of {', '.join(RECIPE)}."
            )
        return cls(LossSpec.parse(loss), changes)

    def __str__(self) -> str:
        own = ",".join(f"{key}={value}" for key, value in self.changes.items())
        return f"{self.loss}@{own}" if own else str(self.loss)


def _pairs(text: str) -> dict[str, Value] | None:
    """The values of ``name=value,name=value``; None if it is not that, or has a name twice.

    >>> _pairs("alpha=0.1,order=listing"), _pairs(""), _pairs("alpha"), _pairs("a=1,a=2")
    ({'alpha': 0.1, 'order': 'listing'}, {}, None, None)
    """
    found: dict[str, Value] = {}
    for pair in filter(None, text.split(",")):
        key, equals, value = (word.strip() for word in pair.partition("="))
        if not equals or key in found:
            return None
        found[key] = _value(value)
    return found


def _value(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@dataclass(frozen=True)
class Treatment:
    """What is done to the data, on any task.

    Attributes:
        label_noise: wrong labels on purpose.
        class_weights: ``balanced`` weighs each class by the inverse of its share.
    """

    label_noise: LabelNoise | None = None
    class_weights: str | None = None

    def __post_init__(self) -> None:
        if self.class_weights not in (None, "balanced"):
            raise unknown("class weight", str(self.class_weights), ("balanced",))


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        task: what is trained on what.
        loss: what is minimised.
        recipe: how; the learning rate is already this loss's.
        seed: decides initialisation, split, order, dropout and label noise.
        train_size: the number of training examples.
        treatment: what is done to the data.
        label: what it is called beside others; the loss, and what of the recipe is its own.
    """

    task: Task
    loss: LossSpec
    recipe: Recipe
    seed: int
    train_size: int
    treatment: Treatment = field(default_factory=Treatment)
    label: str = ""

    @property
    def config(self) -> Json:
        """What decides the result, resolved: config.json."""
        return {
            "format": FORMAT,
            "task": self.task.name,
            "data": self.task.decisive,
            "loss": identity.of_loss(self.loss.name, self.loss.resolved),
            "model": self.task.model,
            "train_size": self.train_size,
            "recipe": identity.as_recorded(self.recipe),
            **identity.as_recorded(self.treatment),
            "seed": self.seed,
        }


def plan(
    task: Task,
    loss: LossSpec | Contender,
    seed: int,
    train_size: int | None = None,
    changes: dict[str, Any] | None = None,
    treatment: Treatment | None = None,
) -> Run:
    """The run of a loss on a task, with the task's recipe where `changes` says nothing."""
    if not 0 <= seed < 2**63:
        raise LabError(f"A seed must be at least 0 and below 2^63; got {seed}.")
    contender = loss if isinstance(loss, Contender) else Contender(loss)
    changes = dict(changes or {})
    loss = contender.loss
    loss = LossSpec(loss.name, {**task.arguments.get(loss.name, {}), **loss.arguments})
    if loss.name in task.rates:
        changes.setdefault("lr", task.rates[loss.name])
    size = task.train_size if train_size is None else train_size
    changes |= contender.changes
    recipe = _changed(task.recipe, changes)
    if changes.get("momentum") and recipe.optimizer != "sgd":
        raise LabError(
            f"momentum is of sgd alone, and {contender} is trained by {recipe.optimizer}: give "
            f"--optimizer sgd, or leave momentum out; got {changes['momentum']}."
        )
    treatment = treatment or Treatment()
    if treatment.label_noise is None:
        treatment = replace(treatment, label_noise=task.label_noise)
    return Run(task, loss, recipe, seed, size, treatment, str(contender))


def _changed(recipe: Recipe, changes: dict[str, Any]) -> Recipe:
    try:
        return replace(recipe, **changes)
    except TypeError as error:  # a word where a number belongs
        raise LabError(f"The recipe cannot be changed by {changes}: {error}.") from error
