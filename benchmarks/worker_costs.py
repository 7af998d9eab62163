"""What a pack brings to the database: python -m benchmarks.worker_costs [--storage URL].

The size of a run's parcel, of networks and outputs as a run leaves them; and, on a server, how long
Optuna takes to ask for a pack of trials and to be told it, by the number of trials there are.
"""

import argparse
import io
import json
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from benchmarks._main import run
from penex.lab import tasks
from penex.lab.ground import environment
from penex.lab.records import ATTRIBUTE, archived
from penex.lab.records.sealing import sealed
from penex.lab.tuning import seals, study
from penex.lab.tuning.search import Tuning
from penex.lab.tuning.storage import Storage, open_storage, within

PACK = 10
TRIALS = (0, 100, 1000)

# The shape of an input, and how many examples are judged at the end: validation's and the test's.
_SHAPES = {"digits": ((1, 8, 8), (197, 700)), "cifar10": ((3, 32, 32), (5_000, 10_000))}
_CLASSES = 10
_NUMBERS = {"accuracy": 0.9, "cross_entropy": 0.4, "brier": 0.1, "ece": 0.05, "ece_per_batch": 0.1}


def parcel_size(name: str) -> int:
    """The bytes of a run's parcel, with a best epoch that was not the last."""
    task = tasks.find(name)
    shape, judged = _SHAPES[name]
    torch.manual_seed(0)
    network = save(task.build(shape, _CLASSES).state_dict())
    chance = np.random.default_rng(0)
    outputs = io.BytesIO()
    logits = [chance.normal(size=(n, _CLASSES)).astype(np.float32) for n in judged]
    np.savez_compressed(outputs, *logits)
    line = {"epoch": 1, "loss": 0.1, "lr": 0.1, "validation": _NUMBERS, "train": _NUMBERS}
    lines = [
        json.dumps({**line, "loss": chance.normal(), "validation": _drawn(chance)})
        for _ in range(task.recipe.epochs)
    ]
    parcel = io.BytesIO()
    archived.write(
        {
            "model.safetensors": network,
            "best/model.safetensors": network,
            "predictions.npz": outputs.getvalue(),
            "metrics.jsonl": "\n".join(lines).encode(),
        },
        parcel,
    )
    return len(parcel.getvalue())


def _drawn(chance: np.random.Generator) -> dict[str, float]:
    return {name: float(chance.random()) for name in _NUMBERS}


def optuna_seconds(storage: Storage, trials: int) -> dict[str, float]:
    """How long a pack of a study that has so many trials is asked for, and told."""
    import optuna

    tuning = Tuning(tasks.find("digits"), ("penex",), trials=trials + PACK, batch=PACK, seed=trials)
    name = f"digits penex {trials}"
    with within(storage) as (inside, _):
        one = optuna.create_study(study_name=name, storage=inside.optuna)
        one.set_user_attr(ATTRIBUTE, sealed(tuning.identity("penex")))
        one.add_trials([_finished(tuning, number) for number in range(trials)])
    began = time.perf_counter()
    with within(storage) as (inside, _):
        one = optuna.load_study(study_name=name, storage=inside.optuna)
        seals.check(one, tuning.identity("penex")["search"])
        numbers = [trial.number for trial in study.next_batch(tuning, one, "penex")]
    asked = time.perf_counter()
    done = {"status": "completed", "reason": "", "validation": _NUMBERS, "test": _NUMBERS}
    record: Any = SimpleNamespace(folder=Path("digits"), done=lambda: done)
    with within(storage) as (inside, _):
        one = optuna.load_study(study_name=name, storage=inside.optuna)
        for number in numbers:
            study.tell(one, number, record, Path(), tuning.view)
    return {"ask": asked - began, "tell": time.perf_counter() - asked}


def _finished(tuning: Tuning, number: int) -> Any:
    import optuna

    (parameter,) = tuning.space("penex")
    low, high = parameter.low, parameter.high
    return optuna.trial.create_trial(
        params={parameter.name: low + (high - low) * (number % 97 + 1) / 98},
        distributions={
            parameter.name: optuna.distributions.FloatDistribution(low, high, log=parameter.log)
        },
        value=0.4 + number % 13 / 100,
        user_attrs={"record": "digits", "validation": _NUMBERS, "test": _NUMBERS},
    )


def main() -> None:
    """Print what was measured, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", help="a PostgreSQL server with an empty database")
    url = parser.parse_args().storage
    found: dict[str, Any] = {
        "environment": environment.describe(torch.device("cpu")),
        "parcels": {name: parcel_size(name) for name in _SHAPES},
    }
    if url is not None:
        with closing(open_storage(url, Path())) as storage:
            found["optuna"] = [
                {"trials": trials, **optuna_seconds(storage, trials)} for trials in TRIALS
            ]
    print(json.dumps(found))


if __name__ == "__main__":
    run(main)
