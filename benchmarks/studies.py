"""Studies for machines that have torch, numpy, Pillow and Optuna alone: `penex tune` in parts.

Run it with `python -m benchmarks.studies cifar10 --data FOLDER --minutes 9`; it stops in time, and
the same command goes on. `--slim results` keeps the journal, which has every trial's numbers, and
small records of each study's best and worst, after every batch. `penex tune` with the same options
and --out then builds the page.
"""

import argparse
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._main import positive, run
from penex.lab import environment, tasks, tuning
from penex.lab.errors import Interrupted
from penex.lab.records import Record
from penex.lab.runs import Run
from penex.lab.scores import slim
from penex.lab.training import Hooks
from penex.lab.tuning.plan import Tuning
from penex.lab.tuning.storage import JOURNAL, open_storage
from penex.lab.tuning.study import Progress, all_studies

LOSSES = ("label_smoothing", "confidence_penalty", "focal", "penex")


def main() -> None:
    """Carry out what fits into the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=tasks.NAMES)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--losses", nargs="*", default=LOSSES)
    parser.add_argument("--trials", type=positive, default=50)
    parser.add_argument("--batch", type=positive, default=10)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--train-size", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--slim", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--save-seconds", type=float, default=120.0)
    options = parser.parse_args()
    task = tasks.find(options.task)
    collection = task.collect() if options.data is None else task.collect(options.data)
    what = Tuning(
        replace(task, collect=lambda: collection),
        tuple(options.losses),
        options.trials,
        options.batch,
        train_size=options.train_size,
        changes={"epochs": options.epochs} if options.epochs else {},
    )
    end = time.monotonic() + 60 * options.minutes

    def done(run: Run, record: Record, reused: bool) -> None:
        print(run.loss, record.done()["status"], flush=True)

    storage = open_storage(None, options.out / task.name)

    def told(stand: list[Progress]) -> None:
        for one in stand:
            print(f"{one.loss}: {one.finished} of {one.wanted}, {one.best} {one.value:.4f}")
        print(f"{(end - time.monotonic()) / 60:.1f} minutes left", flush=True)
        if options.slim:
            keep(all_studies(storage, task.name), options.out, options.slim, task.name)

    try:
        tuning.tune(
            what,
            storage,
            options.out,
            environment.device_of(options.device),
            hooks=Hooks(stop=lambda: time.monotonic() > end, save_seconds=options.save_seconds),
            done=done,
            told=told,
        )
    except Interrupted:
        print("Stopped in time; the same command goes on.")


def keep(studies: dict[str, Any], out: Path, target: Path, task: str) -> None:
    """Copy the journal, and small records of each study's best and worst."""
    (target / task).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(out / task / JOURNAL, target / task / JOURNAL)
    for study in studies.values():
        trials = [t for t in study.get_trials(deepcopy=False) if t.value is not None]
        trials.sort(key=lambda trial: (trial.value, trial.number))
        for trial in {t.number: t for t in (*trials[:1], *trials[-1:])}.values():
            folder = trial.user_attrs["record"]
            if Record(out / folder).is_done:
                slim(Record(out / folder), target / folder, scores=False)


if __name__ == "__main__":
    run(main)
