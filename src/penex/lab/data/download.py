"""Getting files: resumable, verified."""

import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO

from penex.lab.data.archives import extract
from penex.lab.data.catalogue import Official, md5_of
from penex.lab.ground.errors import LabError

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
        try:
            fetch(entry.url, target, progress)
        except LabError as error:
            known = f", whose MD5 sum is {entry.md5}," if entry.md5 else ""
            raise LabError(
                f"{error} Or get {entry.file}{known} in another way, put it at "
                f"{target.resolve()}, and give the same command."
            ) from error
    if entry.md5 is not None and md5_of(target) != entry.md5:
        notes.append(
            f"The checksum of {target} is not the published {entry.md5}: another version, or a "
            "damaged file; remove it to get it again."
        )
    if entry.folder is None:
        return target, notes
    folder = root / entry.folder
    if not folder.exists():
        extract(target, entry.folder, root)
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
            f"{url} cannot be loaded: {reason}. What came is kept; the same command goes on."
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
