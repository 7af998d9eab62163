"""What a run leaves on disk. It is all that reports read.

`<out>/<task>/<loss>/<config hash>/seed-<n>/` holds config.json, environment.json, metrics.jsonl
(a line an epoch), predictions.npz, model.json and model.safetensors, checkpoint/ until the run is
done and, last of all, done.json. Every file is JSON, safetensors or a plain npz: readable years
later without this code. Runs that are done may also lie in an archive in the place of their task's
folder.
"""

import hashlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np
from torch import Tensor

from penex.lab.ground import files, locks
from penex.lab.ground.errors import RecordError
from penex.lab.records import identity
from penex.lab.records.reading import (
    BEST,
    CLOCK,
    CONFIG,
    DONE,
    ENVIRONMENT,
    FORMAT,
    METRICS,
    PACK,
    PREDICTIONS,
    Reading,
    is_number,
)
from penex.lab.records.sealing import is_as_sealed, sealed

_LOCK = ".lock"
LASTING = (  # what a run that is done leaves, besides done.json
    CONFIG,
    ENVIRONMENT,
    METRICS,
    PREDICTIONS,
    "scores.npz",
    "model.json",
    "model.safetensors",
    f"{BEST}/model.json",
    f"{BEST}/model.safetensors",
)

LISTING = "comparison.json"  # which runs make one table
KEPT = "comparisons"  # the folder, in a task's, of the lists that others took the place of
ATTRIBUTE = "penex"  # under which a study says how it was made
OBJECTIVE = "cross_entropy"  # of the validation set: what a trial is judged by

Json = identity.Json


def home_of(folder: Path) -> Path:
    """Where the runs lie that the list in a folder names: there, or in the task that kept it."""
    return folder / ".." / ".." if folder.resolve().parent.name == KEPT else folder


class Record(Reading):
    """The folder of one run.

    Args:
        folder: where it is, or will be.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._lock: IO[bytes] | None = None

    @classmethod
    def of(cls, out: Path, config: Json) -> "Record":
        """The place of a run with this configuration."""
        return cls(out / identity.folder_of(config))

    @contextmanager
    def locked(self, *, wait: bool = False) -> Iterator[None]:
        """Keep every other process from writing this run; a killed process lets go by itself.

        Args:
            wait: for a process that has it; a RecordError if nobody waits.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with locks.held(self.folder / _LOCK, wait=wait) as self._lock:
                files.sweep(self.folder)
                yield
        except locks.Busy as error:
            raise RecordError(
                f"Another process is training the run in {self.folder}: wait for it, or choose "
                "another --out."
            ) from error
        finally:
            self._lock = None

    def evict(self) -> None:
        """Take the lock from a process that is stopped: when it wakes up it writes nothing more.

        For someone who knows that the run is another's by now.
        """
        (self.folder / _LOCK).unlink(missing_ok=True)

    def _check_place(self) -> None:
        """A RecordError if someone removed the folder, or took the lock, since it was locked."""
        if self._lock is None:
            return
        with suppress(FileNotFoundError):
            ours = os.fstat(self._lock.fileno())
            there = [(self.folder / name).stat() for name in (_LOCK, CONFIG, ENVIRONMENT)]
            if os.path.samestat(ours, there[0]):
                return
        raise RecordError(
            f"{self.folder} was removed while its run was trained: nothing more is written there. "
            "Give the command again to train the run from its start."
        )

    def begin(self, config: Json, environment: Json) -> None:
        """Write what is known at the start, or check that the run begun here is the same one."""
        if (self.folder / CONFIG).exists():
            if self.config() != json.loads(files.dumps(config)):
                raise RecordError(
                    f"{self.folder / CONFIG} is not the configuration that its folder stands for: "
                    "it was changed. Move the folder away, or choose another --out."
                )
        else:
            files.write_json(self.folder / CONFIG, config)
        path = self.folder / ENVIRONMENT
        if not path.exists():
            files.write_json(path, sealed(environment))
            return
        self.check_data(environment.get("data"))
        first = self.environment()
        later = first.pop("resumed_in", [])
        if not isinstance(later, list):
            raise self._damaged(ENVIRONMENT, "resumed_in is no list")
        if environment not in (first, *later):
            files.write_json(path, sealed({**first, "resumed_in": [*later, environment]}))

    def rewind_metrics(self, epochs: int, lines_sha256: str = "") -> None:
        """Keep the lines of the first epochs: a resumed run writes the later ones again.

        Args:
            epochs: how many.
            lines_sha256: what `keep_metrics` said of these lines; empty if nobody asked it.
        """
        path = self.folder / METRICS
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if len(lines) < epochs:
            raise RecordError(
                f"{path} has {len(lines)} lines, but its run was saved after {epochs} epochs. "
                f"Remove {self.folder} to train this run again."
            )
        content = b"".join(lines[:epochs])
        if lines_sha256 not in ("", hashlib.sha256(content).hexdigest()):
            raise self._damaged(METRICS, "its lines are not those that were saved")
        files.write(path, content)

    def add_metrics(self, line: Json) -> None:
        """Append the line of an epoch."""
        self._check_place()
        path = self.folder / METRICS
        with files.naming(path), path.open("a") as file:
            file.write(files.dumps(line) + "\n")

    def keep_metrics(self) -> str:
        """Make sure that the lines are on the disk for a checkpoint to find them; their sum."""
        self._check_place()
        path = self.folder / METRICS
        if not path.exists():
            return hashlib.sha256(b"").hexdigest()
        with path.open("rb") as file:
            os.fsync(file.fileno())
            return hashlib.file_digest(file, "sha256").hexdigest()

    def write_predictions(self, temperature: float, **logits_and_targets: Tensor) -> None:
        """Write the logits as the model gave them, the targets, and the loss's temperature."""
        self._check_place()
        arrays = {name: value.cpu().numpy() for name, value in logits_and_targets.items()}
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer, allow_pickle=False, temperature=np.float64(temperature), **arrays
        )
        files.write(self.folder / PREDICTIONS, buffer.getvalue())

    def add_time(self, seconds: float) -> float:
        """Add to the time that was spent on this run, over all processes that came and went."""
        path = self.folder / CLOCK
        # No clock is the first process; a damaged one is not worth a run.
        with suppress(OSError, ValueError, TypeError, KeyError):
            before = files.loads(path.read_text())["seconds"]
            seconds += before if is_number(before) and before > 0 else 0.0
        files.write_json(path, {"seconds": seconds})
        return seconds

    def join(self, pack: list[str]) -> None:
        """Note which runs this one is trained with, in their order, until it is done."""
        files.write_json(self.folder / PACK, sealed({"runs": pack}))

    def pack(self) -> list[str]:
        """The runs that this one, which is not done, was trained with; empty if there are none."""
        if not self.has(PACK):
            return []
        content = self._json(PACK)
        found = content.get("runs")
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise self._damaged(PACK, "it does not name the runs of a pack")
        if not is_as_sealed(content):
            raise self._damaged(PACK, "it was changed")
        return found

    def finish(self, done: Json, *, keep_checkpoint: bool = False) -> None:
        """Write done.json, with the checksums of the files that a report reads."""
        self.keep_metrics()
        sums = {name: _sha256(path) for name in LASTING if (path := self.folder / name).exists()}
        done = {"format": FORMAT, "keeps_checkpoint": keep_checkpoint, **done, "sha256": sums}
        files.write_json(self.folder / DONE, sealed(done))
        try:
            self._check_place()
        except RecordError:  # removed in this very moment: a run is whole or absent
            (self.folder / DONE).unlink(missing_ok=True)
            raise
        self._tidy(done)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
