"""Where studies are kept: a journal beside the runs, or any storage that Optuna knows."""

import contextlib
import fcntl
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from penex.installing import install
from penex.lab.errors import LabError
from penex.lab.sentences import without_password

JOURNAL = "studies.journal"

_BLOCK = 1 << 16
_SEVERAL = "Several processes may tune at once, but each another loss"


@dataclass(frozen=True)
class Storage:
    """A place for studies.

    Attributes:
        optuna: Optuna's object.
        shown: the place in words, without a password.
        locks: the file whose neighbours lock a study; None for a server.
        shared: whether several processes may write to it.
    """

    optuna: Any
    shown: str
    locks: Path | None
    shared: bool = True

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
        if first and not _is_entry(first):
            raise _no_journal(path, "its first line is no entry")
        if mend and first:
            lock.acquire()  # which cuts off half a line
            lock.release()
    backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=lock)
    try:
        return Storage(optuna.storages.JournalStorage(backend), str(path), path)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise _no_journal(path, str(error)) from error


def _no_journal(path: Path, why: str) -> LabError:
    return LabError(
        f"{path} is no journal that can be read ({why}). Nothing was changed; move it away to "
        "start new studies."
    )


def _is_entry(line: bytes) -> bool:
    """Whether a line is an entry of Optuna's journal, or the beginning of one."""
    if not line.endswith(b"\n"):
        return line.startswith(b'{"op_code"')
    try:
        return "op_code" in json.loads(line)
    except (ValueError, TypeError):
        return False


@contextmanager
def alone(storage: Storage, names: list[str]) -> Iterator[None]:
    """Keep other processes from tuning the same studies; a killed process lets go by itself."""
    with ExitStack() as stack:
        for name in names if storage.shared else ["all studies"]:
            stack.enter_context(_locked(storage, name))
        yield


@contextmanager
def _locked(storage: Storage, name: str) -> Iterator[None]:
    if storage.locks is None:
        with _locked_on_server(storage, name):
            yield
        return
    short = hashlib.sha256(name.encode()).hexdigest()[:12]
    path = storage.locks.with_name(f".{storage.locks.name}.{short}.busy")
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not storage.shared:
                raise LabError(
                    f"Another process tunes with {storage.shown}. SQLite locks its whole file for "
                    "every write and is not made for several workers: wait for the other, use the "
                    "journal (leave --storage out), or a PostgreSQL server."
                ) from error
            raise LabError(
                f"Another process tunes {name} with {storage.shown}. {_SEVERAL}: wait for it."
            ) from error
        yield


@contextmanager
def _locked_on_server(storage: Storage, name: str) -> Iterator[None]:
    """A lock that the server drops when the connection ends, however it ends."""
    import sqlalchemy

    calls = {
        "postgresql": (
            "pg_try_advisory_lock(hashtext(:name))",
            "pg_advisory_unlock(hashtext(:name))",
        ),
        "mysql": ("GET_LOCK(:name, 0)", "RELEASE_LOCK(:name)"),
    }
    engine = storage.optuna.engine
    if engine.dialect.name not in calls:
        yield
        return
    take, release = (sqlalchemy.text(f"SELECT {call}") for call in calls[engine.dialect.name])
    key = {"name": f"penex {name}"}
    with engine.connect() as connection:
        connection.detach()  # closed at the end, not kept for others with the lock on it
        if not connection.execute(take, key).scalar():
            raise LabError(
                f"Another process tunes {name} with {storage.shown}. {_SEVERAL}: wait for it."
            )
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
        self._file: IO[str] | None = None

    def acquire(self) -> bool:
        """Wait for the lock."""
        self._file = self._path.open("a")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        if self._journal.exists():
            with self._journal.open("r+b") as file:
                _cut_half_line(file)
        return True

    def release(self) -> None:
        """Let go."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _cut_half_line(file: IO[bytes]) -> None:
    end = file.seek(0, 2)
    tail = b""
    while end > len(tail) and not (tail and b"\n" in tail):
        step = min(_BLOCK, end - len(tail))
        file.seek(end - len(tail) - step)
        tail = file.read(step) + tail
    half = tail.rpartition(b"\n")[2]
    if half and _is_entry(half):
        file.truncate(end - len(half))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise LabError(f"Tuning needs Optuna: {install('tune')}.") from error
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    return optuna
