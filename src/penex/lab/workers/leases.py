"""Who has which pack: rows in a table of ours.

A row is a pack that is not told yet: the numbers in it, of trials of a study or of runs of a
comparison, and who has it until when, by the clock of the database. Whoever tells the pack deletes
its row in the same transaction; a job without rows has nothing under way.
"""

import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import penex
from penex.lab.ground.errors import LabError
from penex.lab.workers.server import Patience, call, make_table

SECONDS = 60.0

_RENEWALS = 3  # in the time of a lease: one may be lost

_TABLE = """
CREATE TABLE IF NOT EXISTS penex_leases (
    job text NOT NULL,
    first integer NOT NULL,
    numbers integer[] NOT NULL,
    owner text,
    version text,
    expires timestamp with time zone,
    PRIMARY KEY (job, first)
)"""
_OPEN = "SELECT job, first FROM penex_leases WHERE job = ANY(:jobs)"
_ADD = "INSERT INTO penex_leases (job, first, numbers) VALUES (:job, :first, :numbers)"
# While a server is down nobody can renew a lease: all begin anew when it starts.
_TAKE = """
WITH free AS (
    SELECT job, first, owner FROM penex_leases
    WHERE job = ANY(:jobs) AND (
        owner IS NULL
        OR greatest(expires, pg_postmaster_start_time() + make_interval(secs => :seconds))
            < clock_timestamp()
    )
    ORDER BY first, job LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE penex_leases AS pack
SET owner = :owner, version = :version,
    expires = clock_timestamp() + make_interval(secs => :seconds)
FROM free WHERE pack.job = free.job AND pack.first = free.first
RETURNING pack.job, pack.first, pack.numbers, free.owner"""
_OTHERS = """
SELECT job, version FROM penex_leases
WHERE job = ANY(:jobs) AND version <> :version AND expires > clock_timestamp() LIMIT 1"""
_OURS = "job = :job AND first = :first AND owner = :owner"
_RENEW = f"""
UPDATE penex_leases SET expires = clock_timestamp() + make_interval(secs => :seconds)
WHERE {_OURS}"""
_GIVE_BACK = f"UPDATE penex_leases SET owner = NULL, version = NULL, expires = NULL WHERE {_OURS}"
_HELD = f"SELECT 1 FROM penex_leases WHERE {_OURS} FOR UPDATE"
_END = f"DELETE FROM penex_leases WHERE {_OURS}"


@dataclass(frozen=True)
class Lease:
    """A pack that is a worker's for some time.

    Attributes:
        job: what it is a part of: a study by its name, or a comparison.
        first: the first number in the pack.
        numbers: all of them.
        seconds: how long the lease lasts after it was taken or renewed.
        inherited: whether someone had it whose lease ran out.
        owner: a word that nobody else has.
    """

    job: str
    first: int
    numbers: tuple[int, ...]
    seconds: float
    inherited: bool
    owner: str

    @property
    def row(self) -> dict[str, Any]:
        """What finds its row."""
        return {"job": self.job, "first": self.first, "owner": self.owner}


def check_alone(seconds: float) -> None:
    """A LabError if leases of another time than usual were asked for where no worker shares."""
    if seconds != SECONDS:
        raise LabError(
            "--lease-seconds is for packs that workers share: it needs --storage postgresql://; "
            f"got {seconds:g}."
        )


def prepare(connection: Any) -> None:
    """Make the table, if it is not there."""
    make_table(connection, "penex_leases", _TABLE)


def open_packs(connection: Any, jobs: Iterable[str]) -> dict[str, set[int]]:
    """The first numbers of the packs under way, by job; no entry for a job that has none."""
    found: dict[str, set[int]] = {}
    for job, first in call(connection, _OPEN, jobs=list(jobs)):
        found.setdefault(job, set()).add(first)
    return found


def add(connection: Any, job: str, packs: Iterable[list[int]]) -> None:
    """Offer packs."""
    for pack in packs:
        call(connection, _ADD, job=job, first=pack[0], numbers=pack)


def take(connection: Any, jobs: Iterable[str], seconds: float) -> Lease | None:
    """A pack that nobody has, or whose lease ran out; None if there is none.

    A LabError while workers with another version of penex are at it: what they train may differ.
    """
    names, version = list(jobs), penex.__version__
    for job, other in call(connection, _OTHERS, jobs=names, version=version):
        raise LabError(
            f"Workers with penex {other} are at {job!r}, and this is penex {version}: have the "
            "same version on every machine, or wait for the others."
        )
    owner = secrets.token_hex(8)
    values = {"jobs": names, "owner": owner, "version": version, "seconds": seconds}
    for job, first, numbers, before in call(connection, _TAKE, **values):
        return Lease(job, first, tuple(numbers), seconds, before is not None, owner)
    return None


def is_held(connection: Any, lease: Lease) -> bool:
    """Whether a lease is still its worker's; nobody can take it before the transaction ends."""
    return call(connection, _HELD, **lease.row).scalar() is not None


def end(connection: Any, lease: Lease) -> None:
    """The pack is told."""
    call(connection, _END, **lease.row)


@dataclass(frozen=True)
class Renewal:
    """A lease while it is renewed.

    Attributes:
        lease: which.
        patience: how the server is called.
    """

    lease: Lease
    patience: Patience
    _lost: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def is_lost(self) -> bool:
        """Whether it is known that another worker has the pack, or told it."""
        return self._lost.is_set()

    def renew(self) -> bool:
        """Renew the lease; whether it is still ours."""
        with self.patience.server.engine.begin() as connection:
            found = call(connection, _RENEW, seconds=self.lease.seconds, **self.lease.row)
        if not found.rowcount:
            self._lost.set()
        return not self.is_lost

    def give_back(self) -> None:
        """Let another worker have the pack at once."""
        with self.patience.server.engine.begin() as connection:
            call(connection, _GIVE_BACK, **self.lease.row)

    def run(self) -> None:
        """Renew the lease again and again, until it is over or lost."""
        pause = self.lease.seconds / _RENEWALS
        while not self._over.wait(pause) and not self.is_lost:
            answered = self.patience.once(self.renew) is not None
            pause = self.lease.seconds / _RENEWALS
            pause = pause if answered else min(pause, 1.0)

    def stop(self) -> None:
        """Renew it no more."""
        self._over.set()


@contextmanager
def renewed(lease: Lease, patience: Patience) -> Iterator[Renewal]:
    """Renew a lease while this lasts, and give it back at the end if it is still there."""
    renewal = Renewal(lease, patience)
    thread = threading.Thread(target=renewal.run, name="penex lease", daemon=True)
    thread.start()
    try:
        yield renewal
    finally:
        renewal.stop()
        thread.join()
        if not renewal.is_lost:
            patience.once(renewal.give_back)  # a server that is away will see it run out
