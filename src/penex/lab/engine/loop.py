"""The one loop around the step: epochs, what is measured after each, when to save, when to stop.

What is trained is a crew: a learner alone (`alone.py`) or a pack of them (`together.py`). Each of
its runs has a seat, and a witness who writes down what becomes of it.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from penex.lab.data import Data
from penex.lab.engine.learner import Learner
from penex.lab.engine.step import HISTORY
from penex.lab.ground import ranks
from penex.lab.ground.errors import Interrupted, LabError
from penex.lab.records import OBJECTIVE

Line = dict[str, Any]

BLIND = "the outputs for the validation set were not finite"


@dataclass
class Position:
    """How far a run has come, with the history of the epoch it is in.

    Attributes:
        epoch: epochs finished.
        step: steps finished of the one after.
        history: a row a step of that epoch.
        lines_sha256: the checksum of what was written of the finished epochs; empty if unknown.
        best_epoch: after which the validation cross-entropy was lowest; None if unknown.
        best_value: that cross-entropy.
    """

    history: Tensor
    epoch: int = 0
    step: int = 0
    lines_sha256: str = ""
    best_epoch: int | None = 0
    best_value: float = math.inf


@dataclass(frozen=True)
class Outcome:
    """How training ended.

    Attributes:
        status: ``completed`` or ``diverged``.
        steps: steps finished; for a diverged run, the number of the first bad one, from 1.
        reason: what was not finite, in words; empty if all was well.
        numbers: of the first bad step.
    """

    status: str
    steps: int
    reason: str = ""
    numbers: dict[str, float | None] = field(default_factory=dict)


class Witness(Protocol):
    """Who keeps what becomes of a run, on the process that writes."""

    def epoch(self, line: Line) -> None:
        """An epoch is over; its numbers."""

    def save(self, position: Position, seconds: float) -> None:
        """Keep the learner's state; seconds were spent since the last time."""

    def end(self, outcome: Outcome, seconds: float) -> None:
        """The run is over; seconds were spent since it was saved."""


@dataclass
class Seat:
    """A run in training.

    Attributes:
        learner: what is trained.
        data: on the learner's device.
        seed: of the order of the examples.
        position: how far the run has come; it moves along.
        witness: who keeps what becomes of it.
        alive: False once it has ended, and for one who only keeps the place.
    """

    learner: Learner
    data: Data
    seed: int
    position: Position
    witness: Witness
    alive: bool = True


class Sight(NamedTuple):
    """What is to be known of a crew after an epoch, on the host.

    Attributes:
        history: (models, steps, numbers).
        sound: whether each one's parameters are finite.
        sees: whether each one's outputs for the validation set are.
        validation: the metrics of each on its validation set.
    """

    history: Tensor
    sound: list[bool]
    sees: list[bool]
    validation: list[dict[str, float]]


class Crew(Protocol):
    """One or several learners that take the same steps at the same time."""

    @property
    def seats(self) -> Sequence[Seat]:
        """One for each learner."""

    @property
    def rates(self) -> Tensor:
        """(steps of all epochs, models), on the host."""

    def batches(self, epoch: int) -> Sequence[Tensor]:
        """The batches of an epoch."""

    def step(self, batch: Tensor, number: int) -> None:
        """Take the step of a number, counted over all epochs from 0."""

    def is_well(self, steps: int) -> bool:
        """Whether nothing broke in the first steps of this epoch."""

    def look(self) -> Sight:
        """What is to be known at the end of an epoch; the same on all processes."""

    def keep(self, places: list[int]) -> None:
        """Let the learners of these places keep what they are now as their best."""

    def settle(self) -> None:
        """Give the learners, and the positions, the state that they would have alone."""


def never() -> bool:
    """Nobody asked to stop."""
    return False


def fit(crew: Crew, *, stop: Callable[[], bool] = never, save_seconds: float = math.inf) -> None:
    """Train a crew to the end of its recipe, from wherever it is.

    Args:
        crew: what is trained; its witnesses are told.
        stop: asked after each step; if it says yes, the state is saved and Interrupted raised.
        save_seconds: how often to save.
    """
    seats = crew.seats
    first, recipe = seats[0].position, seats[0].learner.recipe
    device, steps = seats[0].learner.device, len(first.history)
    alone = ranks.world() == 1
    clock = saved = time.monotonic()

    def share() -> float:
        """The time since the last time, of each."""
        nonlocal clock
        before, clock = clock, time.monotonic()
        return (clock - before) / len(seats)

    def save() -> None:
        nonlocal saved
        crew.settle()
        spent = share()
        for seat in seats:
            if seat.alive and ranks.rank() == 0:
                seat.witness.save(seat.position, spent)
        saved = time.monotonic()

    while first.epoch < recipe.epochs and any(seat.alive for seat in seats):
        batches = crew.batches(first.epoch)
        while first.step < steps:
            crew.step(batches[first.step], first.epoch * steps + first.step)
            for seat in seats:
                seat.position.step += 1
            # Processes that train together save and stop together, at the end of an epoch.
            if not alone or first.step == steps:
                continue
            wanted = stop()
            if wanted or time.monotonic() - saved >= save_seconds:
                if crew.is_well(first.step):
                    save()
                saved = time.monotonic()
                if wanted:
                    raise Interrupted
        _end_of_epoch(crew, clock)
        last = first.epoch == recipe.epochs
        wanted = ranks.agree(stop(), device) and not last
        if any(s.alive for s in seats) and (
            last or wanted or time.monotonic() - saved >= save_seconds
        ):
            save()
        if wanted:
            raise Interrupted
    for seat in seats:
        if seat.alive and ranks.rank() == 0:
            seat.witness.end(Outcome("completed", recipe.epochs * steps), share())


def _end_of_epoch(crew: Crew, clock: float) -> None:
    """Look for divergence and at the validation sets; tell the witnesses what was seen."""
    sight = crew.look()
    improved = []
    for k, seat in enumerate(crew.seats):
        position, history = seat.position, sight.history[k]
        steps = len(history)
        done = position.epoch * steps
        position.epoch, position.step = position.epoch + 1, 0
        if not seat.alive:
            continue
        wrong = history[:, HISTORY.index("loss")].isfinite().logical_not().nonzero().flatten()
        if len(wrong) or not sight.sound[k] or not sight.sees[k]:
            # Broken parameters would make the next step's loss wrong, if there were one.
            bad = min([*wrong.tolist(), steps - 1])
            why = BLIND if sight.sound[k] and not len(wrong) else ""
            outcome = diverged(history[bad], done + bad + 1, why)
            seat.alive = False
            if ranks.rank() == 0:
                seat.witness.end(outcome, (time.monotonic() - clock) / len(crew.seats))
        elif ranks.rank() == 0:
            rate = crew.rates[done + steps - 1, k].item()
            value = sight.validation[k][OBJECTIVE]
            if position.best_epoch is not None and value < position.best_value:
                position.best_epoch, position.best_value = position.epoch, value
                improved.append(k)
            seat.witness.epoch(line(position.epoch, history, rate, sight.validation[k]))
    crew.keep(improved)


def cut(order: Tensor, size: int, least: int = 1) -> list[Tensor]:
    """The batches of an epoch; the last may be smaller, or a little larger if it were too small.

    >>> [len(batch) for batch in cut(torch.arange(65), 32)]
    [32, 32, 1]
    >>> [len(batch) for batch in cut(torch.arange(65), 32, least=2)]
    [32, 33]
    """
    batches = list(torch.split(order, size))
    if len(batches) > 1 and len(batches[-1]) < least:
        batches[-2:] = [torch.cat(batches[-2:])]
    if len(batches[-1]) < least:
        raise LabError(f"The model has batch norm: it needs batches of at least {least} examples.")
    return batches


def start(learner: Learner, data: Data) -> Position:
    """The position before the first step."""
    order = torch.arange(len(data.train))
    steps = len(cut(order, learner.recipe.batch_size, learner.least))
    history = torch.zeros(steps, len(HISTORY), dtype=learner.wide, device=learner.device)
    return Position(history)


def diverged(row: Tensor, at: int, what: str = "") -> Outcome:
    """The end of a run whose step number `at` left this row of history."""
    seen = dict(zip(HISTORY, row.tolist(), strict=True))
    if not math.isfinite(seen["loss"]):
        what = f"the loss was {seen['loss']}"
    what = what or "the parameters were not finite"
    rest = f"gradient norm {seen['grad_norm']:g}, largest logit {seen['max_logit']:g}"
    rho = "" if math.isnan(seen["rho"]) else f", rho {seen['rho']:g}"
    return Outcome("diverged", at, f"{what} at step {at} ({rest}{rho})", seen)


def line(epoch: int, history: Tensor, rate: float, validation: dict[str, float]) -> Line:
    """What is kept of an epoch: its number, its history, and the metrics of the validation set."""
    rho = history[-1, HISTORY.index("rho")].item()
    return {
        "epoch": epoch,
        "step": epoch * len(history),
        "lr": rate,
        "train_loss": history[:, HISTORY.index("loss")].mean().item(),
        "grad_norm": history[:, HISTORY.index("grad_norm")].mean().item(),
        "max_logit": history[:, HISTORY.index("max_logit")].amax().item(),
        "rho": None if math.isnan(rho) else rho,
        "validation": validation,
    }
