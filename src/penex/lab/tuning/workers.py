"""Many workers, one study: each leases a pack of trials, trains it, and tells it.

A batch is asked for by whoever comes first and cut into packs by a rule of the study; the next one
is asked for when the last pack of it was told. So what a study suggests and finds does not depend
on who trained what.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from penex.lab.ground.errors import Interrupted, LabError, RecordError
from penex.lab.ground.sentences import count
from penex.lab.tasks.runs import Run
from penex.lab.training import packing
from penex.lab.training.place import Place
from penex.lab.tuning import leases, study
from penex.lab.tuning.search import Tuning, study_name
from penex.lab.tuning.server import Patience, transaction
from penex.lab.tuning.storage import Storage

LEASE_SECONDS = 60.0

_PACK = "pack"  # the attribute of a study that keeps the size of its packs
_LONGEST_PAUSE = 2.0  # seconds between two looks for a pack
_LOOKS = 10  # in the time of a lease, if it is short


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
    seconds: float = LEASE_SECONDS
    _over: set[str] = field(default_factory=set)
    _sizes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.seconds <= 86_400:
            raise LabError(f"--lease-seconds is from 1 to 86,400; got {self.seconds}.")
        task = self.tuning.task.name
        self._losses = {study_name(task, loss): loss for loss in self.tuning.losses}
        self._patience = Patience(self.storage, self.say, self.place.hooks.stop)

    def work(self) -> dict[str, Any]:
        """Tune until all studies are over; Optuna's studies by loss."""
        size = 1
        if study.is_unfinished(self.tuning, self.storage):  # before a fault leaves a study behind
            first = self.tuning.run(self.tuning.losses[0], {})
            self.place.data(first)
            size = packing.size_for(self.place, self.wanted, first)
        self._patience(self._prepare)
        for name in self._losses:  # whether each is what we want to tune
            self._ask(name, size)
        while lease := self._next(size):
            self._carry_out(lease)
        return self._patience(self._progress)

    def _prepare(self) -> bool:
        with self.storage.optuna.engine.begin() as connection:
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

    def _ask(self, name: str, size: int) -> None:
        """Ask for the next batch of a study, if the last one is told; note if there is none."""

        def act() -> bool:
            with transaction(self.storage) as (inside, connection):
                leases.lock(connection, name)
                one = study.open_study(self.tuning, self._losses[name], inside)
                kept = self._sizes[name] = self._pack_size(one, size)
                if leases.open_packs(connection, [name]):
                    return True  # another worker was here before
                batch = study.next_batch(self.tuning, one, self._losses[name])
                numbers = [trial.number for trial in batch]
                packs = [numbers[k : k + kept] for k in range(0, len(numbers), kept)]
                leases.add(connection, name, packs)
                return bool(packs)

        if not self._patience(act):
            self._over.add(name)

    def _pack_size(self, one: Any, size: int) -> int:
        """The size of a study's packs, which whoever makes it decides."""
        kept = one.user_attrs.get(_PACK)
        if kept is None:
            one.set_user_attr(_PACK, size)
            return size
        if self.wanted not in (None, kept):
            raise LabError(
                f"The study {one.study_name!r} in {self.storage.shown} is trained in packs of "
                f"{kept}, not {self.wanted}: leave --pack out, or choose another --storage."
            )
        return int(kept)

    def _next(self, size: int) -> leases.Lease | None:
        """The next pack to train, when there is one; None if all studies are over."""
        waited = False
        while names := [name for name in self._losses if name not in self._over]:
            if self.place.hooks.stop():
                raise Interrupted

            def look(names: list[str] = names) -> tuple[leases.Lease | None, set[str]]:
                with self.storage.optuna.engine.begin() as connection:
                    lease = leases.take(connection, names, self.seconds)
                    return lease, leases.open_packs(connection, names)

            lease, under_way = self._patience(look)
            if lease is not None:
                return lease
            told = [name for name in names if name not in under_way]
            for name in told:
                self._ask(name, size)
            if not told:
                if not waited:
                    self.say("Waiting: other workers have all packs of this batch.")
                waited = True
                time.sleep(min(_LONGEST_PAUSE, self.seconds / _LOOKS))
        return None

    def _carry_out(self, lease: leases.Lease) -> None:
        """Train a pack and tell it; what was lost to another worker is thrown away."""
        loss = self._losses[lease.study]
        with leases.renewed(lease, self._patience) as renewal:
            trials = self._patience(self._progress)[loss].get_trials(deepcopy=False)
            words = f"{count(len(lease.trials), 'trial')} from number {lease.first} on"
            self.say(f"{loss}: this worker has the pack of {words}")
            runs = {number: self.tuning.run(loss, trials[number].params) for number in lease.trials}
            asked = self.place.hooks.stop
            hooks = replace(self.place.hooks, stop=lambda: asked() or renewal.is_lost)
            try:
                self._train(list(runs.values()), lease, replace(self.place, hooks=hooks))
                kept = self._patience(lambda: self._tell(lease, runs))
            except (Interrupted, RecordError, OSError):  # OSError: its files were swept away
                if asked() or self._patience(lambda: (renewal.renew(),))[0]:
                    raise
                kept = False
            if not kept:
                self.say(
                    f"{loss}: the pack of {words} is another worker's by now, as nothing was heard "
                    f"of this one for {self.seconds:.0f} s; what it trained is thrown away"
                )

    def _train(self, runs: list[Run], lease: leases.Lease, place: Place) -> None:
        # Two trials may be the same run.
        distinct = {str(place.record(run).folder): run for run in runs}
        if lease.inherited:  # its worker may be stopped, and not dead
            for run in distinct.values():
                place.record(run).evict()
        packing.train(list(distinct.values()), place, self._sizes[lease.study])

    def _tell(self, lease: leases.Lease, runs: dict[int, Run]) -> bool:
        """Tell a pack, all of it or nothing; whether it was still ours."""
        with transaction(self.storage) as (inside, connection):
            if not leases.is_held(connection, lease):
                return False
            one = self._load(lease.study, inside)
            for number, run in runs.items():
                record = self.place.record(run)
                study.tell(one, number, record, self.place.out, self.tuning.view)
            leases.end(connection, lease)
            return True
