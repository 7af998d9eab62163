"""A study of Optuna's, as we keep it: opened, asked, told, and read."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penex.lab.engine import seeds
from penex.lab.ground.errors import LabError
from penex.lab.records import ATTRIBUTE as ATTRIBUTE
from penex.lab.records import OBJECTIVE, Record
from penex.lab.records.identity import Json
from penex.lab.records.sealing import sealed
from penex.lab.records.views import View
from penex.lab.tuning import seals, search
from penex.lab.tuning.storage import Storage


@dataclass
class Progress:
    """How a study stands.

    Attributes:
        loss: what is tuned.
        wanted: trials.
        completed: trials with a value.
        failed: trials that diverged.
        running: trials of the batch that is trained now.
        best: the parameters of the best trial so far.
        value: its objective.
    """

    loss: str
    wanted: int
    completed: int = 0
    failed: int = 0
    running: int = 0
    best: dict[str, float] = field(default_factory=dict)
    value: float = math.nan

    @property
    def finished(self) -> int:
        """Trials that are over."""
        return self.completed + self.failed


def is_unfinished(tuning: search.Tuning, storage: Storage) -> bool:
    """Whether there is something to train."""
    found = all_studies(storage, tuning.task.name)
    return any(
        loss not in found or progress(found[loss], loss, 0).finished < tuning.trials
        for loss in tuning.losses
    )


def all_studies(storage: Storage, task: str) -> dict[str, Any]:
    """Every study of ours of a task, by its loss."""
    import optuna

    found = {}
    for name in optuna.get_all_study_names(storage.optuna):
        if not isinstance(name, str):
            raise LabError(
                f"{storage.shown} is damaged: a study in it has no name. Nothing was changed; move "
                "it away to tune anew."
            )
        study = optuna.load_study(study_name=name, storage=storage.optuna)
        known = seals.identity_of(study)
        if (
            known is not None
            and known.get("format") == search.FORMAT
            and name == search.study_name(task, str(known["loss"]))
        ):
            seals.check(study, known["search"])
            found[str(known["loss"])] = study
    return found


def open_study(tuning: search.Tuning, loss: str, storage: Storage) -> Any:
    """The study of a loss: the one that is there if it is the same, or a new one."""
    import optuna

    name = search.study_name(tuning.task.name, loss)
    if name in optuna.get_all_study_names(storage.optuna):
        study = optuna.load_study(study_name=name, storage=storage.optuna)
    else:
        study = optuna.create_study(study_name=name, storage=storage.optuna)  # to be minimised
    ours = tuning.identity(loss)
    if not study.get_trials(deepcopy=False):  # new, or nothing was asked for yet
        study.set_user_attr(ATTRIBUTE, sealed(ours))
        return study
    known = seals.identity_of(study)
    if known is None:
        raise LabError(
            f"The study {name!r} in {storage.shown} was not made by penex tune. It is left as it "
            "is: choose another --storage or --out."
        )
    if (known := {"sampler": search.FIRST_SAMPLER, **known}) != ours:
        raise LabError(
            f"The study {name!r} in {storage.shown} is another one: {_difference(known, ours)}. It "
            "is left as it is: ask for the same, or choose another --storage or --out."
        )
    seals.check(study, ours["search"])
    return study


def _difference(known: Json, ours: Json, path: str = "") -> str:
    """The first thing in which two identities differ, in words."""
    for key in dict.fromkeys([*known, *ours]):
        a, b = known.get(key), ours.get(key)
        if a != b:
            if isinstance(a, dict) and isinstance(b, dict):
                return _difference(a, b, f"{path}{key}.")
            return f"its {path}{key} is {shown(a)}, not {shown(b)}"
    return "nothing"


def shown(value: object) -> str:
    """A part of an identity, in words.

    >>> shown({"kind": "flip", "rate": 0.1}), shown(None), shown(64)
    ('flip, 0.1', 'none', '64')
    """
    if isinstance(value, dict):
        return ", ".join(map(shown, value.values()))
    return "none" if value is None else str(value)


def next_batch(tuning: search.Tuning, study: Any, loss: str) -> Iterator[Any]:
    """The trials to train now, each with its parameters: what is left of the batch.

    A batch is the trials from a multiple of its size to the next one. Those that a killed process
    left behind are taken up again; what was suggested stays.
    """
    from optuna.trial import Trial

    trials = study.get_trials(deepcopy=False)
    open_ = [t.number for t in trials if not t.state.is_finished()]
    first = min(open_, default=len(trials))
    start = first // tuning.batch * tuning.batch
    for number in range(start, min(start + tuning.batch, tuning.trials)):
        if number < len(trials):
            if trials[number].state.is_finished():
                continue
            trial = Trial(study, trials[number]._trial_id)
        else:
            trial = study.ask()
            if trial.number != number:
                raise LabError(
                    f"Someone else writes to the study {study.study_name!r}: trial {trial.number} "
                    f"came instead of {number}. Nothing is lost; give the command again."
                )
        for parameter in tuning.space(loss):
            study.sampler = sampler(tuning.seed, number, parameter.name)
            trial.suggest_float(parameter.name, parameter.low, parameter.high, log=parameter.log)
        yield trial


def sampler(seed: int, number: int, parameter: str) -> Any:
    """A sampler for one number: TPE with the library's defaults and a seed of its own.

    A sampler has a generator that no storage keeps. One for each number needs none to be kept.
    """
    from optuna.samplers import TPESampler

    return TPESampler(seed=seeds.derive(seed, f"trial {number} {parameter}") % 2**32)


def tell(study: Any, number: int, record: Record, out: Path, view: View) -> None:
    """Give the study the result of a trial; a run that diverged has none, and says why."""
    from optuna.trial import Trial, TrialState

    trial = Trial(study, study.get_trials(deepcopy=False)[number]._trial_id)
    done = view.of(record.done())
    trial.set_user_attr("record", str(record.folder.relative_to(out)))
    value = done.get("validation", {}).get(OBJECTIVE)
    reason = done["reason"] if done["status"] == "diverged" else ""
    if not reason and value is None:
        reason = "the cross-entropy of the validation set was not finite"
    if reason:
        trial.set_user_attr("reason", reason)
        seals.seal_trial(trial, TrialState.FAIL.name, None)
        study.tell(number, state=TrialState.FAIL)
        return
    trial.set_user_attr("validation", done["validation"])
    trial.set_user_attr("test", done["test"])
    seals.seal_trial(trial, TrialState.COMPLETE.name, value)
    study.tell(number, value)


def progress(study: Any, loss: str, wanted: int) -> Progress:
    """How a study stands."""
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False)
    completed = [t for t in trials if t.state == TrialState.COMPLETE]
    found = Progress(
        loss,
        wanted,
        completed=len(completed),
        failed=sum(t.state == TrialState.FAIL for t in trials),
        running=sum(not t.state.is_finished() for t in trials),
    )
    if completed:
        best = min(completed, key=lambda t: (t.value, t.number))
        found.best, found.value = dict(best.params), best.value
    return found
