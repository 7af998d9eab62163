"""Packs of runs: which fit together, how they are carried out, what each leaves."""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from penex import registry
from penex.lab import environment, training
from penex.lab.data import Data
from penex.lab.engine import checkpoint, loop, packed, ranks, schedule, seeds
from penex.lab.engine.captured import Steps
from penex.lab.engine.learner import Learner
from penex.lab.engine.packed import Pack
from penex.lab.engine.packed_layers import CannotPack
from penex.lab.errors import Interrupted
from penex.lab.records import Record
from penex.lab.runs import Run

Done = Callable[[Run, Record, bool], None]

MOST = 64  # models a pack on a GPU: more gain little
_WORTH_COMPILING = 10_000  # steps: the compiler takes a minute


@dataclass
class Member:
    """A run of a pack, with what it needs."""

    run: Run
    record: Record
    learner: Learner
    data: Data
    position: loop.Position
    alive: bool = True


def size_for(device: torch.device, wanted: int | None) -> int:
    """How many models a pack may have: what the user wants, or what pays on the device.

    On the CPU it is off by itself: a digits comparison gains a factor of 1.5, and a pack that is
    resumed without a member that diverged differs in its last bits, which a run alone does not.
    """
    if ranks.world() > 1:
        return 1
    if wanted is not None:
        return wanted
    return MOST if device.type == "cuda" else 1


def packs(runs: Iterable[Run], most: int) -> Iterator[list[Run]]:
    """Runs that fit together, at most so many at a time: same but in loss, seed and rate."""
    groups: dict[object, list[Run]] = {}
    for run in runs:
        head = registry.find(run.loss.name).zero_sum_head
        recipe = replace(run.recipe, lr=1.0)
        key = (id(run.task), run.train_size, recipe, run.treatment, head)
        groups.setdefault(key, []).append(run)
    for group in groups.values():
        for start in range(0, len(group), most):
            yield group[start : start + most]


def train(
    runs: list[Run], out: Path, device: torch.device, hooks: training.Hooks, done: Done, most: int
) -> None:
    """Carry out runs, packed where they fit together; what cannot be packed is trained alone."""
    left = [run for run in runs if not Record.of(out, run.config).is_done]
    for run in runs:
        if run not in left:
            record = training.train(run, out, device, hooks)  # verifies it
            done(run, record, True)
    for pack in packs(left, most):
        _train_pack(pack, out, device, hooks, done)


def _train_pack(
    runs: list[Run], out: Path, device: torch.device, hooks: training.Hooks, done: Done
) -> None:
    try:
        with ExitStack() as stack:
            stack.enter_context(training.settings(runs[0].recipe, device))
            members = [_member(run, out, device, stack) for run in runs]
            for member in members:
                packed.check(member.learner)
            places = sorted({(m.position.epoch, m.position.step) for m in members})
            for place in places:  # runs of a broken pack that stopped at different steps
                some = [m for m in members if (m.position.epoch, m.position.step) == place]
                _fit(some, hooks)
    except CannotPack as reason:
        print(f"Not packed: {reason}.", file=sys.stderr)
        for run in runs:
            training.train(run, out, device, hooks)
    except torch.cuda.OutOfMemoryError:
        if len(runs) == 1:
            raise
        half = math.ceil(len(runs) / 2)
        print(f"{len(runs)} models do not fit the GPU's memory: {half} now.", file=sys.stderr)
        torch.cuda.empty_cache()
        for part in (runs[:half], runs[half:]):
            _train_pack(part, out, device, hooks, done)
        return
    for run in runs:
        done(run, Record.of(out, run.config), False)


def _member(run: Run, out: Path, device: torch.device, stack: ExitStack) -> Member:
    record = Record.of(out, run.config)
    stack.enter_context(record.locked())
    data = training.data_of(run, device)
    record.begin(run.config, {**environment.describe(device), "data": data.facts})
    learner = training.learner_of(run, data, device)
    position = loop.start(learner, data)
    checkpoint.load(record.checkpoint, learner, position)
    record.rewind_metrics(position.epoch)
    return Member(run, record, learner, data, position)


def _fit(members: list[Member], hooks: training.Hooks) -> None:
    """Train a pack to the end of its recipe, from where it is."""
    first = members[0]
    recipe, device, n = first.run.recipe, first.learner.device, len(first.data.train)
    steps = len(first.position.history)
    sizes = [len(b) for b in loop.cut(torch.arange(n), recipe.batch_size, first.learner.least)]
    rates = torch.stack([schedule.rates(m.run.recipe, steps) for m in members], dim=1)
    rates = rates.to(device, first.learner.wide).unsqueeze(2)
    pack = Pack([m.learner for m in members], [m.data for m in members])
    pack.train(True)
    long = recipe.epochs * steps >= _WORTH_COMPILING
    step = Steps(pack, lambda text: print(text, file=sys.stderr), compiled=long)
    history = torch.stack([m.position.history for m in members], dim=1)
    for member in members:
        hooks.begin(member.run, member.position.epoch)
    clock = saved = time.monotonic()

    def save() -> None:
        nonlocal clock, saved
        pack.scatter()
        share = (time.monotonic() - clock) / len(members)
        for k, member in enumerate(members):
            member.position.history.copy_(history[:, k])
            if member.alive:
                checkpoint.save(member.record.checkpoint, member.learner, member.position)
                member.record.add_time(share)
        clock = saved = time.monotonic()

    while first.position.epoch < recipe.epochs and any(m.alive for m in members):
        epoch = first.position.epoch
        orders = torch.stack([seeds.order(m.run.seed, epoch, n) for m in members]).to(device)
        batches = torch.split(orders, sizes, dim=1)
        while first.position.step < steps:
            i = first.position.step
            step(batches[i], rates[epoch * steps + i], history[i])
            for member in members:
                member.position.step = i + 1
            if i + 1 < steps and (hooks.stop() or time.monotonic() - saved >= hooks.save_seconds):
                if _all_well(pack, history[: i + 1]):
                    save()
                if hooks.stop():
                    raise Interrupted
        _end_of_epoch(pack, members, history, rates[(epoch + 1) * steps - 1], hooks, clock)
        last = first.position.epoch == recipe.epochs
        if last or hooks.stop() or time.monotonic() - saved >= hooks.save_seconds:
            save()
        if hooks.stop() and not last:
            raise Interrupted
    outcome = loop.Outcome("completed", recipe.epochs * steps)
    for member in members:
        if member.alive:
            training.finish(member.run, member.record, member.learner, member.data, outcome, 0.0)


def _all_well(pack: Pack, history: Tensor) -> bool:
    """Whether no model has gone bad since the last look."""
    return bool(history[..., 0].isfinite().all() & pack.theta.isfinite().all())


def _end_of_epoch(
    pack: Pack,
    members: list[Member],
    history: Tensor,
    rate: Tensor,
    hooks: training.Hooks,
    clock: float,
) -> None:
    """Look for divergence, then at the validation sets; write a line for each run."""
    steps = len(history)
    good = torch.cat([history[..., 0].isfinite(), pack.theta.isfinite().all(1).unsqueeze(0)]).cpu()
    logits = pack.predict([m.data.val for m in members])
    seen, rates = history.cpu(), rate.flatten().tolist()
    for k, member in enumerate(members):
        done = member.position.epoch * steps
        member.position.epoch, member.position.step = member.position.epoch + 1, 0
        if not member.alive:
            continue
        if not bool(good[:, k].all()):
            bad = min(int(good[:, k].logical_not().nonzero()[0].item()), steps - 1)
            outcome = loop.diverged(seen[bad, k], done + bad + 1)
            share = (time.monotonic() - clock) / len(members)
            training.finish(member.run, member.record, member.learner, member.data, outcome, share)
            member.alive = False
            continue
        place = replace(member.position, history=seen[:, k])
        line = loop.line(member.learner, member.data, place, rates[k], logits[k])
        member.record.add_metrics(line)
        hooks.epoch(member.run, line)
