"""A run as it is read from its folder, or from its task's archive: checked, and never changed."""

import hashlib
import io
import shutil
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from penex.lab.data import archives
from penex.lab.ground import files
from penex.lab.ground.errors import RecordError
from penex.lab.records import archived
from penex.lab.records.identity import Json
from penex.lab.records.sealing import is_as_sealed

FORMAT = 1

CONFIG, ENVIRONMENT, METRICS = "config.json", "environment.json", "metrics.jsonl"
PREDICTIONS, DONE = "predictions.npz", "done.json"
BEST = "best"  # the folder of the network after its best epoch, if that was not the last
CLOCK, PACK = "clock.json", "pack.json"  # until the run is done

CALIBRATED = "calibrated"  # at a temperature fitted to the validation set
_PARTS = ("validation", "validation_spread", "test", "test_spread")
_MARK = {CALIBRATED: "temperature", BEST: "epoch"}

_LARGEST = 1e30  # of a metric: what is beyond it was not measured

_CHECKSUMS = ("md5", "sha256", "labels")  # among facts about data: of what a model learns from


class Reading:
    """The folder of one run, as it is read: there, or in its task's archive.

    Args:
        folder: where it is, or will be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        return f"Record({str(self.folder)!r})"

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint."""
        return self.folder / "checkpoint"

    @property
    def is_done(self) -> bool:
        """Whether the run came to its end, completed or diverged."""
        return archived.exists(self.folder / DONE)

    def config(self) -> Json:
        """The resolved configuration."""
        config = self._json(CONFIG)
        self._check_format(CONFIG, config)
        return config

    def environment(self) -> Json:
        """Versions, device, revision and checksums of the data."""
        found = self._json(ENVIRONMENT)
        if not is_as_sealed(found):
            raise self._damaged(ENVIRONMENT, "it was changed")
        found.pop("seal", None)
        return found

    def check_data(self, facts: Json | None) -> None:
        """A RecordError if the run was trained, or begun, on data with other checksums.

        Args:
            facts: about the data as they are now; None if there are none.
        """
        if other := difference(self.environment().get("data"), facts):
            raise RecordError(
                f"The run in {self.folder} was trained on other data: the checksum{other}. Nothing "
                "was changed; choose another --out, or move the folder away to train this run "
                "again."
            )

    def done(self) -> Json:
        """How the run ended: its status, metrics, spreads, time and memory."""
        done = self._json(DONE)
        self._check_format(DONE, done)
        status = done.get("status")
        if status not in ("completed", "diverged"):
            raise self._damaged(DONE, f"its status is {status!r}")
        if status == "diverged" and not isinstance(done.get("reason"), str):
            raise self._damaged(DONE, "it does not say why the run diverged")
        if wrong := _wrong(done, may_be_empty=status == "diverged"):
            raise self._damaged(DONE, f"{wrong} lacks a metric, or its number")
        if not isinstance(done.get("sha256"), dict):
            raise self._damaged(DONE, "it has no checksums")
        if not is_number(done.get("wall_time")):
            raise self._damaged(DONE, "its wall_time is no number")
        if not is_as_sealed(done):
            raise self._damaged(DONE, "it was changed after the run")
        return done

    def verify(self) -> None:
        """A RecordError if the run is not done or a file is not the one that done.json knows."""
        done = self.done()
        self.config()
        for name in (CONFIG, ENVIRONMENT, METRICS, *done["sha256"]):
            self._checked(name)
        with suppress(OSError):  # a record may be read where nothing can be written
            self._tidy(done)  # a process killed right after done.json did not

    def metrics(self) -> list[Json]:
        """A line an epoch; those that are whole, if the run is not done."""
        lines = self._checked(METRICS).decode().splitlines()
        try:
            return [files.loads(line) for line in lines]
        except ValueError as error:
            if self.is_done:
                raise self._damaged(METRICS, str(error)) from error
            return [files.loads(line) for line in lines[:-1]]

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        path = self.folder / name
        return archived.holds(path) if self._is_archived else path.exists()

    @property
    def _is_archived(self) -> bool:
        """Whether the run is done in its task's archive alone: then all of it is read there."""
        path = self.folder / DONE
        return not path.exists() and archived.holds(path)

    def predictions(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of predictions.npz."""
        return self.arrays(PREDICTIONS)

    def arrays(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of an .npz file of this record."""
        content = self._checked(name)
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as opened:
                if why := archives.against(opened, len(content)):
                    raise self._damaged(name, why)
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
        return self.content(name) if name != METRICS or self.has(name) else b""

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

    def _tidy(self, done: Json) -> None:
        for name in (CLOCK, PACK):
            (self.folder / name).unlink(missing_ok=True)
        # A run of an earlier version, which does not say, keeps its checkpoint.
        if done["status"] == "diverged" or done.get("keeps_checkpoint") is False:
            shutil.rmtree(self.checkpoint, ignore_errors=True)


def _wrong(judged: Json, *, may_be_empty: bool) -> str:
    """Which part of a judgement is none; the later ones need not be there."""
    for part in _PARTS:
        values = judged.get(part, {})
        numbers = isinstance(values, dict) and all(map(is_number, values.values()))
        if not numbers or not (values or may_be_empty):
            return part
    for name in (CALIBRATED, BEST):
        if (found := judged.get(name)) is not None:
            sound = isinstance(found, dict) and is_number(found.get(_MARK[name]))
            wrong = _wrong(found, may_be_empty=False) if sound else name
            if wrong:
                return wrong if wrong == name else f"{name}.{wrong}"
    return ""


def checksums(facts: Json | None) -> Json:
    """Those of the facts about data that are checksums of what a model learns from."""
    return {kind: facts[kind] for kind in _CHECKSUMS if facts and facts.get(kind)}


def difference(known: Any, facts: Json | None) -> str:
    """In which checksum data differ from what was known of them; empty if in none.

    >>> difference({"md5": "1", "labels": {"a": "2"}}, {"md5": "1", "labels": {"a": "3"}})
    ' of a is 3 now and was 2 then'
    """
    before = known if isinstance(known, dict) else {}
    for kind in _CHECKSUMS:
        then, now = _by_name(before.get(kind)), _by_name((facts or {}).get(kind))
        if then and now and then != now:
            name = next(name for name in (*now, *then) if then.get(name) != now.get(name))
            of = f" of {name}" if name else ""
            return f"{of} is {now.get(name)} now and was {then.get(name)} then"
    return ""


def _by_name(sums: Any) -> Json:
    """Checksums by the name of what they are of; a single one has no name."""
    if sums is None:
        return {}
    return sums if isinstance(sums, dict) else {"": sums}


def is_number(value: Any) -> bool:
    """Whether a metric is a finite number, or None, which stands for one that is not."""
    return value is None or (type(value) in (int, float) and abs(value) <= _LARGEST)
