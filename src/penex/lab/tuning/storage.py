"""Where studies are kept: a journal beside the runs, or any storage that Optuna knows."""

import contextlib
import hashlib
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penex.lab.ground import locks
from penex.lab.ground.errors import LabError
from penex.lab.ground.sentences import without_password
from penex.lab.records import archived
from penex.lab.tuning import journal
from penex.lab.workers.server import (
    Server,
    engine_of,
    opening,
    options,
    transaction,
    with_driver,
)

JOURNAL = "studies.journal"

_SEVERAL = "Several processes may tune at once, but each another loss"


@dataclass(frozen=True)
class Storage:
    """A place for studies.

    Attributes:
        optuna: Optuna's object.
        shown: the place in words, without a password.
        locks: the file whose neighbours lock a study; None for a server.
        shared: whether several processes may write to it.
        writable: whether anyone may; studies in an archive are only read.
    """

    optuna: Any
    shown: str
    locks: Path | None
    shared: bool = True
    writable: bool = True

    @property
    def leases(self) -> bool:
        """Whether several workers may share a study in it: a PostgreSQL server."""
        engine = getattr(self.optuna, "engine", None)
        return engine is not None and engine.dialect.name == "postgresql"

    @property
    def server(self) -> Server:
        """The server that it is on."""
        return Server(self.optuna.engine, self.shown)

    def close(self) -> None:
        """Close the connections to a database."""
        engine = getattr(self.optuna, "engine", None)
        if engine is not None:
            self.optuna.remove_session()
            engine.dispose()


def open_storage(url: str | None, folder: Path, *, existing: bool = False) -> Storage:
    """The storage of a URL; without one, the journal in the folder.

    Args:
        url: of a database, or None.
        folder: of the journal.
        existing: True to read what is there; nothing is made or mended then.
    """
    optuna = journal.optuna()
    if url is None:
        path = folder / JOURNAL
        if not path.exists() and archived.holds(path):
            return Storage(
                journal.in_archive(path), f"{path}, in its archive", None, writable=False
            )
        if not existing:
            folder.mkdir(parents=True, exist_ok=True)
        return Storage(journal.opened(path, mend=not existing), str(path), path)
    if "://" not in url:
        raise LabError("--storage is a URL, like postgresql://user@host/name or sqlite:///file.db.")
    shown = without_password(url)
    kind = url.split(":", 1)[0]
    file = None
    if kind.startswith("sqlite"):
        file = Path(re.sub(r"^sqlite[^:]*:///?", "", url).partition("?")[0])
        if not file.name or ":memory:" in url or "mode=memory" in url:
            raise LabError(f"The storage {shown} keeps nothing: name a file, as sqlite:///file.db.")
        if existing and not file.exists():
            raise LabError(f"The storage {shown} is not there.")
    with opening(url), _one_at_a_time(url):
        storage = optuna.storages.RDBStorage(with_driver(url), engine_kwargs=options(url))
    return Storage(storage, shown, file and file.resolve(), shared=file is None)


@contextmanager
def within(storage: Storage) -> Iterator[tuple[Storage, Any]]:
    """The storage within a transaction, and its connection: all that is written is kept, or none.

    Optuna commits after each call; within an outer transaction these are no more than savepoints.
    """
    import sqlalchemy.orm

    with transaction(storage.server) as connection:
        sessions = sqlalchemy.orm.sessionmaker(
            bind=connection, join_transaction_mode="create_savepoint"
        )
        # Not by copy.copy, which would open connections of its own.
        inside: Any = object.__new__(type(storage.optuna))
        inside.__dict__.update(vars(storage.optuna))
        inside.scoped_session = sqlalchemy.orm.scoped_session(sessions)
        yield replace(storage, optuna=inside), connection


@contextmanager
def alone(storage: Storage, names: list[str]) -> Iterator[None]:
    """Keep other processes from tuning the same studies; a killed process lets go by itself."""
    with ExitStack() as stack:
        for name in _locked_names(storage, names):
            stack.enter_context(_locked(storage, name))
        yield


def _locked_names(storage: Storage, names: list[str]) -> list[str]:
    if not storage.writable or storage.leases:
        return []
    return names if storage.shared else ["all studies"]


@contextmanager
def _locked(storage: Storage, name: str) -> Iterator[None]:
    try:
        with _lock_of(storage, name):
            yield
    except locks.Busy as error:
        if not storage.shared:
            raise LabError(
                f"Another process tunes with {storage.shown}. SQLite locks its whole file for "
                "every write and is not made for several workers: wait for the other, use the "
                "journal (leave --storage out), or a PostgreSQL server."
            ) from error
        raise LabError(
            f"Another process tunes {name} with {storage.shown}. {_SEVERAL}: wait for it."
        ) from error


def _lock_of(storage: Storage, name: str) -> AbstractContextManager[object]:
    if storage.locks is None:
        return _locked_on_server(storage.optuna.engine, name, wait=False)
    short = hashlib.sha256(name.encode()).hexdigest()[:12]
    path = storage.locks.with_name(f".{storage.locks.name}.{short}.busy")
    return locks.held(path, wait=False)


@contextmanager
def _one_at_a_time(url: str) -> Iterator[None]:
    """Those that open a new database together would all make its tables."""
    engine = engine_of(url)
    try:
        with _locked_on_server(engine, "opens a storage", wait=True):
            yield
    finally:
        engine.dispose()


@contextmanager
def _locked_on_server(engine: Any, name: str, *, wait: bool) -> Iterator[None]:
    """A lock that the server drops when the connection ends, however it ends; Busy if taken."""
    import sqlalchemy

    calls = {  # to take it or learn that another has it, to wait for it, to let go
        "postgresql": (
            "pg_try_advisory_lock(hashtext(:name))",
            "pg_advisory_lock(hashtext(:name)) IS NOT NULL",
            "pg_advisory_unlock(hashtext(:name))",
        ),
        "mysql": ("GET_LOCK(:name, 0)", "GET_LOCK(:name, 600)", "RELEASE_LOCK(:name)"),
    }
    if engine.dialect.name not in calls:
        yield
        return
    take, take_later, release = (
        sqlalchemy.text(f"SELECT {call}") for call in calls[engine.dialect.name]
    )
    key = {"name": f"penex {name}"}
    with engine.connect() as connection:
        connection.detach()  # closed at the end, not kept for others with the lock on it
        if not connection.execute(take_later if wait else take, key).scalar():
            raise locks.Busy(name)
        try:
            yield
        finally:  # at once: a server may take a moment to notice that a connection has ended
            with contextlib.suppress(sqlalchemy.exc.SQLAlchemyError):
                connection.execute(release, key)
