"""Who trains which pack of a study: rows in a table of ours, in the database of the study.

A row is a pack that is not told yet: the trials in it, and who has it until when, by the clock of
the database. Whoever tells the pack deletes its row in the same transaction; a study without rows
has no batch under way.
"""

import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import penex
from penex.lab.ground.errors import LabError
from penex.lab.tuning.server import Patience

_RENEWALS = 3  # in the time of a lease: one may be lost

_TABLE = """
CREATE TABLE IF NOT EXISTS penex_packs (
    study text NOT NULL,
    first integer NOT NULL,
    trials integer[] NOT NULL,
    owner text,
    version text,
    expires timestamp with time zone,
    PRIMARY KEY (study, first)
)"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtext(:study))"
_OPEN = "SELECT DISTINCT study FROM penex_packs WHERE study = ANY(:studies)"
_ADD = "INSERT INTO penex_packs (study, first, trials) VALUES (:study, :first, :trials)"
# While a server is down nobody can renew a lease: all begin anew when it starts.
_TAKE = """
WITH free AS (
    SELECT study, first, owner FROM penex_packs
    WHERE study = ANY(:studies) AND (
        owner IS NULL
        OR greatest(expires, pg_postmaster_start_time() + make_interval(secs => :seconds))
            < clock_timestamp()
    )
    ORDER BY first, study LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE penex_packs AS pack
SET owner = :owner, version = :version,
    expires = clock_timestamp() + make_interval(secs => :seconds)
FROM free WHERE pack.study = free.study AND pack.first = free.first
RETURNING pack.study, pack.first, pack.trials, free.owner"""
_OTHERS = """
SELECT study, version FROM penex_packs
WHERE study = ANY(:studies) AND version <> :version AND expires > clock_timestamp() LIMIT 1"""
_OURS = "study = :study AND first = :first AND owner = :owner"
_RENEW = f"""
UPDATE penex_packs SET expires = clock_timestamp() + make_interval(secs => :seconds)
WHERE {_OURS}"""
_GIVE_BACK = f"UPDATE penex_packs SET owner = NULL, version = NULL, expires = NULL WHERE {_OURS}"
_HELD = f"SELECT 1 FROM penex_packs WHERE {_OURS} FOR UPDATE"
_END = f"DELETE FROM penex_packs WHERE {_OURS}"


@dataclass(frozen=True)
class Lease:
    """A pack that is a worker's for some time.

    Attributes:
        study: by its name.
        first: the number of the pack's first trial.
        trials: the numbers of all.
        seconds: how long the lease lasts after it was taken or renewed.
        inherited: whether someone had it whose lease ran out.
        owner: a word that nobody else has.
    """

    study: str
    first: int
    trials: tuple[int, ...]
    seconds: float
    inherited: bool
    owner: str

    @property
    def row(self) -> dict[str, Any]:
        """What finds its row."""
        return {"study": self.study, "first": self.first, "owner": self.owner}


def _call(connection: Any, statement: str, **values: Any) -> Any:
    import sqlalchemy

    return connection.execute(sqlalchemy.text(statement), values)


def prepare(connection: Any) -> None:
    """Make the table, if it is not there; one worker at a time, to the end of the transaction."""
    lock(connection, "table")
    _call(connection, _TABLE)


def lock(connection: Any, study: str) -> None:
    """Keep others from asking for trials of a study, to the end of the transaction."""
    _call(connection, _LOCK, study=f"penex asks {study}")


def open_packs(connection: Any, studies: Iterable[str]) -> set[str]:
    """Those of the studies that have a batch under way."""
    return set(_call(connection, _OPEN, studies=list(studies)).scalars())


def add(connection: Any, study: str, packs: Iterable[list[int]]) -> None:
    """Offer the packs of a batch."""
    for pack in packs:
        _call(connection, _ADD, study=study, first=pack[0], trials=pack)


def take(connection: Any, studies: Iterable[str], seconds: float) -> Lease | None:
    """A pack that nobody has, or whose lease ran out; None if there is none.

    A LabError while workers with another version of penex are at it: their trials may differ.
    """
    names, version = list(studies), penex.__version__
    for study, other in _call(connection, _OTHERS, studies=names, version=version):
        raise LabError(
            f"The study {study!r} is being tuned by penex {other}, and this is penex {version}: "
            "have the same version on every machine, or wait for the others."
        )
    owner = secrets.token_hex(8)
    values = {"studies": names, "owner": owner, "version": version, "seconds": seconds}
    for study, first, trials, before in _call(connection, _TAKE, **values):
        return Lease(study, first, tuple(trials), seconds, before is not None, owner)
    return None


def is_held(connection: Any, lease: Lease) -> bool:
    """Whether a lease is still its worker's; nobody can take it before the transaction ends."""
    return _call(connection, _HELD, **lease.row).scalar() is not None


def end(connection: Any, lease: Lease) -> None:
    """The pack is told."""
    _call(connection, _END, **lease.row)


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
        with self.patience.storage.optuna.engine.begin() as connection:
            found = _call(connection, _RENEW, seconds=self.lease.seconds, **self.lease.row)
        if not found.rowcount:
            self._lost.set()
        return not self.is_lost

    def give_back(self) -> None:
        """Let another worker have the pack at once."""
        with self.patience.storage.optuna.engine.begin() as connection:
            _call(connection, _GIVE_BACK, **self.lease.row)

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
