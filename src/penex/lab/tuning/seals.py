"""Studies that are as they were told: a storage is a file that anyone may have changed.

Optuna keeps no checksum of what it is told. Ours is an attribute of each trial, and one of the
study; what an earlier version told has none, but must have the form that is read.
"""

from collections.abc import Iterable
from typing import Any

from penex.lab.ground.errors import LabError
from penex.lab.records import ATTRIBUTE, OBJECTIVE
from penex.lab.records.identity import Json
from penex.lab.records.reading import is_number
from penex.lab.records.sealing import is_as_sealed, seal
from penex.lab.tuning import search

_SEAL = "seal"
_READ = {"accuracy", OBJECTIVE}  # of the validation set, in sentences and pictures


def seal_trial(trial: Any, state: str, value: float | None) -> None:
    """Seal a trial with what it is about to be told, its attributes being complete."""
    trial.set_user_attr(
        _SEAL, seal(_content(trial.number, state, value, trial.params, trial.user_attrs))
    )


def identity_of(study: Any) -> Json | None:
    """What a study says of itself: None if it is none of ours, a LabError if it was changed."""
    known = study.user_attrs.get(ATTRIBUTE)
    if not isinstance(known, dict):
        return None
    if known.get("format") == search.FORMAT and not (is_as_sealed(known) and _is_identity(known)):
        raise _damaged(study, "what it says of itself")
    return {key: value for key, value in known.items() if key != _SEAL}


def check(study: Any, search: Iterable[str]) -> None:
    """A LabError if a study of ours, or one of its trials, is not as it was told.

    Args:
        study: Optuna's.
        search: the names of what is tuned.
    """
    from optuna.study import StudyDirection

    if study.directions != [StudyDirection.MINIMIZE]:
        raise _damaged(study, "its direction")
    for trial in study.get_trials(deepcopy=False):
        if not trial.state.is_finished():
            continue
        state, value = trial.state.name, trial.values[0] if trial.values else None
        content = _content(trial.number, state, value, trial.params, trial.user_attrs)
        sealed = trial.user_attrs.get(_SEAL)
        whole = _is_told(content) and trial.params.keys() == set(search)
        if not whole or sealed not in (None, seal(content)):
            raise _damaged(study, f"its trial {trial.number}")


def _content(number: int, state: str, value: float | None, params: Json, attributes: Json) -> Json:
    rest = {key: item for key, item in attributes.items() if key != _SEAL}
    return {"number": number, "state": state, "value": value, "params": params, "told": rest}


def _is_told(content: Json) -> bool:
    """Whether a trial that is over has what is read of it."""
    told = content["told"]
    tables = [told.get(part, {}) for part in ("validation", "test")]
    return (
        all(isinstance(told.get(word, ""), str) for word in ("record", "reason"))
        and all(isinstance(t, dict) and all(map(is_number, t.values())) for t in tables)
        and is_number(content["value"])
        and (content["state"] == "COMPLETE") == (content["value"] is not None)
        and (content["state"] != "COMPLETE" or told.get("validation", {}).keys() >= _READ)
    )


def _is_identity(known: Json) -> bool:
    search, run = known.get("search"), known.get("run")
    return (
        isinstance(search, dict)
        and all(
            isinstance(edges, list) and len(edges) == 2 and all(map(is_number, edges))
            for edges in search.values()
        )
        and isinstance(run, dict)
        and isinstance(run.get("recipe"), dict)
        and all(type(n) is int for n in (run["recipe"].get("epochs"), run.get("train_size")))
        and isinstance(run.get("data"), dict)
        and {"loss", "seed", "batch"} <= known.keys()
    )


def _damaged(study: Any, what: str) -> LabError:
    return LabError(
        f"The study {study.study_name!r} is damaged: {what} is not as it was written. Nothing was "
        "changed; move its storage away to tune anew."
    )
