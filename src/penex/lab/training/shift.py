"""A worker's shift: take a pack, train it, hand it over, until what many share is done."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from penex.lab.ground.errors import Interrupted, LabError, RecordError
from penex.lab.ground.sentences import count
from penex.lab.tasks.runs import Run
from penex.lab.training import packing
from penex.lab.training.place import Place
from penex.lab.workers import leases
from penex.lab.workers.server import Patience, Server

_LONGEST_PAUSE = 2.0  # seconds between two looks for a pack
_LOOKS = 10  # in the time of a lease, if it is short


@dataclass(frozen=True)
class Order:
    """What a pack wants.

    Attributes:
        title: what it is a part of, in a word.
        thing: what is numbered: a trial, a run.
        runs: () -> its runs by their numbers.
        most: how many models a pack may have.
        hand_over: (runs) -> whether they were taken, which they are not once the lease is lost.
    """

    title: str
    thing: str
    runs: Callable[[], dict[int, Run]]
    most: int
    hand_over: Callable[[dict[int, Run]], bool]


@dataclass
class Shift:
    """One of many workers.

    Attributes:
        server: where the packs are.
        place: where to train.
        say: says something to the user.
        seconds: how long a pack is a worker's after it last gave a sign of life.
    """

    server: Server
    place: Place
    say: Callable[[str], None]
    seconds: float = leases.SECONDS

    def __post_init__(self) -> None:
        if not 1 <= self.seconds <= 86_400:
            raise LabError(f"--lease-seconds is from 1 to 86,400; got {self.seconds}.")
        self.patience = Patience(self.server, self.say, self.place.hooks.stop)

    def work(
        self,
        jobs: Iterable[str],
        more: Callable[[str], bool],
        carry_out: Callable[[leases.Lease], None],
    ) -> None:
        """Carry out packs until no job has any.

        Args:
            jobs: their names.
            more: (job) -> whether one that has no packs under way gets some.
            carry_out: (lease) -> None; trains a pack.
        """
        left, waited = list(jobs), False
        while left:
            if self.place.hooks.stop():
                raise Interrupted
            lease, under_way = self._look(left)
            if lease is not None:
                carry_out(lease)
                waited = False
                continue
            told = [job for job in left if job not in under_way]
            for job in told:
                if not more(job):
                    left.remove(job)
            if not told:
                if not waited:
                    self.say("Waiting: other workers have all packs that are left.")
                waited = True
                time.sleep(min(_LONGEST_PAUSE, self.seconds / _LOOKS))

    def _look(self, jobs: list[str]) -> tuple[leases.Lease | None, set[str]]:
        """A pack, if one is free; the jobs that have packs under way."""

        def look() -> tuple[leases.Lease | None, set[str]]:
            with self.server.engine.begin() as connection:
                lease = leases.take(connection, jobs, self.seconds)
                return lease, set() if lease else set(leases.open_packs(connection, jobs))

        return self.patience(look)

    def train(self, lease: leases.Lease, order: Order) -> None:
        """Train a pack and hand it over; what was lost to another worker is thrown away."""
        with leases.renewed(lease, self.patience) as renewal:
            runs = order.runs()
            words = f"{count(len(lease.numbers), order.thing)} from number {lease.first} on"
            self.say(f"{order.title}: this worker has the pack of {words}")
            asked = self.place.hooks.stop
            hooks = replace(self.place.hooks, stop=lambda: asked() or renewal.is_lost)
            try:
                self._train(runs, lease, order.most, replace(self.place, hooks=hooks))
                kept = self.patience(lambda: order.hand_over(runs))
            except (Interrupted, RecordError, OSError):  # OSError: its files were swept away
                if asked() or self.patience(lambda: (renewal.renew(),))[0]:
                    raise
                kept = False
            if not kept:
                self.say(
                    f"{order.title}: the pack of {words} is another worker's by now, as nothing "
                    f"was heard of this one for {self.seconds:.0f} s; what it trained is thrown "
                    "away"
                )

    def _train(self, runs: dict[int, Run], lease: leases.Lease, most: int, place: Place) -> None:
        # Two trials may be the same run.
        distinct = {str(place.record(run).folder): run for run in runs.values()}
        if lease.inherited:  # its worker may be stopped, and not dead
            for run in distinct.values():
                place.record(run).evict()
        packing.train(list(distinct.values()), place, most)
