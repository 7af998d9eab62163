"""penex suspects and penex suggest: what the labels themselves are worth."""

from dataclasses import dataclass, replace
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

TaskOrPath = Annotated[str | None, tyro.conf.Positional, hinted("[TASK | PATH]")]


@dataclass(frozen=True)
class Folding:
    """How every example comes to be judged by a model that did not train on it.

    Attributes:
        loss: what the models minimise.
        folds: how many models; each is trained on the examples that are not in its fold.
        seed: decides the folds.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        pack: how many models to train side by side as one: a number, off, or auto.
    """

    loss: str = "gce"  # the best on digits: docs/noisy-labels.md
    folds: int = 5
    seed: int = 0
    device: str = "auto"
    pack: str = "auto"


Folded = Annotated[Folding, tyro.conf.arg(name="folds")]
FIVE_FOLDS = Folding()


def suspects(
    task: TaskOrPath = None,
    /,
    top: int = 20,
    how: Folded = FIVE_FOLDS,
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
        top: how many examples to print and to draw.
        how: the models that judge.
        own: data of your own, and what is done to data; --label-noise tries all of this on labels
            that are made wrong on purpose.
        recipe: how to train, where the task's own recipe is not what you want.
        kept: what is written where.
    """
    if top < 1:
        raise LabError(f"--top must be at least 1; got {top}.")
    name, own = _meant(task, own)
    chosen = own.task(name, kept.out, how.device)
    found = _held_out(chosen, how, own, recipe, kept)
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
    how: Folded = FIVE_FOLDS,
    own: OwnData = NO_DATA,
    recipe: Recipe = UNCHANGED,
    kept: Output = AS_USUAL,
) -> None:
    """Estimate how many labels are wrong, and say which loss to try first.

    The models are those of penex suspects: what one of the commands trained, the other finds there.

    Args:
        task: as for penex suspects: digits unless given, another task, or the path of your data.
        how: the models that judge.
        own: data of your own, and what is done to data.
        recipe: how to train, where the task's own recipe is not what you want.
        kept: what is written where.
    """
    name, own = _meant(task, own)
    chosen = own.task(name, kept.out, how.device)
    found = _held_out(chosen, how, own, recipe, kept)
    if found is not None:
        from penex.cli import suggestion

        words = [*([name] if name else []), *words_of(own), *words_of(recipe), *words_of(kept)]
        print(suggestion.text(found, words, frozen=chosen.frozen))


def _meant(task: str | None, own: DataOptions) -> tuple[str | None, DataOptions]:
    """A task by its name, or the user's data where a path is given in its place."""
    from penex.lab import tasks

    if task is None or task in tasks.NAMES or own.data is not None or not Path(task).exists():
        return task, own
    return None, replace(own, data=Path(task))


def _held_out(
    task: "Task", how: Folding, own: DataOptions, recipe: Recipe, kept: Kept
) -> "HeldOut | None":
    """What models say of examples that they did not train on; None if another process has it."""
    from penex.cli import progress
    from penex.lab.training import folds as training
    from penex.lab.training.session import pack_size

    runs = training.planned(
        task,
        how.loss,
        folds=how.folds,
        seed=how.seed,
        changes=recipe.given(),
        treatment=own.treatment(task),
    )
    with kept.session(progress.watcher(len(runs)), how.device, runs) as session:
        return training.carry_out(runs, session.place, pack_size(how.pack))
