"""Optuna's journal as a file of ours: its lock, its half lines, and one that lies in an archive."""

import os
from pathlib import Path
from typing import IO, Any

from penex.installing import install
from penex.lab.ground import files, locks
from penex.lab.ground.errors import LabError
from penex.lab.records import archived

_BLOCK = 1 << 16
_START = b'{"op_code"'  # of every entry of Optuna's journal


def opened(path: Path, *, mend: bool) -> Any:
    """Optuna's storage on a journal, whose last line is mended if it was not written whole."""
    journals = optuna().storages
    lock = _FileLock(path)
    if path.exists():
        with path.open("rb") as file:
            first = file.readline()
        if first and not (_is_entry(first) or _is_begun(first)):
            raise _no_journal(path, "its first line is no entry")
        if mend and first:
            lock.acquire()  # which cuts off half a line
            lock.release()
    backend = journals.journal.JournalFileBackend(str(path), lock_obj=lock)
    try:
        return journals.JournalStorage(backend)
    except OSError:
        raise
    except Exception as error:  # whatever Optuna makes of a line that is none of its own
        raise _no_journal(path, str(error)) from error


def in_archive(path: Path) -> Any:
    """The studies in a task's archive, to be read and not to be gone on with."""
    journals = optuna().storages
    try:
        entries = [files.loads(line) for line in archived.inside(path).splitlines()]

        class Backend(journals.journal.BaseJournalBackend):  # type: ignore[misc, name-defined]
            def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
                return entries[log_number_from:]

            def append_logs(self, logs: list[dict[str, Any]]) -> None:
                raise LabError(
                    f"The studies of {path} are in an archive and stay as they are: ask for the "
                    "trials that they have, or choose another --out."
                )

        return journals.JournalStorage(Backend())
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


def optuna() -> Any:
    """Optuna, with nothing to say of its own."""
    try:
        import optuna as module
    except ImportError as error:
        raise LabError(f"Tuning needs Optuna: {install('tune')}.") from error
    module.logging.set_verbosity(module.logging.CRITICAL)
    return module
