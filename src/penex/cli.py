"""The command line: one function a command; it parses, calls and prints."""

import contextlib
import dataclasses
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro

from penex.lab.compare import FIVE, Comparison
from penex.lab.errors import Interrupted, LabError
from penex.lab.recipe import DType, OptimizerName, Precision, ScheduleName

if TYPE_CHECKING:
    import torch

    from penex.lab.records import Record
    from penex.lab.runs import Hooks, Run

_INTERRUPTED = 130


def _of(metavar: str) -> Any:
    """An option whose default is the task's."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="(default: the task's)")


@dataclasses.dataclass(frozen=True)
class Changes:
    """What is changed in the task's recipe.

    Attributes:
        epochs: passes over the training data.
        lr: learning rate.
        optimizer: how the parameters move.
        batch_size: examples a step.
        schedule: of the learning rate; cosine and linear fall to 0.
        warmup_epochs: how long the learning rate rises.
        clip: largest norm of the gradient.
        accumulate: micro-batches a step, to save memory.
        weight_decay: of the parameters.
        momentum: of sgd.
        matmul_precision: of float32 matrix products.
        autocast: run the model in bfloat16 where that is safe.
        dtype: of the parameters.
    """

    epochs: Annotated[int | None, _of("N")] = None
    lr: Annotated[float | None, _of("RATE")] = None
    optimizer: Annotated[OptimizerName | None, _of("adam|adamw|sgd")] = None
    batch_size: Annotated[int | None, _of("N")] = None
    schedule: Annotated[ScheduleName | None, _of("constant|cosine|linear")] = None
    warmup_epochs: Annotated[float | None, _of("EPOCHS")] = None
    clip: Annotated[float | None, _of("NORM")] = None
    accumulate: Annotated[int | None, _of("N")] = None
    weight_decay: Annotated[float | None, _of("DECAY")] = None
    momentum: Annotated[float | None, _of("MOMENTUM")] = None
    matmul_precision: Annotated[Precision | None, _of("highest|high|medium")] = None
    autocast: Annotated[bool | None, _of("True|False")] = None
    dtype: Annotated[DType | None, _of("float32|float64")] = None

    def given(self) -> dict[str, Any]:
        """What the user gave."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}


_UNCHANGED = Changes()

Recipe = Annotated[Changes, tyro.conf.arg(name="")]
TaskName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]")]
LossNames = Annotated[tuple[str, ...], tyro.conf.arg(metavar="LOSS [LOSS ...]")]
Sizes = Annotated[
    tuple[int, ...], tyro.conf.arg(metavar="N [N ...]", help_behavior_hint="(default: the task's)")
]
Tracker = Annotated[str | None, tyro.conf.arg(metavar="tensorboard|wandb", help_behavior_hint="")]


def compare(
    task: TaskName = "digits",
    /,
    losses: LossNames = FIVE,
    seeds: int = 3,
    train_size: Sizes = (),
    device: str = "auto",
    out: Path = Path("runs"),
    save_seconds: float = 30.0,
    track: Tracker = None,
    recipe: Recipe = _UNCHANGED,
) -> None:
    """Train every loss with every seed, print the table, say which one won.

    Runs that are done are not repeated, a run that was stopped goes on where it was. Records,
    table (Markdown, CSV) and figures (PNG, SVG) lie in OUT/TASK.

    Args:
        task: what to train on.
        losses: names from the registry, with arguments if you like: penex:alpha=0.03.
        seeds: how many; each decides initialisation, split, order and dropout.
        train_size: how many training examples; several numbers repeat the comparison for each.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        out: the folder for records.
        save_seconds: how often to save a checkpoint while training.
        track: also log to tensorboard or wandb.
        recipe: changes.
    """
    from penex.lab.compare import compare as carry_out

    comparison = Comparison(task, losses, seeds, train_size, recipe.given())
    planned = comparison.runs()
    began = time.monotonic()
    with _session(device, track, out, len(planned), save_seconds) as session:
        folder = carry_out(
            comparison,
            out,
            session.device,
            command=_command(),
            hooks=session.hooks,
            done=session.done,
        )
    if _writes():
        _report(folder, time.monotonic() - began)


def train(
    task: TaskName,
    /,
    loss: str,
    seed: int = 0,
    train_size: Annotated[int | None, _of("N")] = None,
    device: str = "auto",
    out: Path = Path("runs"),
    save_seconds: float = 30.0,
    track: Tracker = None,
    recipe: Recipe = _UNCHANGED,
) -> None:
    """Train one run, or what is left of it, and print its metrics.

    Args:
        task: what to train on.
        loss: a name from the registry, with arguments if you like: penex:alpha=0.03.
        seed: decides initialisation, split, order and dropout.
        train_size: how many training examples; the task's own number unless given.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        out: the folder for records.
        save_seconds: how often to save a checkpoint while training.
        track: also log to tensorboard or wandb.
        recipe: changes.
    """
    from penex.lab import runs
    from penex.lab.records import Record

    run = runs.plan(task, runs.LossSpec.parse(loss), seed, train_size, recipe.given())
    with _session(device, track, out, 1, save_seconds) as session:
        reused = Record.of(out, run.config).is_done
        record = runs.train(run, out, session.device, session.hooks)
        session.done(run, record, reused)
    if _writes():
        done = record.done()
        for part in ("validation", "test"):
            for name, value in done.get(part, {}).items():
                spread = done[f"{part}_spread"][name]
                print(f"{part:10} {name:14} {value:.4f} [bootstrap {spread:.4f}]")
        print(f"Record: {record.folder}")


def doctor() -> None:
    """Say what is installed, which device there is, and what is missing for which command."""
    from penex.report import health

    print(health.report())


def main(arguments: Sequence[str] | None = None) -> None:
    """The `penex` command."""
    commands: dict[str, Callable[..., Any]] = {"compare": compare, "train": train, "doctor": doctor}
    try:
        tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="penex",
            description="A laboratory for losses: PENEX and what it is judged against.",
            args=arguments,
            config=(tyro.conf.OmitArgPrefixes,),
        )
    except LabError as error:
        _fail(str(error))
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        _fail(f"Cannot read or write{where}: {error.strerror or error}. What is there is kept.")
    except Interrupted:
        print(f"Stopped. To go on: {_command()}", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    except KeyboardInterrupt:
        print(
            f"\nStopped at once. To go on from the last checkpoint: {_command()}", file=sys.stderr
        )
        sys.exit(_INTERRUPTED)


def _fail(sentence: str) -> None:
    print(f"penex: {sentence}", file=sys.stderr)
    sys.exit(2)


def _command() -> str:
    return shlex.join(["penex", *sys.argv[1:]])


def _writes() -> bool:
    """Whether this process is the one that prints and writes: torchrun starts several."""
    return os.environ.get("RANK", "0") == "0"


class _Session(NamedTuple):
    """What a command that trains needs."""

    device: "torch.device"
    hooks: "Hooks"
    done: "Callable[[Run, Record, bool], None]"


@contextlib.contextmanager
def _session(
    device: str, track: str | None, out: Path, total: int, save_seconds: float
) -> Iterator[_Session]:
    """The device, the other processes if torchrun started some, progress, trackers, Ctrl-C."""
    from penex.lab import environment
    from penex.lab.engine import ranks
    from penex.lab.runs import Hooks
    from penex.lab.sinks import Tracker
    from penex.lab.stop import stoppable
    from penex.report import terminal

    tracker = Tracker(track, out)
    place = environment.device_of(device)

    def begin(run: "Run", epochs: int) -> None:
        tracker.begin(run.config)
        watch.begin(run, epochs)

    def epoch(run: "Run", line: dict[str, Any]) -> None:
        tracker.epoch(line)
        watch.epoch(run, line)

    def done(run: "Run", record: "Record", reused: bool) -> None:
        tracker.close()
        watch.done(run, record, reused)

    with (
        ranks.joined(place),
        terminal.watcher(total, writes=_writes()) as watch,
        stoppable() as stop,
        contextlib.closing(tracker),
    ):
        yield _Session(place, Hooks(begin, epoch, stop, save_seconds), done)


def _report(folder: Path, seconds: float) -> None:
    """Print the table; write it and the figures beside the records."""
    from penex.lab import files
    from penex.report import figures, results, tables, terminal

    found = results.load(folder)
    terminal.show(found)
    files.write(folder / "comparison.md", tables.markdown(found).encode())
    files.write(folder / "comparison.csv", tables.as_csv(found).encode())
    drawn = figures.write_all(found)
    print(
        f"\n{seconds:.0f} s. In {folder}: comparison.md, comparison.csv, "
        f"{', '.join(path.name for path in drawn)}, and a record of every run."
    )
