"""How a pack of runs is trained, and what each run leaves: as if it had been alone."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from penex.lab import training
from penex.lab.engine import loop
from penex.lab.engine.together import Together
from penex.lab.records import Record
from penex.lab.tasks.runs import LossSpec, Run
from penex.lab.training.place import Place


def name_of(run: Run) -> str:
    """What a run is called in the list of its pack."""
    return "/".join(Record.of(Path(), run.config).folder.parts)


def train_members(runs: list[Run], names: list[str], place: Place) -> None:
    """Train a pack's runs that are not done, the seats of the others being kept."""
    hooks = place.hooks
    with ExitStack() as stack:
        stack.enter_context(training.settings(runs[0].recipe, place.device))
        members: dict[str, tuple[Run, loop.Seat]] = {}
        for run in runs:
            record = place.record(run)
            stack.enter_context(record.locked())
            if record.is_done:  # another process finished it before we had its lock
                record.verify()
            else:
                members[name_of(run)] = run, training.seated(run, record, place)
        for run, _ in members.values():
            place.record(run).join(names)
        steps = sorted({_reached(seat) for _, seat in members.values()})
        for step in steps:  # runs of a broken pack that stopped at different ones
            some = {n: member for n, member in members.items() if _reached(member[1]) == step}
            one, like = next(iter(some.values()))
            seats = [
                some[n][1] if n in some else _stand_in(_run_of(place.out / n, one), like, place)
                for n in names
            ]
            crew = Together(seats)
            for run, seat in some.values():
                hooks.begin(run, seat.position.epoch)
            loop.fit(crew, stop=hooks.stop, save_seconds=hooks.save_seconds)


def _reached(seat: loop.Seat) -> tuple[int, int]:
    return seat.position.epoch, seat.position.step


def _run_of(folder: Path, like: Run) -> Run:
    """The run of a folder, which differs from its pack's others in loss, seed and rate alone."""
    record = Record(folder)
    if not record.has("config.json"):  # someone removed it
        return like
    config = record.config()
    return replace(
        like,
        loss=LossSpec(config["loss"]["name"], config["loss"]["arguments"]),
        recipe=replace(like.recipe, lr=config["recipe"]["lr"]),
        seed=config["seed"],
    )


def _stand_in(run: Run, like: loop.Seat, place: Place) -> loop.Seat:
    """Someone who keeps a run's place in the pack, and leaves nothing.

    With the run's own loss and seed: losses of one kind are computed together, and with another
    number or mixture of them the last bits of the others would differ.
    """
    data = place.data(run)
    learner = training.learner_of(run, data, place.device)
    learner.theta.copy_(like.learner.theta)
    learner.count.copy_(like.learner.count)
    position = replace(like.position, history=like.position.history.clone())
    return loop.Seat(learner, data, run.seed, position, like.witness, alive=False)
