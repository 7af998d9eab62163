"""Folders that are being made: locked while their maker lives, removed when it is gone."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from penex.lab.ground import locks
from penex.lab.ground.errors import LabError

_NAME = ".unfinished-"
_LOCK = ".lock"


@contextmanager
def folder(root: Path) -> Iterator[Path]:
    """An empty folder in `root` to fill and rename; what is left of it at the end is removed.

    Its name is like no other on any machine. A lock is held on it until this process and those it
    forked have ended, however they end; folders whose makers are gone are removed first.
    """
    root.mkdir(parents=True, exist_ok=True)
    sweep(root)
    lock = _locked(root)
    made = Path(lock.name.removesuffix(_LOCK))
    try:
        made.mkdir()
        yield made
    except OSError as error:
        if error.filename is None:  # a full disk does not say which file
            error.filename = str(made)
        raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
        with suppress(OSError):
            os.unlink(lock.name)
        lock.close()


def _locked(root: Path) -> IO[str]:
    """A new file, locked. One that a sweeper took before it was locked is given up."""
    while True:
        path = root / f"{_NAME}{uuid.uuid4().hex}{_LOCK}"
        file = path.open("x")
        with suppress(LabError, OSError):  # where there are no locks, nothing is ever swept
            locks.take(file, wait=True)
        if path.exists():
            return file
        file.close()


def sweep(root: Path) -> None:
    """Remove the unfinished folders of a folder whose makers are certainly gone."""
    for path in root.glob(f"{_NAME}*{_LOCK}"):
        with suppress(LabError, OSError), path.open("r+") as lock:  # or gone meanwhile
            if locks.take(lock, wait=False):
                shutil.rmtree(path.with_name(path.name.removesuffix(_LOCK)), ignore_errors=True)
                path.unlink()
