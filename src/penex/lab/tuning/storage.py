"""Where studies are kept: a journal beside the runs, or any storage that Optuna knows."""

import fcntl
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from penex.lab.errors import LabError

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


def open_storage(url: str | None, folder: Path) -> Storage:
    """The storage of a URL; without one, the journal in the folder, made if it is not there."""
    optuna = _optuna()
    if url is None:
        folder.mkdir(parents=True, exist_ok=True)
        return _journal(folder / JOURNAL)
    if "://" not in url:
        raise LabError(
            "--storage is a URL, like postgresql://user@host/name or sqlite:///file.db; got "
            f"{url!r}."
        )
    shown = _without_password(url)
    kind = url.split(":", 1)[0]
    if kind in ("postgres", "postgresql"):
        url = "postgresql+psycopg" + url[len(kind) :]  # the driver of penex[tune]
    try:
        storage = optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    except Exception as error:  # whatever a database and its driver raise
        lines = [line for line in str(error).splitlines() if line.strip()]
        said = _without_password(lines[0]) if lines else type(error).__name__
        raise LabError(f"The storage {shown} cannot be opened: {said}") from None
    if kind.startswith("sqlite"):
        file = Path(re.sub(r"^sqlite[^:]*:///", "", url).partition("?")[0])
        return Storage(storage, shown, file, shared=False)
    return Storage(storage, shown, None)


def _journal(path: Path) -> Storage:
    optuna = _optuna()
    lock = _FileLock(path.with_name(f".{path.name}.lock"))
    lock.acquire()
    try:
        _cut_half_line(path)
    finally:
        lock.release()
    backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=lock)
    try:
        return Storage(optuna.storages.JournalStorage(backend), str(path), path)
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(
            f"{path} is no journal that can be read ({error}). Nothing was changed; move it away "
            "to start new studies."
        ) from error


def _cut_half_line(path: Path) -> None:
    """Cut off what a killed process had begun to write: a line without an end."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)


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
    path = storage.locks.with_name(f".{storage.locks.name}.{name}.busy")
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

    asks = {
        "postgresql": "SELECT pg_try_advisory_lock(hashtext(:name))",
        "mysql": "SELECT GET_LOCK(:name, 0)",
    }
    engine = storage.optuna.engine
    ask = asks.get(engine.dialect.name)
    if ask is None:
        yield
        return
    with engine.connect() as connection:
        connection.detach()  # closed at the end, not kept for others with the lock on it
        got = connection.execute(sqlalchemy.text(ask), {"name": f"penex {name}"}).scalar()
        if not got:
            raise LabError(
                f"Another process tunes {name} with {storage.shown}. {_SEVERAL}: wait for it."
            )
        yield


class _FileLock:
    """Optuna's lock around each write; unlike its own, it goes with a process that is killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def acquire(self) -> bool:
        """Wait for the lock."""
        self._file = self._path.open("a")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        """Let go."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _without_password(text: str) -> str:
    """A text with the password of each URL in it hidden.

    >>> _without_password("postgresql://me:secret@host/db")
    'postgresql://me:***@host/db'
    """
    return re.sub(r"(://[^:/@\s]*):[^@\s]*@", r"\1:***@", text)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise LabError("Tuning needs Optuna: pip install 'penex[tune]'.") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
