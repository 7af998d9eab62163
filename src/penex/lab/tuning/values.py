"""The values to compare losses with, and where each came from."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penex.lab.runs import LossSpec
from penex.lab.tasks import Task
from penex.lab.tuning import ATTRIBUTE, progress, study_name
from penex.lab.tuning.storage import JOURNAL, open_storage

_DIGITS = 3  # of a tuned value: the search knows it no better


@dataclass(frozen=True)
class Tuned:
    """A loss with its values.

    Attributes:
        loss: as on the command line.
        source: where the values came from, in words.
    """

    loss: str
    source: str


def tuned(task: Task, losses: tuple[str, ...], url: str | None, folder: Path) -> list[Tuned]:
    """Each loss with the best value that is known: of our study, the authors', or the default.

    Args:
        task: what is trained on what.
        losses: as on the command line; one with arguments keeps them.
        url: the storage of the studies; None for the journal in the folder.
        folder: of the task.
    """
    with contextlib.ExitStack() as stack:
        studies = _studies(url, folder, stack)
        return [_one(task, text, studies) for text in losses]


def _one(task: Task, text: str, studies: dict[str, Any]) -> Tuned:
    spec = LossSpec.parse(text)
    if spec.arguments:
        return Tuned(text, "as given")
    if not task.search.get(spec.name):
        return Tuned(text, "nothing to tune")
    study = studies.get(study_name(task.name, spec.name))
    if study is not None:
        return _of_study(spec.name, study)
    if spec.name in task.tuned:
        return _named(spec.name, dict(task.tuned[spec.name]), "the authors' value")
    return _named(spec.name, {}, "the default: no study and no value of the authors'")


def _studies(url: str | None, folder: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Every study of ours that has a result, by name."""
    if url is None and not (folder / JOURNAL).exists():
        return {}
    storage = stack.enter_context(contextlib.closing(open_storage(url, folder)))
    import optuna

    names = optuna.get_all_study_names(storage.optuna)
    loaded = [optuna.load_study(study_name=n, storage=storage.optuna) for n in names]
    return {
        study.study_name: study
        for study in loaded
        if ATTRIBUTE in study.user_attrs and progress(study, "", 0).completed
    }


def _of_study(loss: str, study: Any) -> Tuned:
    stand = progress(study, loss, 0)
    rounded = {name: float(f"{value:.{_DIGITS}g}") for name, value in stand.best.items()}
    size = study.user_attrs[ATTRIBUTE]["run"]["train_size"]
    return _named(
        loss,
        rounded,
        f"our study: best of {stand.finished} trials with {size} training examples, validation "
        f"cross-entropy {stand.value:.4f}",
    )


def _named(loss: str, values: dict[str, float], source: str) -> Tuned:
    return Tuned(str(LossSpec(loss, dict(values))), source)
