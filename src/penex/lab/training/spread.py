"""A comparison spread over many workers: each trains some packs of runs, and gets all records.

Whoever comes first cuts the runs into packs, as one machine alone would. The record of every run
goes to the server with the pack, so that it reaches workers that see another folder.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from penex.lab.ground import files
from penex.lab.ground.errors import LabError
from penex.lab.ground.sentences import count, duration
from penex.lab.records import parcels
from penex.lab.records.reading import checksums, difference
from penex.lab.tasks.runs import Run
from penex.lab.training import packing
from penex.lab.training.packed import name_of
from penex.lab.training.place import Place
from penex.lab.training.shift import Order, Shift
from penex.lab.workers import comparisons, leases
from penex.lab.workers.server import Server, lock, transaction

Result = TypeVar("Result")


@dataclass(frozen=True)
class Spread:
    """How runs are carried out by many workers: this is one of them.

    Attributes:
        server: where the packs are.
        say: says something to the user.
        seconds: how long a pack is a worker's after it last gave a sign of life.
        forget: whether to remove the comparison from the server when all of it is here.
    """

    server: Server
    say: Callable[[str], None]
    seconds: float = leases.SECONDS
    forget: bool = False

    def __call__(self, runs: list[Run], place: Place, wanted: int | None) -> None:
        """Carry out runs, or what others left of them; all records lie at the place then.

        Args:
            runs: each once.
            place: where.
            wanted: how many models to train at once; None for what pays on the device.
        """
        _Worker(runs, Shift(self.server, place, self.say, self.seconds), wanted).work(self.forget)


def job_of(runs: list[Run]) -> str:
    """What a comparison is called on a server: by its runs, in their order, and nothing else."""
    names = files.dumps([name_of(run) for run in runs])
    return f"comparison {runs[0].task.name} {hashlib.sha256(names.encode()).hexdigest()[:16]}"


class _Worker:
    """One of those who compare.

    Args:
        runs: of the comparison.
        shift: how this one works.
        wanted: how many models a pack of a new comparison has; None for what pays on the device.
    """

    def __init__(self, runs: list[Run], shift: Shift, wanted: int | None) -> None:
        self._runs, self._shift, self._wanted = runs, shift, wanted
        self._job, self._task = job_of(runs), runs[0].task.name
        self._numbers = list(range(len(runs)))

    def work(self, forget: bool) -> None:
        """Train until all runs are done; then fetch those that are not here."""
        kept = self._join()
        began, before = time.monotonic(), len(self._ask(self._delivered))

        def carry_out(lease: leases.Lease) -> None:
            def runs() -> dict[int, Run]:
                self._say_progress(began, before)
                if list(lease.numbers) not in kept.packs:
                    raise self._changed()
                return {number: self._runs[number] for number in lease.numbers}

            def hand_over(runs: dict[int, Run]) -> bool:
                return self._hand_over(lease, runs)

            self._shift.train(lease, Order(self._task, "run", runs, kept.size, hand_over))

        self._shift.work([self._job], lambda job: self._ask(self._offer), carry_out)
        self._fetch()
        if forget:
            self._ask(lambda connection: comparisons.forget(connection, self._job))

    def _ask(self, act: Callable[[Any], Result]) -> Result:
        """What a transaction gives, when the server is there.

        Args:
            act: (connection) -> what it gives.
        """

        def whole() -> tuple[Result]:
            with transaction(self._shift.server) as connection:
                return (act(connection),)

        return self._shift.patience(whole)[0]

    def _join(self) -> comparisons.Kept:
        """The comparison as its first worker made it, which may be this one."""
        place, shown = self._shift.place, self._shift.server.shown
        known = checksums(place.facts(self._runs[0]))
        size = packing.size_for(place, self._wanted, self._runs[0])
        kept = self._ask(self._find)
        if kept is None:
            ours = comparisons.Kept(self._cut(size), size, known)
            kept = self._ask(lambda connection: self._find_or_make(connection, ours))
        if other := difference(kept.data, known):
            raise LabError(
                f"This comparison in {shown} is of other data: the checksum{other}. Get the same "
                "data, or choose another --storage."
            )
        if self._wanted is not None and size != kept.size:
            raise LabError(
                f"This comparison in {shown} is trained in packs of {kept.size}, not {size}: leave "
                "--pack out, or choose another --storage."
            )
        return kept

    def _cut(self, size: int) -> list[list[int]]:
        numbers = {id(run): number for number, run in enumerate(self._runs)}
        packs = packing.cut(self._runs, self._shift.place, size)
        return [[numbers[id(run)] for run in pack] for pack in packs]

    def _find(self, connection: Any) -> comparisons.Kept | None:
        leases.prepare(connection)
        comparisons.prepare(connection)
        return self._known(connection)

    def _known(self, connection: Any) -> comparisons.Kept | None:
        """The comparison, if it is there; a LabError if someone changed it by hand."""
        kept = comparisons.find(connection, self._job)
        if kept is None or sorted(n for pack in kept.packs for n in pack) == self._numbers:
            return kept
        raise self._changed()

    def _changed(self) -> LabError:
        return LabError(
            f"The packs of this comparison in {self._shift.server.shown} are not its runs: someone "
            "changed them. Remove its row in penex_comparisons, or choose another --storage."
        )

    def _find_or_make(self, connection: Any, ours: comparisons.Kept) -> comparisons.Kept:
        lock(connection, f"asks {self._job}")
        kept = self._known(connection)
        if kept is not None:
            return kept  # another worker was here before
        comparisons.forget(connection, self._job)  # packs of one that someone removed by hand
        comparisons.make(connection, self._job, ours)
        leases.add(connection, self._job, ours.packs)
        return ours

    def _offer(self, connection: Any) -> bool:
        """Whether something is left to do where no pack is under way: someone removed a record."""
        lock(connection, f"asks {self._job}")
        kept = self._still(connection)
        there = self._delivered(connection)
        under_way = leases.open_packs(connection, [self._job]).get(self._job, set())
        left = [pack for pack in kept.packs if not there.issuperset(pack)]
        leases.add(connection, self._job, [p for p in left if p[0] not in under_way])
        return bool(left)

    def _still(self, connection: Any) -> comparisons.Kept:
        """The comparison, if it is still there."""
        kept = self._known(connection)
        if kept is None:
            raise LabError(
                f"This comparison was removed from {self._shift.server.shown}. What is done here "
                "is kept; give the command again to begin it anew."
            )
        return kept

    def _delivered(self, connection: Any) -> set[int]:
        return comparisons.delivered(connection, self._job)

    def _say_progress(self, began: float, before: int) -> None:
        done, total = len(self._ask(self._delivered)), len(self._runs)
        left = (time.monotonic() - began) / max(done - before, 1) * (total - done)
        when = f", about {duration(left)} left" if done > before else ""
        self._shift.say(f"{self._task}: {done} of {count(total, 'run')} done{when}")

    def _hand_over(self, lease: leases.Lease, runs: dict[int, Run]) -> bool:
        """Hand over the records of a pack, all of them or none; whether it was still ours."""
        # Packed before: large networks take longer than a server lets a transaction be idle.
        packed = {n: parcels.pack(self._shift.place.record(run)) for n, run in runs.items()}
        with transaction(self._shift.server) as connection:
            if not leases.is_held(connection, lease):
                return False
            self._still(connection)
            for number, content in packed.items():
                comparisons.put(connection, self._job, number, content)
            leases.end(connection, lease)
            return True

    def _fetch(self) -> None:
        """Get the records that are not here."""
        fetched = 0
        for number, run in enumerate(self._runs):
            record = self._shift.place.record(run)
            if not record.is_done:
                parcels.unpack(self._ask(self._getting(number)), record.folder)
                record.check_data(self._shift.place.facts(run))
                fetched += 1
        if fetched:
            of = count(len(self._runs), "run")
            self._shift.say(f"{self._task}: {fetched} of {of} came from other workers")

    def _getting(self, number: int) -> Callable[[Any], bytes]:
        def get(connection: Any) -> bytes:
            self._still(connection)
            return comparisons.get(connection, self._job, number)

        return get
