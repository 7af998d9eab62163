"""Every example judged by a model that did not see it: the same recipe, trained once a fold."""

from collections.abc import Sequence
from typing import Any

from penex.lab.ground import ranks
from penex.lab.records.folds import HeldOut, held_out
from penex.lab.tasks import Task, folded
from penex.lab.tasks.runs import Contender, Run, Treatment, plan
from penex.lab.training import check_data, packing
from penex.lab.training.place import Place


def planned(
    task: Task,
    loss: str,
    *,
    folds: int = 5,
    seed: int = 0,
    changes: dict[str, Any] | None = None,
    treatment: Treatment | None = None,
) -> list[Run]:
    """The runs of all folds of a task.

    Args:
        task: what is trained on what.
        loss: as on the command line.
        folds: how many.
        seed: decides the folds, and the labels that are made wrong on purpose.
        changes: what is changed in the task's recipe.
        treatment: what is done to the data.
    """
    task, one = folded(task, folds), Contender.parse(loss)
    first = seed * folds
    return [plan(task, one, first + k, None, changes, treatment) for k in range(folds)]


def carry_out(runs: Sequence[Run], place: Place, pack: int | None = None) -> HeldOut | None:
    """Train the folds, or what is left of them; what their models said of all examples.

    Of several processes the one that writes records has it, and the others None.

    Args:
        runs: of all folds of a task.
        place: where.
        pack: how many models to train at once; None for what pays on the device.
    """
    check_data(runs, place)
    packing.train(list(runs), place, packing.size_for(place, pack, runs[0]))
    if ranks.rank() != 0:
        return None
    folds, records = [place.data(run) for run in runs], [place.record(run) for run in runs]
    return held_out(folds, records, runs[0].task.collect())
