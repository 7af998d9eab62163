"""Files that are whole or absent: written beside their place, then renamed into it."""

import errno
import glob
import json
import math
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from penex.lab.ground import locks
from penex.lab.ground.errors import LabError

_DEEPEST = 32  # levels of JSON


def check_target(path: Path) -> None:
    """A LabError if nothing can be written at a place: said before any work."""
    if path.is_dir():
        raise LabError(f"{path} is a folder: name a file.")
    if path.exists() and not os.access(path, os.W_OK):
        raise LabError(f"{path} may not be written to.")
    if _is_stream(path):
        return
    folder = _place(path).parent
    if not folder.is_dir():
        raise LabError(f"There is no folder {folder} to write {path.name} into.")
    if not os.access(folder, os.W_OK):
        raise LabError(f"Nothing can be written into the folder {folder}.")


def write(path: Path, content: bytes) -> None:
    """Write a file whole, or leave what was there."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its place when all is written; else what was there stays.

    A device or a pipe gets what is written at once. The place of a link is its target's, and the
    new file gets the mode of the one before.
    """
    if _is_stream(path):
        with naming(path), path.open("ab") as stream:
            yield stream
        return
    place = _place(path)
    # A name that no other process takes, on this machine or another.
    new = place.with_name(f"{_stem(place)}.{secrets.token_hex(8)}.tmp")
    with naming(path), _alive(new):
        with new.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(OSError):  # none was there, or the file system knows no modes
            new.chmod(stat.S_IMODE(place.stat().st_mode))
        new.replace(place)
    _remove_dead(place.parent.glob(f"{glob.escape(_stem(place))}.*.tmp"))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an error the name of the file that is meant: a full disk does not say which one."""
    try:
        yield
    except OSError as error:
        if error.filename is None or str(error.filename).endswith(".tmp"):
            error.filename, error.filename2 = str(path), None
        raise


def sweep(folder: Path) -> None:
    """Remove what killed processes left beside the files of a folder."""
    _remove_dead(folder.rglob(".*.tmp"))


@contextmanager
def _alive(new: Path) -> Iterator[None]:
    """Make a file that is locked while its writer lives; then it is removed, unless renamed.

    Where there are no locks, nothing tells the dead from the living, and what they left stays.
    """
    while True:
        number = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(LabError, OSError):
            locks.take(number, wait=True)
        if os.fstat(number).st_nlink:
            break
        os.close(number)  # taken for a dead one's, between its making and the lock
    try:
        yield
    finally:
        with suppress(OSError):  # where nothing can be written, there is nothing to remove
            new.unlink(missing_ok=True)
        os.close(number)


def _remove_dead(paths: Iterable[Path]) -> None:
    """Remove those that nobody has locked: their writers were killed."""
    for path in paths:
        with suppress(LabError, OSError), path.open("r+b") as file:
            if locks.take(file, wait=False):
                path.unlink(missing_ok=True)


def _stem(path: Path) -> str:
    """The start of the names of what is written for a path; short enough for any file system."""
    return "." + os.fsdecode(os.fsencode(path.name)[:200])


def _place(path: Path) -> Path:
    """Where a file is written: at the end of a link."""
    place = Path(os.path.realpath(path)) if path.is_symlink() else path
    wrong = errno.ELOOP if place.is_symlink() else 0
    if place.exists() and not os.access(place, os.W_OK):  # renaming would not ask
        wrong = errno.EACCES
    if wrong:
        raise OSError(wrong, os.strerror(wrong), str(path))
    return place


def _is_stream(path: Path) -> bool:
    """Whether a path is a device or a pipe, or the file that this process's output goes to."""
    try:
        there = path.stat()
    except OSError:
        return False
    if not stat.S_ISREG(there.st_mode):
        return True
    ours = []
    for number in (1, 2):
        with suppress(OSError):
            ours.append(os.fstat(number))
    return any(os.path.samestat(there, one) for one in ours)


def write_text(path: Path, text: str) -> None:
    """Write text in UTF-8; what a file name holds that is no text is shown as its numbers."""
    write(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    """Write JSON that any reader understands."""
    write(path, dumps(value, indent=1).encode() + b"\n")


def loads(content: bytes | str) -> Any:
    """JSON from a file that anyone may have changed; a ValueError if it is none.

    What is nested deeper than anything we write is none: reading it, or writing it again, would
    end in a RecursionError.

    >>> loads('{"a": [1, null]}')
    {'a': [1, None]}
    """
    try:
        value = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise ValueError("it is nested too deep")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def dumps(value: Any, indent: int | None = None) -> str:
    """Strict JSON with sorted keys; a number that is not finite becomes null.

    >>> dumps({"b": 1.5, "a": float("inf")})
    '{"a": null, "b": 1.5}'
    """
    return json.dumps(_strict(value), indent=indent, sort_keys=True, allow_nan=False)


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value
