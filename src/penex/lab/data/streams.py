"""Images that stay in their files: processes decode them a little ahead of who trains on them.

What is seen of an image is a function of a number (of seed and epoch) and of its row, so it is the
same with any number of processes and after a restart. What is in memory is what is decoded ahead,
some crops a process.
"""

import itertools
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from penex.lab.data import pixels
from penex.lab.data.decoding import begin_worker
from penex.lab.ground import environment
from penex.lab.ground.errors import LabError

WORKERS = "PENEX_WORKERS"
_CHUNK = 16  # images that a process decodes at a time
_AHEAD = 4  # such chunks for each process, decoded or being so

Array = np.ndarray[Any, Any]
Instead = Callable[[int], Iterable[int]]


class Job(NamedTuple):
    """Some images to decode.

    Attributes:
        paths: their files.
        rows: their numbers.
        size: the side of what is seen of each.
        draw: what decides the random crops, with the row; None for the middle.
    """

    paths: list[str]
    rows: list[int]
    size: int
    draw: int | None


class Chunk(NamedTuple):
    """Decoded images, (N, 3, size, size), and why those that are black have no pixels."""

    images: Array
    problems: dict[int, str]


def decode(job: Job) -> Chunk:
    """What is seen of some images. A file that cannot be read at all raises an OSError."""
    images = np.zeros((len(job.paths), 3, job.size, job.size), np.uint8)
    problems = {}
    for k, (path, row) in enumerate(zip(job.paths, job.rows, strict=True)):
        # A string is scattered by SHA-512; a number would be taken as it is.
        draws = None if job.draw is None else random.Random(f"{job.draw}/{row}")
        try:
            with open(path, "rb") as file:
                images[k] = pixels.seen(file.read(), job.size, draws)
        except Exception as error:  # Pillow's plugins raise all kinds
            if isinstance(error, OSError) and error.errno is not None:
                raise
            problems[row] = pixels.reason(error)
    return Chunk(images, problems)


def workers() -> int:
    """How many processes decode for this one: PENEX_WORKERS, or its share of the cores."""
    text = os.environ.get(WORKERS, "")
    if not text:
        return max(1, environment.cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if not text.isdecimal() or int(text) > 1024:
        raise LabError(f"{WORKERS} is how many processes decode images, 0 to 1024; got {text!r}.")
    return int(text)


def _begin_worker() -> None:
    """As `decoding` has it; and who is asked to stop may still want images for the last step."""
    begin_worker()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


class Decoders:
    """Processes that decode images, those of all parts of a data set; none before they are needed.

    Attributes:
        number: how many there are; with 0, whoever takes images decodes them.
    """

    def __init__(self) -> None:
        self.number = workers()
        self._pool: ProcessPoolExecutor | None = None
        self._others: list[BaseProcess] = []  # children that were there before

    def start(self, job: Job) -> Future[Chunk] | None:
        """Let a process decode some images."""
        if not self.number:
            return None
        if self._pool is None:
            # Forked where the system can, as in `decoding`: they start at once, and without torch.
            kind = "fork" if sys.platform == "linux" else "spawn"
            context = multiprocessing.get_context(kind)
            self._pool = ProcessPoolExecutor(
                self.number, mp_context=context, initializer=_begin_worker
            )
            self._others = multiprocessing.active_children()
        with self._whole():
            return self._pool.submit(decode, job)

    def result(self, future: Future[Chunk]) -> Chunk:
        """What a process has decoded."""
        with self._whole():
            return future.result()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """A LabError if one of the processes was killed."""
        try:
            yield
        except BrokenProcessPool as error:
            for child in multiprocessing.active_children():  # they do not listen to the pool
                if child not in self._others:
                    child.kill()
            raise LabError(
                "A process that decodes images was killed: by lack of memory, or by a file that "
                f"makes a decoder crash. {WORKERS} says how many there are, now {self.number}."
            ) from error


class Stream:
    """Image files, of which some are decoded ahead, in an order that is announced.

    Args:
        paths: of all images.
        size: the side of what is seen of each.
        decoders: who decodes them.

    Attributes:
        unreadable: the rows that could not be decoded, and why.
        waited: seconds that were spent waiting for images while nothing else was to be done.
        took: how many images were taken.
        expected: who announced what comes next; others must announce anew.
    """

    def __init__(self, paths: Sequence[str], size: int, decoders: Decoders) -> None:
        self.paths, self.size, self._decoders = paths, size, decoders
        self.unreadable: dict[int, str] = {}
        self.waited, self.took = 0.0, 0
        self.expected: object = None
        self._jobs: Iterator[Job] = iter(())
        self._flying: deque[tuple[Job, Future[Chunk] | None]] = deque()
        self._instead: Instead = lambda row: ()

    def announce(
        self, requests: Iterable[Sequence[int]], instead: Instead, draw: int | None
    ) -> None:
        """Say what will be taken next; what was announced before is forgotten.

        Args:
            requests: the rows of each call of `take`, in order; read as they are needed.
            instead: (row) -> the rows that may take its place, the best one first.
            draw: what decides the random crops, with the row; None for the middle of each image.
        """
        for _, future in self._flying:
            if future is not None:
                future.cancel()
        self._flying.clear()
        self._instead = instead
        self._jobs = (
            self._job(list(rows[start : start + _CHUNK]), draw)
            for rows in requests
            for start in range(0, len(rows), _CHUNK)
        )
        self._fill()

    def take(self, n: int, device: torch.device) -> Tensor:
        """The images of the next request, n of them, (n, 3, size, size) uint8 on a device."""
        images = np.empty((n, 3, self.size, self.size), np.uint8)
        done = 0
        while done < n:
            if not self._flying:
                self._fill()
            job, future = self._flying.popleft()
            chunk = self._result(job, future, device)
            self._fill()
            for row in chunk.problems:
                chunk.images[job.rows.index(row)] = self._another(row, chunk.problems[row], job)
            images[done : done + len(job.rows)] = chunk.images
            done += len(job.rows)
        assert done == n, "another number of images was announced"
        self.took += n
        found = torch.from_numpy(images)
        if device.type == "cuda":  # so that the copy does not wait for what the GPU still does
            return found.pin_memory().to(device, non_blocking=True)
        return found.to(device)

    def _job(self, rows: list[int], draw: int | None) -> Job:
        return Job([self.paths[row] for row in rows], rows, self.size, draw)

    def _fill(self) -> None:
        """Let the processes decode as far ahead as there is room."""
        room = _AHEAD * max(1, self._decoders.number) - len(self._flying)
        for job in itertools.islice(self._jobs, room):
            self._flying.append((job, self._decoders.start(job)))

    def _result(self, job: Job, future: Future[Chunk] | None, device: torch.device) -> Chunk:
        if future is not None and future.done():
            return self._decoders.result(future)
        if device.type == "cuda":  # as long as the GPU has something to do, nothing is lost
            torch.cuda.synchronize(device)
        began = time.monotonic()
        chunk = decode(job) if future is None else self._decoders.result(future)
        self.waited += time.monotonic() - began
        return chunk

    def _another(self, row: int, why: str, job: Job) -> Array:
        """What takes the place of an image that cannot be decoded; says so, once."""
        if row not in self.unreadable:
            self.unreadable[row] = why
            print(
                f"{self.paths[row]} cannot be decoded ({why}): the next image of its class takes "
                "its place.",
                file=sys.stderr,
            )
        for other in self._instead(row):
            chunk = decode(self._job([other], job.draw))
            if not chunk.problems:
                image: Array = chunk.images[0]
                return image
        raise LabError(f"No image of the class of {self.paths[row]} can be decoded.")
