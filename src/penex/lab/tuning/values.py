"""The values to compare losses with, and where each came from."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penex.lab.records import Json, archived
from penex.lab.tasks import Task
from penex.lab.tasks.runs import Contender, Run
from penex.lab.tuning.search import contender
from penex.lab.tuning.storage import JOURNAL, open_storage
from penex.lab.tuning.study import ATTRIBUTE, all_studies, progress, shown

_DIGITS = 3  # of a tuned value: the search knows it no better


@dataclass(frozen=True)
class Tuned:
    """A loss with its values.

    Attributes:
        loss: as on the command line.
        source: where the values came from, in words.
        from_study: whether that is one of our studies.
    """

    loss: str
    source: str
    from_study: bool = False


def tuned(
    task: Task,
    losses: tuple[str, ...],
    like: Sequence[Run],
    url: str | None,
    folder: Path,
    authors: Mapping[str, Mapping[str, float]] = {},
) -> list[Tuned]:
    """Each loss with the best value that is known: of our study, the authors', or the default.

    Args:
        task: what is trained on what.
        losses: as on the command line; one with arguments keeps them.
        like: runs of the comparison, one for each training size; a study of other data is none.
        url: the storage of the studies; None for the journal in the folder.
        folder: of the task.
        authors: the values of those who published the task, by loss; empty if there are none.
    """
    with contextlib.ExitStack() as stack:
        studies: dict[str, Any] = {}
        if url is not None or archived.exists(folder / JOURNAL):
            storage = open_storage(url, folder, existing=True)
            stack.enter_context(contextlib.closing(storage))
            studies = all_studies(storage, task.name)
        configs = [run.config for run in like]
        return [_one(task, text, configs, studies, authors) for text in losses]


def _one(
    task: Task,
    text: str,
    configs: list[Json],
    studies: dict[str, Any],
    authors: Mapping[str, Mapping[str, float]],
) -> Tuned:
    one = Contender.parse(text)
    spec = one.loss
    study, why = studies.get(text), "no study"
    if one.changes or (spec.arguments and study is None):
        return Tuned(text, "as given")
    if study is None and not task.search.get(spec.name):
        return Tuned(text, "nothing to tune")
    if study is not None and study.user_attrs[ATTRIBUTE]["run"]["data"] != configs[0]["data"]:
        study, why = None, "the study is of other data"
    if study is not None and not progress(study, "", 0).completed:
        study, why = None, "the study has no result"
    if study is not None:
        return _of_study(text, study, configs)
    if spec.name in authors:
        return _named(spec.name, dict(authors[spec.name]), f"the authors' value ({why})")
    return _named(spec.name, {}, f"the default ({why}, and no value of the authors')")


def _of_study(loss: str, study: Any, configs: list[Json]) -> Tuned:
    stand = progress(study, loss, 0)
    rounded = {name: float(f"{value:.{_DIGITS}g}") for name, value in stand.best.items()}
    source = (
        f"our study: best of {stand.finished} trial{'s' * (stand.finished != 1)}, validation "
        f"cross-entropy {stand.value:.4f}"
    )
    known = study.user_attrs[ATTRIBUTE]["run"]
    others = dict.fromkeys(text for config in configs for text in _differences(known, config))
    if others:
        source += f"; it was made with {', '.join(others)}"
    return replace(_named(loss, rounded, source), from_study=True)


def _differences(known: Json, ours: Json) -> list[str]:
    """In what a study's runs were other ones, as "epochs 60"."""
    found = []
    for key, value in known.items():
        if isinstance(value, dict) and isinstance(ours.get(key), dict):
            found += _differences(value, ours[key])
        elif value != ours.get(key):
            found.append(f"{key} {shown(value)}")
    return found


def _named(loss: str, values: dict[str, float], source: str) -> Tuned:
    return Tuned(str(contender(loss, values)), source)
