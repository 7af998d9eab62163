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
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from torch import Tensor

from penex.lab import archived, files, identity, locks
from penex.lab.errors import RecordError

FORMAT = 1

_CONFIG, _ENVIRONMENT, _METRICS = "config.json", "environment.json", "metrics.jsonl"
_PREDICTIONS, _DONE, _LOCK = "predictions.npz", "done.json", ".lock"
_CLOCK, _PACK = "clock.json", "pack.json"  # until the run is done
_LASTING = (
    _CONFIG,
    _ENVIRONMENT,
    _METRICS,
    _PREDICTIONS,
    "scores.npz",
    "model.json",
    "model.safetensors",
)

LISTING = "comparison.json"  # which runs make one table
KEPT = "comparisons"  # the folder, in a task's, of the lists that others took the place of
ATTRIBUTE = "penex"  # under which a study says how it was made
OBJECTIVE = "cross_entropy"  # of the validation set: what a trial is judged by

Json = identity.Json

_LARGEST = 1e30  # of a metric: what is beyond it was not measured


def home_of(folder: Path) -> Path:
    """Where the runs lie that the list in a folder names: there, or in the task that kept it."""
    return folder / ".." / ".." if folder.resolve().parent.name == KEPT else folder


def seal(content: Json) -> str:
    """The checksum of what a file holds, without itself.

    >>> seal({"status": "completed", "seal": "x"}) == seal({"status": "completed"})
    True
    """
    rest = {key: value for key, value in content.items() if key != "seal"}
    return hashlib.sha256(files.dumps(rest).encode()).hexdigest()


def sealed(content: Json) -> Json:
    """What is written with its own checksum inside."""
    return {**content, "seal": seal(content)}


def is_as_sealed(content: Json) -> bool:
    """Whether what was read is what was sealed; what an earlier version wrote has no seal."""
    return content.get("seal") in (None, seal(content))


class Record:
    """The folder of one run.

    Args:
        folder: where it is, or will be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: IO[bytes] | None = None

    @classmethod
    def of(cls, out: Path, config: Json) -> "Record":
        """The place of a run with this configuration."""
        return cls(out / identity.folder_of(config))

    def __repr__(self) -> str:
        return f"Record({str(self.folder)!r})"

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint."""
        return self.folder / "checkpoint"

    @property
    def is_done(self) -> bool:
        """Whether the run came to its end, completed or diverged."""
        return archived.exists(self.folder / _DONE)

    # What is written, in this order.

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process from writing this run; a killed process lets go by itself."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with locks.held(self.folder / _LOCK, wait=False) as self._lock:
                files.sweep(self.folder)
                yield
        except locks.Busy as error:
            raise RecordError(
                f"Another process is training the run in {self.folder}: wait for it, or choose "
                "another --out."
            ) from error
        finally:
            self._lock = None

    def _check_place(self) -> None:
        """A RecordError if the folder is no longer the one that was locked: someone removed it."""
        if self._lock is None:
            return
        with suppress(FileNotFoundError):
            ours = os.fstat(self._lock.fileno())
            there = [(self.folder / name).stat() for name in (_LOCK, _CONFIG, _ENVIRONMENT)]
            if os.path.samestat(ours, there[0]):
                return
        raise RecordError(
            f"{self.folder} was removed while its run was trained: nothing more is written there. "
            "Give the command again to train the run from its start."
        )

    def begin(self, config: Json, environment: Json) -> None:
        """Write what is known at the start, or check that the run begun here is the same one."""
        if (self.folder / _CONFIG).exists():
            if self.config() != json.loads(files.dumps(config)):
                raise RecordError(
                    f"{self.folder / _CONFIG} is not the configuration that its folder stands for: "
                    "it was changed. Move the folder away, or choose another --out."
                )
        else:
            files.write_json(self.folder / _CONFIG, config)
        path = self.folder / _ENVIRONMENT
        if not path.exists():
            files.write_json(path, sealed(environment))
            return
        first = self.environment()
        later = first.pop("resumed_in", [])
        if not isinstance(later, list):
            raise self._damaged(_ENVIRONMENT, "resumed_in is no list")
        if environment not in (first, *later):
            files.write_json(path, sealed({**first, "resumed_in": [*later, environment]}))

    def rewind_metrics(self, epochs: int, lines_sha256: str = "") -> None:
        """Keep the lines of the first epochs: a resumed run writes the later ones again.

        Args:
            epochs: how many.
            lines_sha256: what `keep_metrics` said of these lines; empty if nobody asked it.
        """
        path = self.folder / _METRICS
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if len(lines) < epochs:
            raise RecordError(
                f"{path} has {len(lines)} lines, but its run was saved after {epochs} epochs. "
                f"Remove {self.folder} to train this run again."
            )
        content = b"".join(lines[:epochs])
        if lines_sha256 not in ("", hashlib.sha256(content).hexdigest()):
            raise self._damaged(_METRICS, "its lines are not those that were saved")
        files.write(path, content)

    def add_metrics(self, line: Json) -> None:
        """Append the line of an epoch."""
        self._check_place()
        path = self.folder / _METRICS
        with files.naming(path), path.open("a") as file:
            file.write(files.dumps(line) + "\n")

    def keep_metrics(self) -> str:
        """Make sure that the lines are on the disk for a checkpoint to find them; their sum."""
        self._check_place()
        path = self.folder / _METRICS
        if not path.exists():
            return hashlib.sha256(b"").hexdigest()
        with path.open("rb") as file:
            os.fsync(file.fileno())
            return hashlib.file_digest(file, "sha256").hexdigest()

    def write_predictions(self, temperature: float, **logits_and_targets: Tensor) -> None:
        """Write the logits as the model gave them, the targets, and the loss's temperature."""
        arrays = {name: value.cpu().numpy() for name, value in logits_and_targets.items()}
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer, allow_pickle=False, temperature=np.float64(temperature), **arrays
        )
        files.write(self.folder / _PREDICTIONS, buffer.getvalue())

    def add_time(self, seconds: float) -> float:
        """Add to the time that was spent on this run, over all processes that came and went."""
        path = self.folder / _CLOCK
        # No clock is the first process; a damaged one is not worth a run.
        with suppress(OSError, ValueError, TypeError, KeyError):
            before = files.loads(path.read_text())["seconds"]
            seconds += before if is_number(before) and before > 0 else 0.0
        files.write_json(path, {"seconds": seconds})
        return seconds

    def join(self, pack: list[str]) -> None:
        """Note which runs this one is trained with, in their order, until it is done."""
        files.write_json(self.folder / _PACK, sealed({"runs": pack}))

    def pack(self) -> list[str]:
        """The runs that this one, which is not done, was trained with; empty if there are none."""
        if not self.has(_PACK):
            return []
        content = self._json(_PACK)
        found = content.get("runs")
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise self._damaged(_PACK, "it does not name the runs of a pack")
        if not is_as_sealed(content):
            raise self._damaged(_PACK, "it was changed")
        return found

    def finish(self, done: Json, *, keep_checkpoint: bool = False) -> None:
        """Write done.json, with the checksums of the files that a report reads."""
        self.keep_metrics()
        sums = {name: _sha256(path) for name in _LASTING if (path := self.folder / name).exists()}
        done = {"format": FORMAT, "keeps_checkpoint": keep_checkpoint, **done, "sha256": sums}
        files.write_json(self.folder / _DONE, sealed(done))
        try:
            self._check_place()
        except RecordError:  # removed in this very moment: a run is whole or absent
            (self.folder / _DONE).unlink(missing_ok=True)
            raise
        self._tidy(done)

    def _tidy(self, done: Json) -> None:
        for name in (_CLOCK, _PACK):
            (self.folder / name).unlink(missing_ok=True)
        # A run of an earlier version, which does not say, keeps its checkpoint.
        if done["status"] == "diverged" or done.get("keeps_checkpoint") is False:
            shutil.rmtree(self.checkpoint, ignore_errors=True)

    # What is read.

    def config(self) -> Json:
        """The resolved configuration."""
        config = self._json(_CONFIG)
        self._check_format(_CONFIG, config)
        return config

    def environment(self) -> Json:
        """Versions, device, revision and checksums of the data."""
        found = self._json(_ENVIRONMENT)
        if not is_as_sealed(found):
            raise self._damaged(_ENVIRONMENT, "it was changed")
        found.pop("seal", None)
        return found

    def done(self) -> Json:
        """How the run ended: its status, metrics, spreads, time and memory."""
        done = self._json(_DONE)
        self._check_format(_DONE, done)
        status = done.get("status")
        if status not in ("completed", "diverged"):
            raise self._damaged(_DONE, f"its status is {status!r}")
        if status == "diverged" and not isinstance(done.get("reason"), str):
            raise self._damaged(_DONE, "it does not say why the run diverged")
        for part in ("validation", "validation_spread", "test", "test_spread"):
            values = done.get(part, {})
            numbers = isinstance(values, dict) and all(map(is_number, values.values()))
            if not numbers or not (values or status == "diverged"):
                raise self._damaged(_DONE, f"{part} lacks a metric, or its number")
        if not isinstance(done.get("sha256"), dict):
            raise self._damaged(_DONE, "it has no checksums")
        if not is_number(done.get("wall_time")):
            raise self._damaged(_DONE, "its wall_time is no number")
        if not is_as_sealed(done):
            raise self._damaged(_DONE, "it was changed after the run")
        return done

    def verify(self) -> None:
        """A RecordError if the run is not done or a file is not the one that done.json knows."""
        done = self.done()
        self.config()
        for name in (_CONFIG, _ENVIRONMENT, _METRICS, *done["sha256"]):
            self._checked(name)
        with suppress(OSError):  # a record may be read where nothing can be written
            self._tidy(done)  # a process killed right after done.json did not

    def metrics(self) -> list[Json]:
        """A line an epoch; those that are whole, if the run is not done."""
        lines = self._checked(_METRICS).decode().splitlines()
        try:
            return [files.loads(line) for line in lines]
        except ValueError as error:
            if self.is_done:
                raise self._damaged(_METRICS, str(error)) from error
            return [files.loads(line) for line in lines[:-1]]

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        path = self.folder / name
        return archived.holds(path) if self._is_archived else path.exists()

    @property
    def _is_archived(self) -> bool:
        """Whether the run is done in its task's archive alone: then all of it is read there."""
        path = self.folder / _DONE
        return not path.exists() and archived.holds(path)

    def predictions(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of predictions.npz."""
        return self.arrays(_PREDICTIONS)

    def arrays(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of an .npz file of this record."""
        content = self._checked(name)
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays.files}
        except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
            raise self._damaged(name, str(error)) from error

    def vouched(self, name: str, done: Json) -> bytes:
        """The content of a file, if it is the one that a done.json vouches for."""
        content = self.content(name)
        if hashlib.sha256(content).hexdigest() != done["sha256"].get(name):
            raise self._damaged(name, "its checksum is not the one in done.json")
        return content

    def _checked(self, name: str) -> bytes:
        if self.is_done:
            return self.vouched(name, self.done())
        return self.content(name) if name != _METRICS or self.has(name) else b""

    def content(self, name: str) -> bytes:
        """The content of a file, whatever it is."""
        try:
            if self._is_archived:
                return archived.inside(self.folder / name)
            return (self.folder / name).read_bytes()
        except OSError as error:
            why = str(error.strerror) if self.has(name) else "it is missing"
            raise self._damaged(name, why) from error

    def _json(self, name: str) -> Json:
        content = self.content(name)
        try:
            value = files.loads(content)
        except ValueError as error:
            raise self._damaged(name, str(error)) from error
        if not isinstance(value, dict):
            raise self._damaged(name, "it is not an object")
        return value

    def _check_format(self, name: str, value: Json) -> None:
        found = value.get("format")
        if found != FORMAT:
            age = "an older" if isinstance(found, int) and found < FORMAT else "another"
            raise RecordError(
                f"{self.folder / name} was written by {age} version of penex (record format "
                f"{found!r}; this one has {FORMAT}). It is left as it is: choose another --out."
            )

    def _damaged(self, name: str, what: str) -> RecordError:
        return RecordError(
            f"{self.folder / name} is damaged: {what}. Nothing was changed; move the folder away "
            "to train this run again."
        )


def is_number(value: Any) -> bool:
    """Whether a metric is a finite number, or None, which stands for one that is not."""
    return value is None or (type(value) in (int, float) and abs(value) <= _LARGEST)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
