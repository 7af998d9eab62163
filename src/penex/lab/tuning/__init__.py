"""Tuning: the paper's protocol, in batches that give the same study whenever they are repeated.

A study asks for a batch of trials, trains them as one pack, and tells their results: so 50 trials
cost little more than 5. Every suggestion is a function of the study's seed, the trial's number and
the trials told before its batch, and nothing else; a study that was killed goes on as if it had
not been.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from penex import registry
from penex.lab import packing, runs, training
from penex.lab.engine import seeds
from penex.lab.errors import LabError
from penex.lab.records import Json, Record, config_hash
from penex.lab.tasks import Task
from penex.lab.tuning.storage import Storage, alone

FORMAT = 1
OBJECTIVE = "cross_entropy"
ATTRIBUTE = "penex"

_MOST_TRIALS = 100_000


@dataclass(frozen=True)
class Tuning:
    """What is tuned, and how.

    Attributes:
        task: what is trained on what.
        losses: their names.
        trials: how many for each loss.
        batch: how many of them are suggested, trained and told together.
        seed: of the suggestions; the runs themselves have seed 0.
        train_size: the number of training examples; None for the task's own.
        changes: what is changed in the task's recipe.
        treatment: what is done to the data.
    """

    task: Task
    losses: tuple[str, ...]
    trials: int = 50
    batch: int = 10
    seed: int = 0
    train_size: int | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    treatment: runs.Treatment = field(default_factory=runs.Treatment)

    def __post_init__(self) -> None:
        if not 1 <= self.trials <= _MOST_TRIALS:
            raise LabError(f"A study needs from 1 to {_MOST_TRIALS:,} trials; got {self.trials}.")
        if not 1 <= self.batch <= _MOST_TRIALS:
            raise LabError(f"A batch has from 1 to {_MOST_TRIALS:,} trials; got {self.batch}.")
        if not self.losses:
            raise LabError("There is no loss to tune.")
        for name in self.losses:
            runs.LossSpec(name).check()
            if not self.space(name):
                known = ", ".join(n for n in registry.LOSSES if self.task.search.get(n))
                raise LabError(f"The loss {name} has no parameter to tune; these have: {known}.")
        if len(set(self.losses)) < len(self.losses):
            raise LabError("A loss is there twice: name each once.")

    def space(self, loss: str) -> tuple[registry.Parameter, ...]:
        """What is tuned for a loss, and between which edges."""
        return tuple(self.task.search.get(loss, ()))

    def run(self, loss: str, values: dict[str, float]) -> runs.Run:
        """The run of a trial."""
        spec = runs.LossSpec(loss, dict(values))
        return runs.plan(self.task, spec, 0, self.train_size, self.changes, self.treatment)

    def identity(self, loss: str) -> Json:
        """What makes two studies the same one, besides their number of trials."""
        config = self.run(loss, {}).config
        return {
            "format": FORMAT,
            "task": config["task"],
            "loss": loss,
            "search": {p.name: [p.low, p.high] for p in self.space(loss)},
            "seed": self.seed,
            "batch": self.batch,
            "run": {k: v for k, v in config.items() if k not in ("task", "loss", "seed")},
        }


def study_name(task: str, loss: str) -> str:
    """The name of a study in its storage.

    >>> study_name("digits", "penex")
    'digits penex'
    """
    return f"{task} {loss}"


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


Told = Callable[[list[Progress]], None]


def tune(
    tuning: Tuning,
    storage: Storage,
    out: Path,
    device: torch.device,
    *,
    hooks: training.Hooks | None = None,
    done: Callable[[runs.Run, Record, bool], None] = lambda run, record, reused: None,
    told: Told = lambda progress: None,
    pack: int | None = None,
) -> dict[str, Any]:
    """Carry out studies, or what is left of them; Optuna's studies by loss.

    Args:
        tuning: what is tuned, and how.
        storage: where the studies are.
        out: the folder of all tasks.
        device: where to train.
        hooks: who watches the runs.
        done: (run, record, whether it was there already) after each run.
        told: gets the progress of all studies before each batch, and at the end.
        pack: how many models to train at once; None for what pays on the device.
    """
    hooks = hooks or training.Hooks()
    names = [study_name(tuning.task.name, loss) for loss in tuning.losses]
    with alone(storage, names):
        most = 1
        if _is_unfinished(tuning, storage):  # before a fault of the data leaves a study behind
            first = tuning.run(tuning.losses[0], {})
            training.data_of(first, device)
            most = packing.size_for(device, pack, first)
        studies = {loss: _open(tuning, loss, storage) for loss in tuning.losses}
        while True:
            batches = {loss: list(_batch(tuning, study, loss)) for loss, study in studies.items()}
            told([progress(study, loss, tuning.trials) for loss, study in studies.items()])
            if not any(batches.values()):
                return studies
            planned = {
                (loss, trial.number): tuning.run(loss, trial.params)
                for loss, trials in batches.items()
                for trial in trials
            }
            _train(list(planned.values()), out, device, hooks, done, most)
            for (loss, number), run in planned.items():
                _tell(studies[loss], number, Record.of(out, run.config), out)


def _train(
    planned: list[runs.Run],
    out: Path,
    device: torch.device,
    hooks: training.Hooks,
    done: Callable[[runs.Run, Record, bool], None],
    most: int,
) -> None:
    """Train each run once, though two trials may be the same one."""
    distinct = list({str(Record.of(out, run.config).folder): run for run in planned}.values())
    if most > 1:
        packing.train(distinct, out, device, hooks, done, most)
        return
    for run in distinct:
        reused = Record.of(out, run.config).is_done
        done(run, training.train(run, out, device, hooks), reused)


def _is_unfinished(tuning: Tuning, storage: Storage) -> bool:
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
        study = optuna.load_study(study_name=name, storage=storage.optuna)
        known = study.user_attrs.get(ATTRIBUTE)
        if (
            isinstance(known, dict)
            and known.get("format") == FORMAT
            and name == study_name(task, str(known.get("loss")))
        ):
            found[str(known["loss"])] = study
    return found


def _open(tuning: Tuning, loss: str, storage: Storage) -> Any:
    """The study of a loss: the one that is there if it is the same, or a new one."""
    import optuna

    name = study_name(tuning.task.name, loss)
    if name in optuna.get_all_study_names(storage.optuna):
        study = optuna.load_study(study_name=name, storage=storage.optuna)
    else:
        study = optuna.create_study(study_name=name, storage=storage.optuna)  # to be minimised
    ours, known = tuning.identity(loss), study.user_attrs.get(ATTRIBUTE)
    if not study.get_trials(deepcopy=False):  # new, or nothing was asked for yet
        study.set_user_attr(ATTRIBUTE, ours)
    elif not isinstance(known, dict):
        raise LabError(
            f"The study {name!r} in {storage.shown} was not made by penex tune. It is left as it "
            "is: choose another --storage or --out."
        )
    elif known != ours:
        raise LabError(
            f"The study {name!r} in {storage.shown} is another one: {_difference(known, ours)}. It "
            "is left as it is: ask for the same, or choose another --storage or --out."
        )
    return study


def _difference(known: Json, ours: Json, path: str = "") -> str:
    """The first thing in which two identities differ, in words."""
    for key in dict.fromkeys([*known, *ours]):
        a, b = known.get(key), ours.get(key)
        if a != b:
            if isinstance(a, dict) and isinstance(b, dict):
                return _difference(a, b, f"{path}{key}.")
            return f"its {path}{key} is {a}, not {b}"
    return "nothing"


def _batch(tuning: Tuning, study: Any, loss: str) -> Iterator[Any]:
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
            study.sampler = _sampler(tuning.seed, number, parameter.name)
            trial.suggest_float(parameter.name, parameter.low, parameter.high)
        yield trial


def _sampler(seed: int, number: int, parameter: str) -> Any:
    """A sampler for one number: TPE with the library's defaults and a seed of its own.

    A sampler has a generator that no storage keeps. One for each number needs none to be kept.
    """
    from optuna.samplers import TPESampler

    return TPESampler(seed=seeds.derive(seed, f"trial {number} {parameter}") % 2**32)


def _tell(study: Any, number: int, record: Record, out: Path) -> None:
    """Give the study the result of a trial; a run that diverged has none, and says why."""
    from optuna.trial import Trial, TrialState

    trial = Trial(study, study.get_trials(deepcopy=False)[number]._trial_id)
    done = record.done()
    trial.set_user_attr("record", str(record.folder.relative_to(out)))
    value = done.get("validation", {}).get(OBJECTIVE)
    reason = done["reason"] if done["status"] == "diverged" else ""
    if not reason and value is None:
        reason = "the cross-entropy of the validation set was not finite"
    if reason:
        trial.set_user_attr("reason", reason)
        study.tell(number, state=TrialState.FAIL)
        return
    trial.set_user_attr("validation", done["validation"])
    trial.set_user_attr("test", done["test"])
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


def fingerprint(study: Any) -> str:
    """A few digits that stand for the values and results of a study."""
    content = [
        {"number": t.number, "params": t.params, "state": t.state.name, "values": t.values}
        for t in study.get_trials(deepcopy=False)
    ]
    return config_hash({"trials": content})
