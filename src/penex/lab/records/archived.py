"""The records of a task in one file, read in place: results/cifar10.zip for results/cifar10/.

A file is known by its path in the folder, whether there is a folder or not. What is there comes
first, and the archive beside it fills in. Nothing is taken out of an archive onto the disk.
"""

import errno
import functools
import io
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from penex.lab.data import archives
from penex.lab.ground import files
from penex.lab.ground.errors import LabError, RecordError

SUFFIX = ".zip"

_MARK = b"penex records 1"  # the archive's comment: others that lie there are not ours
_LEVELS = 4  # from a task's folder down to a file of a run
_DATE = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16


def read(path: Path) -> bytes:
    """The content of a file, on the disk or in its task's archive."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return inside(path)


def exists(path: Path) -> bool:
    """Whether a file is there, on the disk or in its task's archive."""
    return path.exists() or holds(path)


def holds(path: Path) -> bool:
    """Whether a file is in its task's archive."""
    return _place(path) is not None


def inside(path: Path) -> bytes:
    """The content of a file in its task's archive."""
    place = _place(path)
    if place is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    archive, name = place
    return archive.content(name)


def names(folder: Path) -> list[str]:
    """The files in the archive that stands for a folder; none if there is no archive."""
    archive = _archive(_beside(folder))
    return [] if archive is None else sorted(archive.members)


def folder_of(archive: Path) -> Path:
    """The folder that an archive stands for; a sentence if it is none of records."""
    if _archive(archive) is None:
        raise LabError(
            f"{archive} is no archive of records: `python -m benchmarks.pack_results` makes one, "
            "and penex report takes it or the folder of a comparison."
        )
    return archive.with_suffix("")


def pack(content: Mapping[str, bytes], folder: Path) -> Path:
    """Write the archive that stands for a folder: the same one for the same files; its path.

    Args:
        content: the files, by their names in the folder.
        folder: of the task.
    """
    archive = _beside(folder)
    with files.writing(archive) as file:
        write(content, file)
    return archive


def write(content: Mapping[str, bytes], file: BinaryIO) -> None:
    """Write files into an archive: the same one for the same files.

    Args:
        content: the files, by their names.
        file: to write to.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
        made.comment = _MARK
        for name in sorted(content):
            member = zipfile.ZipInfo(name, _DATE)
            member.external_attr, member.create_system = _MODE, 3
            made.writestr(member, content[name], zipfile.ZIP_DEFLATED, 9)


class _Archive:
    """An archive of ours, held in memory: it stays whole if its file is replaced.

    Args:
        path: of the file.
        opened: the archive.
    """

    def __init__(self, path: Path, opened: zipfile.ZipFile) -> None:
        self._path, self._opened = path, opened
        self.members = frozenset(opened.namelist())
        for member in opened.infolist():
            archives.check_member(path, member)
        if why := archives.against(opened, path.stat().st_size):
            raise RecordError(f"{path} is refused: {why}.")

    def content(self, name: str) -> bytes:
        """A file; a RecordError if it is not as it was written."""
        try:
            return archives.content(self._opened, name)
        except _BROKEN as error:
            raise _damaged(self._path, error) from error


_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)


def _place(path: Path) -> tuple[_Archive, str] | None:
    """The archive that has a file, and the file's name there; None if there is none."""
    for folder in path.parents[:_LEVELS]:
        if folder.name in ("", ".."):
            break
        archive = _archive(_beside(folder))
        name = path.relative_to(folder).as_posix()
        if archive is not None and name in archive.members:
            return archive, name
    return None


def _beside(folder: Path) -> Path:
    return folder.with_name(folder.name + SUFFIX)


def _archive(path: Path) -> _Archive | None:
    try:
        there = path.stat()
    except (OSError, ValueError):  # a name that no file can have
        return None
    return _opened(path, (there.st_ino, there.st_mtime_ns, there.st_size))


@functools.lru_cache(maxsize=8)  # a table has four tasks
def _opened(path: Path, version: tuple[int, int, int]) -> _Archive | None:
    """The archive of a file, which is another one when its version changes; None if not ours."""
    if not path.is_file():
        return None
    try:
        with zipfile.ZipFile(path) as there:
            if there.comment != _MARK:
                return None
        return _Archive(path, zipfile.ZipFile(io.BytesIO(path.read_bytes())))
    except LabError as error:
        raise RecordError(str(error)) from error
    except _BROKEN as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> RecordError:
    return RecordError(
        f"{path} is damaged: {error}. Nothing was changed; get the file again, or move it away."
    )
