"""Many workers, one study: each leases a pack of trials, trains it, and tells it.

A batch is asked for by whoever comes first and cut into packs by a rule of the study; the next one
is asked for when the last pack of it was told. So what a study suggests and finds does not depend
on who trained what.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penex.lab.ground.errors import LabError
from penex.lab.tasks.runs import Run
from penex.lab.training import packing
from penex.lab.training.place import Place
from penex.lab.training.shift import Order, Shift
from penex.lab.tuning import study
from penex.lab.tuning.search import Tuning, study_name
from penex.lab.tuning.storage import Storage, within
from penex.lab.workers import leases
from penex.lab.workers.server import lock

_PACK = "pack"  # the attribute of a study that keeps the size of its packs


@dataclass
class Worker:
    """One of those who tune.

    Attributes:
        tuning: what is tuned, and how.
        storage: where the studies are.
        place: where to train.
        told: gets the progress of all studies before each pack, and at the end.
        say: says something to the user.
        wanted: how many models a pack of a new study has; None for what pays on the device.
        seconds: how long a pack is a worker's after it last gave a sign of life.
    """

    tuning: Tuning
    storage: Storage
    place: Place
    told: Callable[[list[study.Progress]], None]
    say: Callable[[str], None]
    wanted: int | None = None
    seconds: float = leases.SECONDS
    _sizes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        task = self.tuning.task.name
        self._losses = {study_name(task, loss): loss for loss in self.tuning.losses}
        self._shift = Shift(self.storage.server, self.place, self.say, self.seconds)

    def work(self) -> dict[str, Any]:
        """Tune until all studies are over; Optuna's studies by loss."""
        size = 1
        if study.is_unfinished(self.tuning, self.storage):  # before a fault leaves a study behind
            first = self.tuning.run(self.tuning.losses[0], {})
            self.place.data(first)
            size = packing.size_for(self.place, self.wanted, first)
        self._shift.patience(self._prepare)
        left = [name for name in self._losses if self._ask(name, size)]  # each is what we want
        self._shift.work(left, lambda name: self._ask(name, size), self._carry_out)
        return self._shift.patience(self._progress)

    def _prepare(self) -> bool:
        with self.storage.server.engine.begin() as connection:
            leases.prepare(connection)
        return True

    def _progress(self) -> dict[str, Any]:
        """The studies, after it was told how they stand."""
        found = {loss: self._load(name, self.storage) for name, loss in self._losses.items()}
        self.told([study.progress(one, loss, self.tuning.trials) for loss, one in found.items()])
        return found

    def _load(self, name: str, storage: Storage) -> Any:
        import optuna

        return optuna.load_study(study_name=name, storage=storage.optuna)

    def _ask(self, name: str, size: int) -> bool:
        """Ask for the next batch of a study, if the last one is told; False if there is none."""

        def act() -> bool:
            with within(self.storage) as (inside, connection):
                lock(connection, f"asks {name}")
                one = study.open_study(self.tuning, self._losses[name], inside)
                kept = self._sizes[name] = self._pack_size(one, size)
                if leases.open_packs(connection, [name]):
                    return True  # another worker was here before
                batch = study.next_batch(self.tuning, one, self._losses[name])
                numbers = [trial.number for trial in batch]
                packs = [numbers[k : k + kept] for k in range(0, len(numbers), kept)]
                leases.add(connection, name, packs)
                return bool(packs)

        return self._shift.patience(act)

    def _pack_size(self, one: Any, size: int) -> int:
        """The size of a study's packs, which whoever makes it decides."""
        kept = one.user_attrs.get(_PACK)
        if kept is None:
            one.set_user_attr(_PACK, size)
            return size
        if self.wanted is not None and size != kept:
            raise LabError(
                f"The study {one.study_name!r} in {self.storage.shown} is trained in packs of "
                f"{kept}, not {size}: leave --pack out, or choose another --storage."
            )
        return int(kept)

    def _carry_out(self, lease: leases.Lease) -> None:
        loss = self._losses[lease.job]

        def runs() -> dict[int, Run]:
            trials = self._shift.patience(self._progress)[loss].get_trials(deepcopy=False)
            return {
                number: self.tuning.run(loss, trials[number].params) for number in lease.numbers
            }

        def tell(runs: dict[int, Run]) -> bool:
            return self._tell(lease, runs)

        self._shift.train(lease, Order(loss, "trial", runs, self._sizes[lease.job], tell))

    def _tell(self, lease: leases.Lease, runs: dict[int, Run]) -> bool:
        """Tell a pack, all of it or nothing; whether it was still ours."""
        with within(self.storage) as (inside, connection):
            if not leases.is_held(connection, lease):
                return False
            one = self._load(lease.job, inside)
            for number, run in runs.items():
                record = self.place.record(run)
                study.tell(one, number, record, self.place.out, self.tuning.view)
            leases.end(connection, lease)
            return True
