"""Image files decoded into an array on disk, by as many processes as pay."""

import errno
import hashlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penex.lab.data.pixels import decode, reason
from penex.lab.ground import environment
from penex.lab.ground.errors import LabError

_CHUNK = 256
_MANY = 2000
# What may be wrong with one file of many, and right tomorrow; anything else stops the command.
_PASSING = (errno.EACCES, errno.EPERM, errno.EIO)

Progress = Callable[[int, int], None]


class Decoded(NamedTuple):
    """What is known of some files after decoding, a value each.

    Attributes:
        problems: why one has no pixels.
        digests: the checksum of its content; None if it could not be read, which may pass.
        greys: whether it has no colours.
        sizes: its width and height.
    """

    problems: list[str | None]
    digests: list[str | None]
    greys: list[bool]
    sizes: list[tuple[int, int]]


def decode_files(paths: list[Path], size: int, place: Path, progress: Progress) -> Decoded:
    """Decode files into a new array on disk, (N, 3, size, size) bytes.

    Args:
        paths: the files.
        size: the side of the square that they are brought to.
        place: the file for the array.
        progress: (done, total) now and then.
    """
    n = len(paths)
    _write_zeros(place, (n, 3, size, size))
    jobs = [(place, paths[start : start + _CHUNK], start, size) for start in range(0, n, _CHUNK)]
    every = Decoded([], [], [], [])
    with _workers(n) as run:
        for chunk in run(_decode_some, jobs):
            every.problems.extend(chunk.problems)
            every.digests.extend(chunk.digests)
            every.greys.extend(chunk.greys)
            every.sizes.extend(chunk.sizes)
            progress(len(every.problems), n)
    return every


def _write_zeros(path: Path, shape: tuple[int, ...]) -> None:
    np.lib.format.open_memmap(path, "w+", dtype=np.uint8, shape=shape).flush()
    if hasattr(os, "posix_fallocate"):  # a full disk shall say so now, not kill us later
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


@contextmanager
def _workers(n: int) -> Iterator[Callable[..., Iterable[Decoded]]]:
    """A map over processes for many files: Pillow holds the interpreter most of the time.

    Where the system can, workers are forked: they start at once and touch nothing of torch.
    """
    if n < _MANY or environment.cores() == 1:
        yield map
        return
    kind = "fork" if sys.platform == "linux" else "spawn"
    context = multiprocessing.get_context(kind)
    pool = ProcessPoolExecutor(environment.cores(), mp_context=context, initializer=begin_worker)
    try:
        yield pool.map
    except BrokenProcessPool as error:
        raise LabError(
            "A process that decodes images was killed: by lack of memory, or by a file that makes "
            "a decoder crash."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def begin_worker() -> None:
    """A worker ends with its parent, however that ends; to Ctrl-C its parent answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _decode_some(job: tuple[Path, list[Path], int, int]) -> Decoded:
    """Decode some files into their rows of the array."""
    place, paths, start, size = job
    array = np.load(place, mmap_mode="r+")
    n = len(paths)
    decoded = Decoded([None] * n, [None] * n, [True] * n, [(0, 0)] * n)
    for k, path in enumerate(paths):
        try:
            content = path.read_bytes()
            decoded.digests[k] = hashlib.sha256(content).hexdigest()
            if not content:
                raise ValueError("the file is empty")
            array[start + k], decoded.greys[k], decoded.sizes[k] = decode(content, size)
        except MemoryError as error:
            raise LabError(f"There is not enough memory to decode {path}.") from error
        except OSError as error:
            if error.errno is not None and error.errno not in _PASSING:
                error.filename = str(path)
                raise
            decoded.problems[k] = error.strerror or reason(error)
            if error.errno is not None or "out of memory" in str(error):
                decoded.digests[k] = None
        except Exception as error:  # Pillow's plugins raise all kinds
            decoded.problems[k] = reason(error)
    return decoded
