"""What a terminal shows: progress while runs train, the table when they are done."""

import sys
from typing import Self, TextIO

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

from penex.lab.errors import writes
from penex.lab.records import Json, Record
from penex.lab.runs import Run
from penex.lab.session import Lines, Silent, Watcher, name_of
from penex.report import tables
from penex.report.results import METRICS, Results
from penex.report.words import sentences

_WIDTH = 110  # of a file or a pipe
_COLUMN = 18  # the width of a metric


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
            description=together if self.training > 1 else name_of(run),
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
            self.console.print(f"{name_of(run)} diverged: {done['reason']}", highlight=False)

    def say(self, text: str) -> None:
        """Print above the bars."""
        self.console.print(text, highlight=False)


def watcher(total: int) -> Watcher:
    """The right watcher for where the output goes."""
    if not writes():
        return Silent()
    console = Console(stderr=True)
    return Bars(total, console) if console.is_terminal else Lines(total, sys.stderr)


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
