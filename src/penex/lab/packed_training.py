"""How a pack of runs is trained, and what each run leaves: as if it had been alone."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from penex.lab import training
from penex.lab.engine import loop
from penex.lab.engine.together import Together
from penex.lab.records import Record
from penex.lab.runs import Run


def name_of(run: Run) -> str:
    """What a run is called in the list of its pack."""
    return "/".join(Record.of(Path(), run.config).folder.parts)


def train_members(
    runs: list[Run], names: list[str], out: Path, device: torch.device, hooks: training.Hooks
) -> None:
    """Train a pack's runs that are not done, the places of the others being kept."""
    with ExitStack() as stack:
        stack.enter_context(training.settings(runs[0].recipe, device))
        members: dict[str, tuple[Run, loop.Seat]] = {}
        for run in runs:
            record = Record.of(out, run.config)
            stack.enter_context(record.locked())
            if record.is_done:  # another process finished it before we had its lock
                record.verify()
            else:
                members[name_of(run)] = run, training.seated(run, record, device, hooks)
        for run, _ in members.values():
            Record.of(out, run.config).join(names)
        places = sorted({_place(seat) for _, seat in members.values()})
        for place in places:  # runs of a broken pack that stopped at different steps
            some = {n: member for n, member in members.items() if _place(member[1]) == place}
            one = next(iter(some.values()))
            seats = [some[n][1] if n in some else _stand_in(*one, device) for n in names]
            crew = Together(seats)
            for run, seat in some.values():
                hooks.begin(run, seat.position.epoch)
            loop.fit(crew, stop=hooks.stop, save_seconds=hooks.save_seconds)


def _place(seat: loop.Seat) -> tuple[int, int]:
    return seat.position.epoch, seat.position.step


def _stand_in(run: Run, seat: loop.Seat, device: torch.device) -> loop.Seat:
    """Someone who keeps a place in the pack, and leaves nothing."""
    learner = training.learner_of(run, seat.data, device)
    learner.theta.copy_(seat.learner.theta)
    learner.count.copy_(seat.learner.count)
    position = replace(seat.position, history=seat.position.history.clone())
    return replace(seat, learner=learner, position=position, alive=False)
