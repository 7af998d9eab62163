"""Decoded and extracted data, kept so that the second start need not make them again."""

import hashlib
import os
import re
import shutil
import stat
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penex.lab.data import sizes, unfinished
from penex.lab.ground import files
from penex.lab.ground.errors import LabError, unknown

LIMIT = "PENEX_CACHE_LIMIT"
_DEFAULT_LIMIT = 20 * 10**9
_CARD = "entry.json"
# Nothing else in the folder is ours: it may be one that the user keeps other things in.
_OURS = re.compile(r"\.?(images|archive|features)-[0-9a-f]{16}[^/]*")
_CHUNK = 1 << 24

Stamps = dict[str, tuple[int, int]]


def root() -> Path:
    """The folder of the cache: PENEX_CACHE, or penex in the user's cache folder."""
    chosen, base = os.environ.get("PENEX_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen)
    try:
        return (Path(base) if base else Path.home() / ".cache") / "penex"
    except RuntimeError:  # no HOME, and a user whom the system does not know
        raise LabError(
            "There is no home folder to keep decoded data in: set PENEX_CACHE to a folder."
        ) from None


def limit() -> int:
    """How large the cache may become, in bytes: PENEX_CACHE_LIMIT, or 20 GB."""
    text = os.environ.get(LIMIT)
    if text is None:
        return _DEFAULT_LIMIT
    size = sizes.parse(text)
    if size is None:
        raise LabError(f"{LIMIT} is a size like 20GB or 500MB; got {text!r}.")
    return size


@dataclass(frozen=True)
class Entry:
    """A folder of the cache: files, and a card that says what they are and has their checksums.

    Attributes:
        path: where it is.
        facts: what its maker said of it; None if the card is missing, damaged or of an earlier
            version, so that the entry is of no use.
    """

    path: Path
    facts: dict[str, Any] | None

    @property
    def name(self) -> str:
        """Its name."""
        return self.path.name

    @property
    def sources(self) -> list[str]:
        """What it was made from."""
        return list(self.facts["sources"]) if self.facts else []

    @property
    def used(self) -> float:
        """When it was last used, in seconds since 1970."""
        card = self.path / _CARD
        return (card if card.exists() else self.path).lstat().st_mtime

    @property
    def size(self) -> int:
        """How many bytes its files have; none if another process has removed it meanwhile."""
        with suppress(OSError):
            if self.path.is_dir() and not self.path.is_symlink():
                return sum(size for size, _ in _stamps(self.path).values())
            return self.path.lstat().st_size
        return 0

    def is_whole(self) -> bool:
        """Whether its files are there, none besides, with the sizes and times that they had."""
        then = {name: (size, time) for name, size, time, _ in self._listed()}
        return self.facts is not None and self._now() == then

    def is_as_written(self) -> bool:
        """Whether its files are there, none besides, with the content that they had."""
        then = {name: crc for name, _, _, crc in self._listed()}
        if self.facts is None or self._now().keys() != then.keys():
            return False
        with suppress(OSError):
            return all(_crc32(self.path / name) == crc for name, crc in then.items())
        return False

    def _listed(self) -> Iterator[tuple[str, int, int, int]]:
        for name, (size, time, crc) in (self.facts or {}).get("files", {}).items():
            yield name, size, time, crc

    def _now(self) -> Stamps:
        try:
            return {k: v for k, v in _stamps(self.path).items() if _CARD not in k.split(os.sep)[0]}
        except OSError:
            return {}

    def touch(self) -> None:
        """Note that it is used now; a cache that cannot be written to stays as it is."""
        with suppress(OSError):
            os.utime(self.path / _CARD)

    def add_source(self, source: str, stamp: str) -> None:
        """Note that it can be made from this source too, as long as that has this stamp."""
        if self.facts is not None:
            still = {k: v for k, v in self.facts["sources"].items() if os.path.exists(k)}
            facts = {**self.facts, "sources": {**still, source: stamp}}
            with suppress(OSError):
                files.write_json(self.path / _CARD, _sealed(facts))

    def remove(self) -> None:
        """Remove it from the disk. Who has it open keeps what was there."""
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            self.path.unlink(missing_ok=True)


def entries(start: str = "") -> list[Entry]:
    """What lies in the cache under names that begin so, the one not used for longest first.

    What killed processes left there is removed on the way.
    """
    unfinished.sweep(root())
    found = []
    with suppress(OSError):
        for path in root().iterdir():
            if path.name.startswith(start) and _OURS.fullmatch(path.name):
                with suppress(OSError):
                    entry = Entry(path, _facts(path / _CARD))
                    found.append((entry.used, path.name, entry))
    return [entry for _, _, entry in sorted(found, key=lambda one: one[:2])]


def find(name: str) -> Entry:
    """The entry of a name; a LabError with the nearest one if there is none."""
    known = {entry.name: entry for entry in entries()}
    if not known:
        raise LabError(f"The cache in {root()} is empty: there is no {name!r} in it.")
    if name not in known:
        raise unknown("cache entry", name, known, "cache entries")
    return known[name]


def making() -> AbstractContextManager[Path]:
    """A folder to make an entry in; it is for `keep` to take, or gone afterwards."""
    return unfinished.folder(root())


def keep(made: Path, name: str, facts: dict[str, Any]) -> Entry:
    """Put a folder that `making` gave into its place, whole; others make room if they must.

    Args:
        made: the folder with its files.
        name: of the entry; it stands for all that decides its content.
        facts: what its reader needs to know; `sources`: where it came from, and their stamps.
    """
    stamps = _stamps(made)
    listed = {name: [*stamp, _crc32(made / name)] for name, stamp in stamps.items()}
    facts = {**facts, "files": listed}
    files.write_json(made / _CARD, _sealed(facts))
    place = root() / name
    for left in (2, 1, 0):  # another process may put its own there, or take ours for damaged
        try:
            made.rename(place)
            break
        except OSError:
            there = Entry(place, _facts(place / _CARD))
            if there.is_as_written():
                break
            if not left:
                raise
            there.remove()
    _make_room(place)
    return Entry(place, _facts(place / _CARD))


def _make_room(kept: Path) -> None:
    """Remove what was not used for longest until the cache is within its limit."""
    every = entries()
    total = sum(entry.size for entry in every)
    for entry in every:
        if total <= limit():
            return
        if entry.path != kept:
            total -= entry.size
            entry.remove()


def _sealed(facts: dict[str, Any]) -> dict[str, Any]:
    return {"facts": facts, "sha256": _seal(facts)}


def _seal(facts: Any) -> str:
    return hashlib.sha256(files.dumps(facts).encode()).hexdigest()


def _facts(card: Path) -> dict[str, Any] | None:
    """What a card says, if it is one and says what was written."""
    try:
        written = files.loads(card.read_bytes())
        facts: dict[str, Any] = written["facts"]
        return facts if written["sha256"] == _seal(facts) else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _stamps(folder: Path) -> Stamps:
    """The size and time of every file below a folder; what is no plain file counts too."""
    return {
        str(path.relative_to(folder)): (status.st_size, status.st_mtime_ns)
        for path, status in _below(folder)
        if not stat.S_ISDIR(status.st_mode)
    }


def _below(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below a folder, links not followed."""
    left = [folder]
    while left:
        for item in sorted(left.pop().iterdir()):
            status = item.lstat()
            yield item, status
            if stat.S_ISDIR(status.st_mode):
                left.append(item)


def _crc32(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum
