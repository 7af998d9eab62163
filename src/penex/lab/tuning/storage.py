"""Where studies are kept: a journal beside the runs, or any storage that Optuna knows."""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from penex.installing import install
from penex.lab.ground import files, locks
from penex.lab.ground.errors import LabError
from penex.lab.ground.sentences import without_password
from penex.lab.records import archived

JOURNAL = "studies.journal"

_BLOCK = 1 << 16
_START = b'{"op_code"'  # of every entry of Optuna's journal
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
    optuna = _optuna()
    if url is None:
        if not (folder / JOURNAL).exists() and archived.holds(folder / JOURNAL):
            return _in_archive(folder / JOURNAL)
        if not existing:
            folder.mkdir(parents=True, exist_ok=True)
        return _journal(folder / JOURNAL, mend=not existing)
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
    if kind in ("postgres", "postgresql"):
        url = "postgresql+psycopg" + url[len(kind) :]  # the driver of the extra tune
    try:
        with _opening(url):
            storage = optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    except Exception as error:  # whatever a database and its driver raise
        raise LabError(f"The storage {shown} cannot be opened: {_said(error, url)}") from None
    return Storage(storage, shown, file and file.resolve(), shared=file is None)


@contextmanager
def trouble(storage: Storage) -> Iterator[None]:
    """Turn what a database raises into one sentence."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("sqlalchemy", "psycopg", "optuna")):
            raise
        raise LabError(
            f"The storage {storage.shown} failed: {_said(error)} What was told is kept; give the "
            "command again."
        ) from None


def _said(error: Exception, url: str = "") -> str:
    """The first line of what a database says, without the password of its URL."""
    cause = error.__cause__ or error  # Optuna wraps what the driver says
    lines = [line for line in str(cause).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return without_password(lines[0], [url])


def _journal(path: Path, *, mend: bool) -> Storage:
    optuna = _optuna()
    lock = _FileLock(path)
    if path.exists():
        with path.open("rb") as file:
            first = file.readline()
        if first and not (_is_entry(first) or _is_begun(first)):
            raise _no_journal(path, "its first line is no entry")
        if mend and first:
            lock.acquire()  # which cuts off half a line
            lock.release()
    backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=lock)
    try:
        return Storage(optuna.storages.JournalStorage(backend), str(path), path)
    except OSError:
        raise
    except Exception as error:  # whatever Optuna makes of a line that is none of its own
        raise _no_journal(path, str(error)) from error


def _in_archive(path: Path) -> Storage:
    """The studies in a task's archive, to be read and not to be gone on with."""
    optuna = _optuna()
    try:
        entries = [files.loads(line) for line in archived.inside(path).splitlines()]

        class Backend(optuna.storages.journal.BaseJournalBackend):  # type: ignore[misc, name-defined]
            def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
                return entries[log_number_from:]

            def append_logs(self, logs: list[dict[str, Any]]) -> None:
                raise LabError(
                    f"The studies of {path} are in an archive and stay as they are: ask for the "
                    "trials that they have, or choose another --out."
                )

        storage = optuna.storages.JournalStorage(Backend())
        return Storage(storage, f"{path}, in its archive", None, writable=False)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise _no_journal(path, str(error)) from error


def _no_journal(path: Path, why: str) -> LabError:
    return LabError(
        f"{path} is no journal that can be read ({why}). Nothing was changed; move it away to "
        "start new studies."
    )


def _is_entry(line: bytes) -> bool:
    """Whether a line is a whole entry of Optuna's journal."""
    try:
        return line.endswith(b"\n") and "op_code" in files.loads(line)
    except (ValueError, TypeError):
        return False


def _is_begun(line: bytes) -> bool:
    """Whether a file's only line may be what a killed process or a power cut left of an entry."""
    zeros = not line.strip(b"\0")  # a file system may have kept the length and lost the content
    return not line.endswith(b"\n") and (zeros or _START.startswith(line[: len(_START)]))


@contextmanager
def alone(storage: Storage, names: list[str]) -> Iterator[None]:
    """Keep other processes from tuning the same studies; a killed process lets go by itself."""
    with ExitStack() as stack:
        for name in _locked_names(storage, names):
            stack.enter_context(_locked(storage, name))
        yield


def _locked_names(storage: Storage, names: list[str]) -> list[str]:
    if not storage.writable:
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
def _opening(url: str) -> Iterator[None]:
    """One process at a time: those that open a new database together would all make its tables."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(url)
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


class _FileLock:
    """Optuna's lock around each write; unlike its own, it goes with a process that is killed.

    Whoever has it first cuts off what a killed process had begun to write: a line without an end.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._path = journal.with_name(f".{journal.name}.lock")
        self._file: IO[bytes] | None = None
        self._first: os.stat_result | None = None

    def acquire(self) -> bool:
        """Wait for the lock."""
        self._file = self._path.open("ab")
        locks.take(self._file, wait=True)
        try:
            with self._journal.open("r+b") as file:
                now = os.fstat(file.fileno())
                self._first = self._first or now
                if os.path.samestat(self._first, now):
                    _cut_half_line(file)
                    return True
        except FileNotFoundError:
            pass
        self.release()
        # What we would write to a new one would be the end of a study without its start.
        raise LabError(
            f"{self._journal} was removed or replaced while it was in use: nothing more is written "
            "to it. Put it back, or give the command again to start new studies."
        )

    def release(self) -> None:
        """Let go."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _cut_half_line(file: IO[bytes]) -> None:
    """Cut off the last line if it is not whole."""
    end = file.seek(0, 2)
    tail = b""
    while end > len(tail) and b"\n" not in tail[:-1]:
        step = min(_BLOCK, end - len(tail))
        file.seek(end - len(tail) - step)
        tail = file.read(step) + tail
    last = tail[tail.rfind(b"\n", 0, -1) + 1 :]
    if last and not _is_entry(last):
        file.truncate(end - len(last))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise LabError(f"Tuning needs Optuna: {install('tune')}.") from error
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    return optuna
