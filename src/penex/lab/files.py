"""Files that are whole or absent: written beside their place, then renamed into it."""

import glob
import json
import math
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from penex.lab.errors import LabError


def check_target(path: Path) -> None:
    """A LabError if no file can be written at a place: said before any work."""
    if not path.parent.is_dir():
        raise LabError(f"There is no folder {path.parent} to write {path.name} into.")
    if path.exists() and not path.is_file():
        raise LabError(f"{path} is no file that can be written anew.")
    if not os.access(path.parent, os.W_OK):
        raise LabError(f"Nothing can be written into the folder {path.parent}.")


def write(path: Path, content: bytes) -> None:
    """Write a file whole, or leave what was there."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its place when all is written; else what was there stays."""
    stem = f".{path.name}.{platform.node()}"
    beside = path.with_name(f"{stem}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException as error:
        with suppress(OSError):  # where nothing can be written, there is nothing to remove
            beside.unlink(missing_ok=True)
        # A full disk does not say which file; the one beside nobody knows.
        if isinstance(error, OSError) and error.filename in (None, str(beside)):
            error.filename = str(path)
        raise
    for other in path.parent.glob(f"{glob.escape(stem)}.*.tmp"):
        number = other.name[len(stem) + 1 : -len(".tmp")]
        if number.isdecimal() and not _is_alive(int(number)):  # it was killed while it wrote
            with suppress(OSError):
                other.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    """Whether a process of this machine lives, as far as one can ask."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # someone else's, or no process's number
        return True
    return True


def write_text(path: Path, text: str) -> None:
    """Write text in UTF-8; what a file name holds that is no text is shown as its numbers."""
    write(path, text.encode(errors="backslashreplace"))


def sweep(folder: Path) -> None:
    """Remove what a killed process left beside the files of a folder that nobody else writes."""
    for beside in folder.rglob(".*.tmp"):
        beside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON that any reader understands."""
    write(path, dumps(value, indent=1).encode() + b"\n")


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
