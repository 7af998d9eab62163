"""Locks between processes. They are the kernel's: a killed process lets go by itself."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from penex.lab.ground.errors import LabError

_held: set[IO[bytes]] = set()


def _let_go() -> None:
    """Close what a forked process has from its parent, or the lock would outlive the parent."""
    while _held:
        _held.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class Busy(Exception):  # noqa: N818  (who asks decides whether it is an error)
    """Another process has the lock."""


def take(file: IO[Any] | int, *, wait: bool) -> bool:
    """Lock an open file or folder until it is closed; False if another has it and `wait` is False.

    A LabError where the system has no such locks.
    """
    try:
        import fcntl  # here: to read records, or to use a loss, one needs no lock
    except ImportError as error:
        raise LabError(
            "penex locks what it writes with POSIX file locks, so that two processes do not write "
            f"one run, and {platform.system() or 'this system'} has none: use Linux, macOS or WSL."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


@contextmanager
def held(path: Path, *, wait: bool) -> Iterator[IO[bytes]]:
    """Hold the lock of a file, which is made and stays; Busy if another has it and nobody waits."""
    with path.open("ab") as file:
        try:
            if not take(file, wait=wait):
                raise Busy(path)
        except OSError as error:
            error.filename = str(path)  # a file system without locks does not say which file
            raise
        _held.add(file)
        try:
            yield file
        finally:
            _held.discard(file)
