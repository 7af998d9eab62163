"""penex suspects and penex suggest: what the labels themselves are worth."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from penex.cli import given
from penex.cli.options import (
    AS_USUAL,
    NO_DATA,
    UNCHANGED,
    DataOptions,
    Kept,
    Output,
    OwnData,
    Recipe,
    hinted,
    words_of,
)
from penex.lab.ground.errors import LabError

if TYPE_CHECKING:
    from penex.lab.records.folds import HeldOut
    from penex.lab.tasks import Task

LOSS = "penex:alpha=-0.5"  # with gce ahead of ce on flipped digits: docs/noisy-labels.md

TaskOrPath = Annotated[str | None, tyro.conf.Positional, hinted("[TASK | PATH]")]


def suspects(
    task: TaskOrPath = None,
    /,
    loss: str = LOSS,
    folds: int = 5,
    seed: int = 0,
    top: int = 20,
    device: str = "auto",
    pack: str = "auto",
    own: OwnData = NO_DATA,
    recipe: Recipe = UNCHANGED,
    kept: Output = AS_USUAL,
) -> None:
    """List the examples whose labels look wrong, the most suspicious first.

    Every example is judged by a model that did not train on it: the data are cut into folds, and a
    model is trained without each. All examples are written to OUT/TASK/suspects.csv and, where they
    are images, the first ones to suspects.html. Folds that are trained are not trained again.

    Args:
        task: what to look at: digits unless given, another task by its name, or the path of your
            data. A test set that came apart is not looked at.
        loss: what the models minimise.
        folds: how many models; each is trained on the examples that are not in its fold.
        seed: decides the folds.
        top: how many examples to print and to draw.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        pack: how many models to train side by side as one: a number, off, or auto.
        own: data of your own, and what is done to data; --label-noise tries all of this on labels
            that are made wrong on purpose.
        recipe: how to train, where the task's own recipe is not what you want.
        kept: what is written where.
    """
    if top < 1:
        raise LabError(f"--top must be at least 1; got {top}.")
    name, own = _meant(task, own)
    chosen = own.task(name, kept.out)
    found = _held_out(chosen, loss, folds, seed, device, pack, own, recipe, kept)
    if found is None:
        return
    from penex.report import suspects as report

    folder = kept.out / chosen.name
    written = report.write(folder, chosen.name, found, top, given.command_line())
    print(report.text(found, top))
    print(f"In {folder}: {', '.join(path.name for path in written)}.")


def suggest(
    task: TaskOrPath = None,
    /,
    loss: str = LOSS,
    folds: int = 5,
    seed: int = 0,
    device: str = "auto",
    pack: str = "auto",
    own: OwnData = NO_DATA,
    recipe: Recipe = UNCHANGED,
    kept: Output = AS_USUAL,
) -> None:
    """Estimate how many labels are wrong, and say which loss to try first.

    The models are those of penex suspects: what one of the commands trained, the other finds there.

    Args:
        task: what to look at: digits unless given, another task by its name, or the path of your
            data. A test set that came apart is not looked at.
        loss: what the models minimise.
        folds: how many models; each is trained on the examples that are not in its fold.
        seed: decides the folds.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        pack: how many models to train side by side as one: a number, off, or auto.
        own: data of your own, and what is done to data.
        recipe: how to train, where the task's own recipe is not what you want.
        kept: what is written where.
    """
    name, own = _meant(task, own)
    chosen = own.task(name, kept.out)
    found = _held_out(chosen, loss, folds, seed, device, pack, own, recipe, kept)
    if found is not None:
        from penex.cli import suggestion

        words = [*([name] if name else []), *words_of(own), *words_of(recipe), *words_of(kept)]
        print(suggestion.text(found, words))


def _meant(task: str | None, own: DataOptions) -> tuple[str | None, DataOptions]:
    """A task by its name, or the user's data where a path is given in its place."""
    from penex.lab import tasks

    if task is None or task in tasks.NAMES or own.data is not None or not Path(task).exists():
        return task, own
    return None, replace(own, data=Path(task))


def _held_out(
    task: "Task",
    loss: str,
    folds: int,
    seed: int,
    device: str,
    pack: str,
    own: DataOptions,
    recipe: Recipe,
    kept: Kept,
) -> "HeldOut | None":
    """What models say of examples that they did not train on; None if another process has it."""
    from penex.cli import progress
    from penex.lab.training import folds as training
    from penex.lab.training.session import pack_size

    runs = training.planned(
        task,
        loss,
        folds=folds,
        seed=seed,
        changes=recipe.given(),
        treatment=own.treatment(task),
    )
    with kept.session(progress.watcher(len(runs)), device, runs) as session:
        return training.carry_out(runs, session.place, pack_size(pack))
