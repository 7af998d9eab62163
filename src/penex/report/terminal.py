"""What a terminal shows: progress while runs train, the table when they are done."""

import sys
import time
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from penex.lab.records import Json, Record
from penex.lab.runs import Run
from penex.report import tables
from penex.report.results import METRICS, Results
from penex.report.words import sentences

_LINE_SECONDS = 10.0
_WIDTH = 110  # of a file or a pipe
_COLUMN = 18  # the width of a metric


class Watcher(Protocol):
    """Someone who is told how a set of runs goes on."""

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
        self.training = 0  # more than one is a pack

    def __exit__(self, *_: object) -> None:
        if self.reused:
            self.say(f"{self.reused} of {self.total} runs were there already.")

    def begin(self, run: Run, epochs: int) -> None:
        """Say that a run is resumed."""
        self.spoke = time.monotonic()
        self.training += 1
        if epochs:
            place = self.number + self.training
            self.say(f"[{place}/{self.total}] {_name(run)}: resumed after epoch {epochs}")

    def epoch(self, run: Run, line: Json) -> None:
        """Say where a run is, or the pack that it is part of, if nothing was said for a while."""
        if time.monotonic() - self.spoke >= _LINE_SECONDS:
            together = f", {self.training} runs packed" if self.training > 1 else ""
            place = f"[{self.number + 1}/{self.total}]"
            self.say(f"{place} {_name(run)}{together}: {_progress(run, line)}")

    def done(self, run: Run, record: Record, reused: bool) -> None:
        """Say how a run ended, if it was trained now."""
        self.number += 1
        self.training -= not reused
        if reused:
            self.reused += 1
        else:
            self.say(f"[{self.number}/{self.total}] {_name(run)}: {_ending(record)}")

    def say(self, text: str) -> None:
        """Say it in a line of its own."""
        print(text, file=self.file, flush=True)
        self.spoke = time.monotonic()


class Bars(Silent):
    """Progress as two bars: the runs, and the epochs of the one that trains."""

    def __init__(self, total: int, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
        )
        self.runs = self.progress.add_task("runs", total=total, note="")
        self.epochs = self.progress.add_task("", total=1, note="", visible=False)
        self.reused = 0
        self.training = 0  # more than one is a pack

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
        if self.reused:
            self.console.print(f"{self.reused} runs were there already.", highlight=False)

    def begin(self, run: Run, epochs: int) -> None:
        """Show the run, or the pack that it is part of."""
        self.training += 1
        together = f"{run.task.name}: {self.training} runs packed"
        self.progress.reset(
            self.epochs,
            total=run.recipe.epochs,
            completed=epochs,
            description=together if self.training > 1 else _name(run),
            note=f"resumed after epoch {epochs}" if epochs else "",
            visible=True,
        )

    def epoch(self, run: Run, line: Json) -> None:
        """Move the run's bar."""
        note = f"validation accuracy {line['validation']['accuracy']:.4f}"
        self.progress.update(self.epochs, completed=line["epoch"], note=note)

    def done(self, run: Run, record: Record, reused: bool) -> None:
        """Move the bar of the runs; say so if one diverged."""
        self.reused += reused
        self.training -= not reused
        self.progress.advance(self.runs)
        done = record.done()
        if done["status"] == "diverged":
            self.console.print(f"{_name(run)} diverged: {done['reason']}", highlight=False)

    def say(self, text: str) -> None:
        """Print above the bars."""
        self.console.print(text, highlight=False)


def watcher(total: int, *, writes: bool) -> Watcher:
    """The right watcher for where the output goes."""
    if not writes:
        return Silent()
    console = Console(stderr=True)
    return Bars(total, console) if console.is_terminal else Lines(total, sys.stderr)


def _name(run: Run) -> str:
    return f"{run.task.name} {run.loss} n={run.train_size} seed {run.seed}"


def _progress(run: Run, line: Json) -> str:
    accuracy = line["validation"]["accuracy"]
    return f"epoch {line['epoch']}/{run.recipe.epochs}, validation accuracy {accuracy:.4f}"


def _ending(record: Record) -> str:
    done = record.done()
    if done["status"] == "diverged":
        return f"diverged: {done['reason']}"
    test = done["test"]
    accuracy, entropy = test["accuracy"], test["cross_entropy"]
    shown = "not finite" if entropy is None else f"{entropy:.4f}"
    return f"accuracy {accuracy:.4f}, cross-entropy {shown}, {done['wall_time']:.1f} s"


class _Printer(Console):
    """A console that leaves a reader who had enough to the command line."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def show(results: Results, file: TextIO | None = None) -> None:
    """Print the table and what it says; on a narrow terminal, as many metrics as fit."""
    console = _Printer(file=file or sys.stdout, highlight=False)
    if not console.is_terminal:
        console = _Printer(file=file or sys.stdout, highlight=False, width=_WIDTH)
    names = max(len(tables.name(row)) for row in results.rows)
    fitting = max(1, (console.width - names) // _COLUMN)
    shown = METRICS[:4][:fitting]
    marked = False
    for size in results.train_sizes:
        rows = results.at(size)
        bold = tables.winners(rows)
        console.print(tables.caption(results, size), soft_wrap=True)
        table = Table(box=None, pad_edge=False)
        table.add_column("loss", no_wrap=True)
        for metric in shown:
            arrow = "↑" if metric.higher else "↓"
            table.add_column(f"{metric.title} {arrow}", justify="right", no_wrap=True)
        for row in rows:
            cells = []
            for metric in shown:
                best = (row.label, metric.name) in bold
                marked = marked or best
                # The star is for where bold cannot be seen: a file, a screen reader.
                text = tables.cell(row, metric) + ("*" if best else " ")
                cells.append(Text(text, style="bold" if best else ""))
            table.add_row(tables.name(row), *cells)
        console.print(table)
        console.print()
    if marked:
        console.print("* best: the 95 % interval of its seed-paired lead excludes zero")
    for sentence in sentences(results):
        console.print(sentence, soft_wrap=True)
