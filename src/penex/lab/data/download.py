"""Getting files: resumable, verified; and taking archives apart safely."""

import os
import shutil
import stat
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO

from penex.lab.data.catalogue import Official, md5_of
from penex.lab.errors import LabError

_CHUNK = 1 << 20
_SECONDS = 60
_PARTIAL = 206
_DONE = 416  # the rest of a whole file is out of range

Progress = Callable[[int, int], None]


def get(entry: Official, root: Path, progress: Progress) -> tuple[Path, list[str]]:
    """Get an official data set into a folder; where it is, and sentences for the user.

    A file that is there already is kept, a part of one is completed.
    """
    root.mkdir(parents=True, exist_ok=True)
    target = root / entry.file
    notes = []
    if not target.exists():
        fetch(entry.url, target, progress)
    if entry.md5 is not None and md5_of(target) != entry.md5:
        notes.append(
            f"The checksum of {target} is not the published {entry.md5}: another version, or a "
            "damaged file; remove it to get it again."
        )
    if entry.folder is None:
        return target, notes
    folder = root / entry.folder
    if not folder.exists():
        extract(target, root)
        if not folder.is_dir():
            raise LabError(f"{target} does not contain the folder {entry.folder}.")
    return folder, notes


def fetch(url: str, target: Path, progress: Progress) -> None:
    """Load a file to `target`, by way of target.part, which a second call completes."""
    part = target.with_name(target.name + ".part")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "penex"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            resumed = answer.status == _PARTIAL
            have = have if resumed else 0
            length = answer.headers.get("Content-Length")
            total = have + int(length) if length else 0
            with part.open("ab" if resumed else "wb") as file:
                have = _copy(answer, file, have, total, progress)
    except urllib.error.HTTPError as error:
        if error.code != _DONE:
            raise LabError(f"{url} cannot be loaded: the server says {error.code}.") from error
        total = have
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise LabError(
            f"{url} cannot be loaded: {reason}. What came is kept; the same command goes on. "
            "Without a network, put the file there yourself."
        ) from error
    if total and have < total:
        raise LabError(
            f"{url} ended after {have:,} of {total:,} bytes. What came is kept; the same command "
            "goes on."
        )
    part.replace(target)


def _copy(answer: IO[bytes], file: IO[bytes], have: int, total: int, progress: Progress) -> int:
    while chunk := answer.read(_CHUNK):
        file.write(chunk)
        have += len(chunk)
        progress(have, total)
    return have


def is_archive(path: Path) -> bool:
    """Whether a file is an archive by its name."""
    return path.name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz"))


def extract(archive: Path, root: Path) -> None:
    """Take an archive apart into a folder. One that reaches outside is refused as a whole."""
    root.mkdir(parents=True, exist_ok=True)
    beside = root / f".{archive.name}.{os.getpid()}.parts"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        _unpack(archive, beside)
        for item in beside.iterdir():
            shutil.rmtree(root / item.name, ignore_errors=True)
            item.replace(root / item.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _unpack(archive: Path, folder: Path) -> None:
    try:
        if archive.name.lower().endswith(".zip"):
            with zipfile.ZipFile(archive) as opened:
                for member in opened.infolist():
                    kind = stat.S_IFMT(member.external_attr >> 16)
                    _check(archive, member.filename, plain=kind != stat.S_IFLNK)
                opened.extractall(folder)
            return
        # tarfile takes a damaged header for the end; the checksum of the whole stream tells.
        with tarfile.open(archive) as tape:
            stream = tape.fileobj
            while stream is not None and stream.read(_CHUNK):
                pass
        with tarfile.open(archive) as tape:
            members = tape.getmembers()
            for entry in members:
                _check(archive, entry.name, plain=entry.isfile() or entry.isdir())
            tape.extractall(folder, members=members, filter="data")
    except LabError:
        raise
    except Exception as error:  # archives break in all kinds of ways
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise LabError(
            f"{archive} cannot be taken apart: {error}. It may be truncated or protected; remove "
            "it and get it again."
        ) from error


def _check(archive: Path, name: str, *, plain: bool) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in (path.parts or ("",))[0]:
        raise LabError(
            f"{archive} is refused: its member {name!r} would be written outside its folder."
        )
    if not plain:
        raise LabError(f"{archive} is refused: its member {name!r} is a link or a device.")
