"""Tuning: the paper's protocol, in batches that give the same study whenever they are repeated.

A study asks for a batch of trials, trains them as one pack, and tells their results: so 50 trials
cost little more than 5. Every suggestion is a function of the study's seed, the trial's number and
the trials told before its batch, and nothing else; a study that was killed goes on as if it had
not been.
"""

from collections.abc import Callable
from typing import Any

from penex.lab.training import packing
from penex.lab.training.place import Place
from penex.lab.tuning import study
from penex.lab.tuning.search import Tuning, study_name
from penex.lab.tuning.storage import Storage, alone
from penex.lab.tuning.workers import Worker
from penex.lab.workers import leases

Told = Callable[[list[study.Progress]], None]


def tune(
    tuning: Tuning,
    storage: Storage,
    place: Place,
    *,
    told: Told = lambda progress: None,
    say: Callable[[str], None] = lambda text: None,
    pack: int | None = None,
    lease_seconds: float = leases.SECONDS,
) -> dict[str, Any]:
    """Carry out studies, or what is left of them; Optuna's studies by loss.

    Args:
        tuning: what is tuned, and how.
        storage: where the studies are.
        place: where.
        told: gets the progress of all studies before each batch, and at the end.
        say: says something to the user beside the progress.
        pack: how many models to train at once; None for what pays on the device.
        lease_seconds: on a server that several workers share, how long a pack is a worker's after
            its last sign of life.
    """
    if storage.leases:
        return Worker(tuning, storage, place, told, say, pack, lease_seconds).work()
    names = [study_name(tuning.task.name, loss) for loss in tuning.losses]
    with alone(storage, names):
        most = 1
        if study.is_unfinished(tuning, storage):  # before a fault of the data leaves a study behind
            first = tuning.run(tuning.losses[0], {})
            place.data(first)
            most = packing.size_for(place, pack, first)
        studies = {loss: study.open_study(tuning, loss, storage) for loss in tuning.losses}
        while True:
            batches = {
                loss: list(study.next_batch(tuning, one, loss)) for loss, one in studies.items()
            }
            told([study.progress(one, loss, tuning.trials) for loss, one in studies.items()])
            if not any(batches.values()):
                return studies
            planned = {
                (loss, trial.number): tuning.run(loss, trial.params)
                for loss, trials in batches.items()
                for trial in trials
            }
            # Two trials may be the same run.
            distinct = {str(place.record(run).folder): run for run in planned.values()}
            packing.train(list(distinct.values()), place, most)
            for (loss, number), run in planned.items():
                study.tell(studies[loss], number, place.record(run), place.out, tuning.view)
