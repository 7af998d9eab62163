"""What surrounds training, whoever asks for it: device, progress, trackers, a clean stop."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self, TextIO

from penex.lab.ground import environment, ranks
from penex.lab.ground.errors import LabError
from penex.lab.ground.processes import half_launched
from penex.lab.ground.sentences import count, visible
from penex.lab.ground.stop import stoppable
from penex.lab.records import Json, Record
from penex.lab.tasks.runs import Run
from penex.lab.training import flow
from penex.lab.training.pace import Pace
from penex.lab.training.place import Engine, Hooks, Place
from penex.lab.training.sinks import Tracker

EngineName = Literal["local", "ray"]

_LINE_SECONDS = 10.0
_MOST_PACKED = 1000


class Watcher(Protocol):
    """Someone who is told how a set of runs goes on; the pace says how long it takes."""

    pace: Pace

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def begin(self, run: Run, epochs: int) -> None:
        """A run starts, or goes on after some epochs."""

    def epoch(self, run: Run, line: Json) -> None:
        """A run finished an epoch."""

    def done(self, run: Run, record: Record, reused: bool) -> None:
        """A run is over, or was already."""

    def say(self, text: str) -> None:
        """Say something beside the progress."""


class Silent:
    """The watcher of the processes that do not write."""

    pace = Pace(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, run: Run, epochs: int) -> None:
        """Nothing."""

    def epoch(self, run: Run, line: Json) -> None:
        """Nothing."""

    def done(self, run: Run, record: Record, reused: bool) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""


class Lines(Silent):
    """Progress as plain lines, for logs: one a run, and one now and then while runs train."""

    def __init__(self, total: int, file: TextIO) -> None:
        self.total, self.file = total, file
        self.number, self.reused, self.spoke = 0, 0, time.monotonic()
        self.training: set[int] = set()  # more than one is a pack, or several on other machines

    def __exit__(self, *_: object) -> None:
        if self.reused:
            were = "was" if self.reused == 1 else "were"
            self.say(f"{self.reused} of {count(self.total, 'run')} {were} there already.")

    def begin(self, run: Run, epochs: int) -> None:
        """Say that a run is resumed."""
        self.spoke = time.monotonic()
        self.training.add(id(run))
        if epochs:
            place = self.number + len(self.training)
            self.say(f"[{place}/{self.total}] {name_of(run)}: resumed after epoch {epochs}")

    def epoch(self, run: Run, line: Json) -> None:
        """Say where a run is, or the pack that it is part of, if nothing was said for a while."""
        if time.monotonic() - self.spoke >= _LINE_SECONDS:
            together = f", {len(self.training)} runs side by side" if len(self.training) > 1 else ""
            place = f"[{self.number + 1}/{self.total}]"
            left = f", {text}" if (text := self.pace.words()) else ""
            self.say(f"{place} {name_of(run)}{together}: {_progress(run, line)}{left}")

    def done(self, run: Run, record: Record, reused: bool) -> None:
        """Say how a run ended, if it was trained now."""
        self.number += 1
        self.training.discard(id(run))
        if reused:
            self.reused += 1
        else:
            self.say(f"[{self.number}/{self.total}] {name_of(run)}: {_ending(record)}")

    def say(self, text: str) -> None:
        """Say it in a line of its own."""
        print(visible(text), file=self.file, flush=True)
        self.spoke = time.monotonic()


def _plan(planned: Sequence[Run]) -> str:
    """What is to be trained, in words."""
    losses = len({run.label for run in planned})
    seeds, sizes = ({getattr(run, name) for run in planned} for name in ("seed", "train_size"))
    parts = [count(losses, "loss", "losses"), count(len(seeds), "seed")]
    parts += [count(len(sizes), "training size")] if len(sizes) > 1 else []
    return f"{planned[0].task.name}: {count(len(planned), 'run')} ({', '.join(parts)})"


def name_of(run: Run) -> str:
    """A run in a few words."""
    return f"{run.task.name} {run.label} n={run.train_size} seed {run.seed}"


def _progress(run: Run, line: Json) -> str:
    accuracy = line["validation"]["accuracy"]
    where = f"epoch {line['epoch']}/{run.recipe.epochs}"
    return f"{where}, validation accuracy {accuracy:.4f}{flow.words(line)}"


def _ending(record: Record) -> str:
    done = record.done()
    if done["status"] == "diverged":
        return f"diverged: {done['reason']}"
    test = done["test"]
    accuracy, entropy = test["accuracy"], test["cross_entropy"]
    shown = "not finite" if entropy is None else f"{entropy:.4f}"
    return f"accuracy {accuracy:.4f}, cross-entropy {shown}, {done['wall_time']:.1f} s"


def pack_size(text: str) -> int | None:
    """What --pack says: None is auto."""
    if text in ("auto", "off"):
        return None if text == "auto" else 1
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_PACKED:
        raise LabError(f"--pack is auto, off, or a number from 1 to {_MOST_PACKED}; got {text!r}.")
    return int(text)


class Session(NamedTuple):
    """What a command that trains needs: where, and how to say something beside the progress."""

    place: Place
    say: Callable[[str], None]


@contextlib.contextmanager
def open_session(
    watcher: Watcher,
    device: str,
    out: Path,
    save_seconds: float,
    track: str | None = None,
    planned: Sequence[Run] = (),
    *,
    keep_checkpoints: bool = False,
    engine: EngineName = "local",
) -> Iterator[Session]:
    """The device, the other processes if torchrun started some, progress, trackers, Ctrl-C.

    Args:
        watcher: who is told.
        device: by its name.
        out: the folder for records.
        save_seconds: how often to save a checkpoint.
        track: where else to log, if anywhere.
        planned: the runs, if they are known before: how long they take is said then.
        keep_checkpoints: whether a run that is done keeps its last one.
        engine: who trains: this process, or the nodes of a Ray cluster.
    """
    tracker = Tracker(track, out)
    # Where Ray trains this process only looks at the data, and may have no GPU.
    where = environment.device_of(device if engine == "local" else "cpu")
    watcher.pace = pace = Pace(planned)
    begun = False

    def begin(run: Run, epochs: int) -> None:
        nonlocal begun
        if not begun and len(planned) > 1:
            watch.say(f"{_plan(planned)} on {elsewhere or where}.")
        begun = True
        pace.begin(run, epochs)
        tracker.begin(run.config)
        watch.begin(run, epochs)

    def epoch(run: Run, line: Json) -> None:
        tracker.epoch(run.config, line)
        if warning := pace.epoch(run, line["epoch"]):
            watch.say(warning)
        watch.epoch(run, line)

    def done(run: Run, record: Record, reused: bool) -> None:
        tracker.end(run.config)
        pace.done(run)
        watch.done(run, record, reused)

    with (
        _joined(engine, device) as elsewhere,  # Ray handles signals in its own way, so it is first
        ranks.joined(where),
        watcher as watch,
        stoppable() as stop,
        contextlib.closing(tracker),
    ):
        if alone := half_launched():
            watch.say(alone)
        hooks = Hooks(begin, epoch, done, stop, save_seconds, keep_checkpoints, watch.say)
        yield Session(Place(out, where, hooks, elsewhere), watch.say)


@contextlib.contextmanager
def _joined(engine: EngineName, device: str) -> Iterator[Engine | None]:
    """The engine of a name; None for this process itself."""
    if engine == "local":
        yield None
        return
    from penex.lab.training import on_ray

    with on_ray.joined(device) as found:
        yield found
