"""The loop around the step: epochs, what is measured after each, when to save, when to stop."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from penex import metrics
from penex.lab import chance
from penex.lab.data import Data
from penex.lab.engine import ranks, schedule, seeds
from penex.lab.engine.evaluation import logits_of, numbers, scores_of
from penex.lab.engine.learner import Learner
from penex.lab.engine.step import HISTORY, step
from penex.lab.errors import Interrupted, LabError

Line = dict[str, Any]

BLIND = "the outputs for the validation set were not finite"


@dataclass
class Position:
    """How far a run has come, with the history of the epoch it is in.

    Attributes:
        epoch: epochs finished.
        step: steps finished of the one after.
        history: a row a step of that epoch.
    """

    history: Tensor
    epoch: int = 0
    step: int = 0


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


def never() -> bool:
    """Nobody asked to stop."""
    return False


def fit(
    learner: Learner,
    data: Data,
    seed: int,
    position: Position,
    *,
    on_epoch: Callable[[Line], None],
    save: Callable[[Position], None],
    stop: Callable[[], bool] = never,
    save_seconds: float = math.inf,
) -> Outcome:
    """Train to the end of the recipe, from wherever the position is.

    Args:
        learner: what is trained.
        data: on the learner's device.
        seed: of the order of the examples.
        position: where to start; it moves along.
        on_epoch: gets a line of numbers after each epoch, on rank 0.
        save: keeps the state; called on rank 0 at the end and when time is up.
        stop: asked after each step; if it says yes, the state is saved and Interrupted raised.
        save_seconds: how often to save.
    """
    recipe, n = learner.recipe, len(data.train)
    steps = len(position.history)
    rates = schedule.rates(recipe, steps).to(learner.device, learner.wide)
    alone = ranks.world() == 1
    saved = time.monotonic()
    learner.train()
    while position.epoch < recipe.epochs:
        order = seeds.order(seed, position.epoch, n).to(learner.device)
        batches = cut(order, recipe.batch_size, learner.least)
        done = position.epoch * steps
        while position.step < steps:
            i = position.step
            # For a model of the user's that draws: what it draws needs no saving then.
            chance.sow(seeds.derive(seed, "draws", done + i, ranks.rank()))
            step(learner, data, batches[i], rates[done + i], position.history[i])
            position.step += 1
            # Processes that train together save and stop together, at the end of an epoch.
            if not alone or position.step == steps:
                continue
            wanted = stop()
            if wanted or time.monotonic() - saved >= save_seconds:
                if _first_bad(learner, position.history[: position.step]) is None:
                    save(position)
                saved = time.monotonic()
                if wanted:
                    raise Interrupted
        _pool(position.history)
        bad = _first_bad(learner, position.history)
        if bad is not None:
            return diverged(position.history[bad], done + bad + 1)
        position.epoch, position.step = position.epoch + 1, 0
        blind = False
        if ranks.rank() == 0:
            logits = logits_of(learner, data, data.val)
            blind = not bool(logits.isfinite().all())
            if not blind:
                validation = numbers(metrics.summary(scores_of(learner, logits, data.val)))
                on_epoch(line(position, rates[done + steps - 1].item(), validation))
        if ranks.agree(blind, learner.device):
            return diverged(position.history[-1], done + steps, BLIND)
        wanted = ranks.agree(stop(), learner.device) and position.epoch < recipe.epochs
        last = position.epoch == recipe.epochs
        if last or wanted or time.monotonic() - saved >= save_seconds:
            if ranks.rank() == 0:
                save(position)
            saved = time.monotonic()
        if wanted:
            raise Interrupted
    return Outcome("completed", recipe.epochs * steps)


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


def _pool(history: Tensor) -> None:
    """Make the history that of all processes: the mean loss, the largest of the rest."""
    if ranks.world() == 1:
        return
    loss, rest = history[:, :1].contiguous(), history[:, 1:].contiguous()
    dist.all_reduce(loss)
    dist.all_reduce(rest, op=dist.ReduceOp.MAX)
    history.copy_(torch.cat([loss / ranks.world(), rest], dim=1))


def _first_bad(learner: Learner, history: Tensor) -> int | None:
    """The first step whose loss was not finite, or the last one if it broke the parameters.

    Broken parameters would give a loss that is not finite in the next step, if there were one.
    This reads from the device, once.
    """
    good = torch.cat([history[:, 0].isfinite(), learner.theta.isfinite().all().view(1)])
    if bool(good.all()):
        return None
    return min(int(good.logical_not().nonzero()[0].item()), len(history) - 1)


def diverged(row: Tensor, at: int, what: str = "") -> Outcome:
    """The end of a run whose step number `at` left this row of history."""
    seen = dict(zip(HISTORY, row.tolist(), strict=True))
    if not math.isfinite(seen["loss"]):
        what = f"the loss was {seen['loss']}"
    what = what or "the parameters were not finite"
    rest = f"gradient norm {seen['grad_norm']:g}, largest logit {seen['max_logit']:g}"
    rho = "" if math.isnan(seen["rho"]) else f", rho {seen['rho']:g}"
    return Outcome("diverged", at, f"{what} at step {at} ({rest}{rho})", seen)


def line(position: Position, rate: float, validation: dict[str, float]) -> Line:
    """What is kept of an epoch: its history, and the metrics of the validation set."""
    history, steps = position.history, len(position.history)
    rho = history[-1, HISTORY.index("rho")].item()
    return {
        "epoch": position.epoch,
        "step": position.epoch * steps,
        "lr": rate,
        "train_loss": history[:, HISTORY.index("loss")].mean().item(),
        "grad_norm": history[:, HISTORY.index("grad_norm")].mean().item(),
        "max_logit": history[:, HISTORY.index("max_logit")].amax().item(),
        "rho": None if math.isnan(rho) else rho,
        "validation": validation,
    }
