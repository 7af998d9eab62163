"""How a pack of runs is trained, and what each run leaves: as if it had been alone."""

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from penex import metrics
from penex.lab import environment, training
from penex.lab.data import Data
from penex.lab.engine import checkpoint, loop, schedule, seeds
from penex.lab.engine.captured import Steps
from penex.lab.engine.learner import Learner
from penex.lab.engine.packed import Pack
from penex.lab.errors import Interrupted
from penex.lab.records import Record
from penex.lab.runs import Run

_WORTH_COMPILING = 10_000  # steps: the compiler takes a minute


@dataclass
class Member:
    """A place in a pack.

    Attributes:
        run: who has it.
        record: of the run.
        learner: what is trained.
        data: of the run.
        position: how far the run has come.
        alive: False once it diverged, and for one who only keeps the place.
    """

    run: Run
    record: Record
    learner: Learner
    data: Data
    position: loop.Position
    alive: bool = True


def name_of(run: Run) -> str:
    """What a run is called in the list of its pack."""
    return "/".join(Record.of(Path(), run.config).folder.parts)


def train_members(
    runs: list[Run], names: list[str], out: Path, device: torch.device, hooks: training.Hooks
) -> None:
    """Train a pack's runs that are not done, the places of the others being kept."""
    with ExitStack() as stack:
        stack.enter_context(training.settings(runs[0].recipe, device))
        found = {name_of(run): _member(run, out, device, stack) for run in runs}
        members = {name: member for name, member in found.items() if member is not None}
        for member in members.values():
            member.record.join(names)
        places = sorted({(m.position.epoch, m.position.step) for m in members.values()})
        for place in places:  # runs of a broken pack that stopped at different steps
            some = {
                name: member
                for name, member in members.items()
                if (member.position.epoch, member.position.step) == place
            }
            one = next(iter(some.values()))
            _fit([some.get(name) or _stand_in(one, device) for name in names], hooks)


def _member(run: Run, out: Path, device: torch.device, stack: ExitStack) -> Member | None:
    """The place of a run; None if another process finished it before we had its lock."""
    record = Record.of(out, run.config)
    stack.enter_context(record.locked())
    if record.is_done:
        record.verify()
        return None
    data = training.data_of(run, device)
    record.begin(run.config, {**environment.describe(device), "data": data.facts})
    learner = training.learner_of(run, data, device)
    position = loop.start(learner, data)
    checkpoint.load(record.checkpoint, learner, position)
    record.rewind_metrics(position.epoch)
    return Member(run, record, learner, data, position)


def _stand_in(member: Member, device: torch.device) -> Member:
    """Someone who keeps a place in the pack, and leaves nothing."""
    learner = training.learner_of(member.run, member.data, device)
    learner.theta.copy_(member.learner.theta)
    learner.count.copy_(member.learner.count)
    position = replace(member.position, history=member.position.history.clone())
    return replace(member, learner=learner, position=position, alive=False)


def _fit(members: list[Member], hooks: training.Hooks) -> None:
    """Train a pack to the end of its recipe, from where it is."""
    first = members[0]
    recipe, device, n = first.run.recipe, first.learner.device, len(first.data.train)
    steps = len(first.position.history)
    sizes = [len(b) for b in loop.cut(torch.arange(n), recipe.batch_size, first.learner.least)]
    rates = torch.stack([schedule.rates(m.run.recipe, steps) for m in members], dim=1)
    rates = rates.to(first.learner.wide)
    there = rates.to(device).unsqueeze(2)
    distinct = list({m.run.seed: None for m in members})
    place = torch.tensor([distinct.index(m.run.seed) for m in members], device=device)
    pack = Pack([m.learner for m in members], [m.data for m in members])
    pack.train(True)
    long = recipe.epochs * steps >= _WORTH_COMPILING
    step = Steps(pack, lambda text: print(text, file=sys.stderr), compiled=long)
    history = torch.stack([m.position.history for m in members], dim=1)
    for member in members:
        if member.alive:
            hooks.begin(member.run, member.position.epoch)
    clock = saved = time.monotonic()

    def save() -> None:
        nonlocal clock, saved
        pack.scatter()
        share = (time.monotonic() - clock) / len(members)
        for k, member in enumerate(members):
            member.position.history.copy_(history[:, k])
            if member.alive:
                member.record.keep_metrics()
                checkpoint.save(member.record.checkpoint, member.learner, member.position)
                member.record.add_time(share)
        clock = saved = time.monotonic()

    def orders(epoch: int) -> Tensor:  # of each seed once: models share them
        return torch.stack([seeds.order(seed, epoch, n) for seed in distinct])

    upcoming = orders(first.position.epoch)
    pack.compare(upcoming.to(device)[place][:, : sizes[0]])
    while first.position.epoch < recipe.epochs and any(m.alive for m in members):
        epoch = first.position.epoch
        batches = torch.split(upcoming.to(device)[place], sizes, dim=1)
        while first.position.step < steps:
            i = first.position.step
            step(batches[i], there[epoch * steps + i], history[i])
            for member in members:
                member.position.step = i + 1
            if i + 1 < steps and (hooks.stop() or time.monotonic() - saved >= hooks.save_seconds):
                if _all_well(pack, members, history[: i + 1]):
                    save()
                if hooks.stop():
                    raise Interrupted
        upcoming = orders(epoch + 1)  # while a GPU still has steps to do
        last_rates = rates[(epoch + 1) * steps - 1].tolist()
        _end_of_epoch(pack, members, history, last_rates, hooks, clock)
        last = first.position.epoch == recipe.epochs
        if last or hooks.stop() or time.monotonic() - saved >= hooks.save_seconds:
            save()
        if hooks.stop() and not last:
            raise Interrupted
    outcome = loop.Outcome("completed", recipe.epochs * steps)
    for member in members:
        if member.alive:
            training.finish(
                member.run, member.record, member.learner, member.data, outcome, 0.0, hooks
            )


def _all_well(pack: Pack, members: list[Member], history: Tensor) -> bool:
    """Whether no model that is still trained has gone bad since the last look."""
    alive = [k for k, member in enumerate(members) if member.alive]
    return bool(history[:, alive, 0].isfinite().all() & pack.theta[alive].isfinite().all())


def _end_of_epoch(
    pack: Pack,
    members: list[Member],
    history: Tensor,
    rates: list[float],
    hooks: training.Hooks,
    clock: float,
) -> None:
    """Look for divergence, then at the validation sets; write a line for each run."""
    steps = len(history)
    logits = pack.predict([m.data.val for m in members])
    targets = torch.stack([m.data.val.targets for m in members])
    scores = metrics.scores_side_by_side(logits, targets, pack.temperature.view(-1, 1, 1))
    found = metrics.summary(scores)
    sound, sees = pack.theta.isfinite().all(1), logits.isfinite().flatten(1).all(1)
    rest = torch.stack([x.to(history.dtype) for x in (sound, sees, *found.values())], dim=1)
    # All that is to be known of all models, read from the device at once.
    table = torch.cat([history.transpose(0, 1).flatten(1), rest], dim=1).cpu()
    seen = table[:, : -rest.shape[1]].view(len(members), *history.shape[::2])
    for k, member in enumerate(members):
        done = member.position.epoch * steps
        member.position.epoch, member.position.step = member.position.epoch + 1, 0
        if not member.alive:
            continue
        was_sound, saw, *values = table[k, -rest.shape[1] :].tolist()
        wrong = seen[k, :, 0].isfinite().logical_not().nonzero().flatten().tolist()
        if wrong or not was_sound or not saw:
            bad = min([*wrong, steps - 1])
            why = loop.BLIND if was_sound and not wrong else ""
            outcome = loop.diverged(seen[k, bad], done + bad + 1, why)
            share = (time.monotonic() - clock) / len(members)
            training.finish(
                member.run, member.record, member.learner, member.data, outcome, share, hooks
            )
            member.alive = False
            continue
        place = replace(member.position, history=seen[k])
        line = loop.line(place, rates[k], dict(zip(found, values, strict=True)))
        member.record.add_metrics(line)
        hooks.epoch(member.run, line)
