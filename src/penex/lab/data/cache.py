"""Decoded data, kept so that the second start need not decode them again."""

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penex.lab import files

Array = np.ndarray[Any, Any]

_CHUNK = 1 << 24


def root() -> Path:
    """The folder of the cache: PENEX_CACHE, or penex in the user's cache folder."""
    if "PENEX_CACHE" in os.environ:
        return Path(os.environ["PENEX_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penex"


class Entry:
    """An array of bytes and what is known of it, under a key.

    The array is written first; the JSON beside it, with the array's checksum, makes it valid.

    Args:
        key: stands for everything that decides the content.
    """

    def __init__(self, key: str) -> None:
        self._array = root() / f"{key}.npy"
        self._facts = root() / f"{key}.json"
        self._beside = self._array.with_name(f".{key}.{os.getpid()}.tmp")

    def facts(self) -> dict[str, Any] | None:
        """What is known of the array; None if it is not there or not as it was written."""
        try:
            facts: dict[str, Any] = json.loads(self._facts.read_bytes())
            if facts["crc32"] != _crc32(self._array):
                return None
        except (OSError, ValueError, KeyError):
            return None
        return facts

    def array(self) -> Array:
        """The array, read as it is needed; who writes to it writes to memory of its own."""
        array: Array = np.load(self._array, mmap_mode="c", allow_pickle=False)
        return array

    @contextlib.contextmanager
    def writing(self, shape: tuple[int, ...]) -> Iterator[Path]:
        """The file of a new array of zero bytes, to be filled; on an error nothing is left."""
        root().mkdir(parents=True, exist_ok=True)
        try:
            np.lib.format.open_memmap(self._beside, "w+", dtype=np.uint8, shape=shape).flush()
            if hasattr(os, "posix_fallocate"):  # a full disk shall say so now, not kill us later
                with self._beside.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, self._beside.stat().st_size)
            yield self._beside
            self._beside.replace(self._array)
        except BaseException as error:
            with contextlib.suppress(OSError):
                self._beside.unlink(missing_ok=True)
            if isinstance(error, OSError):  # a full disk does not say which file
                error.filename = str(self._array)
            raise

    def finish(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Make the array valid; what is known of it, with its checksums.

        SHA-256 names the content, once; CRC-32 is quick enough to ask for at every start.
        """
        with self._array.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        facts = {**facts, "sha256": digest, "crc32": _crc32(self._array)}
        files.write_json(self._facts, facts)
        return facts


def _crc32(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum
