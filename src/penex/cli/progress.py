"""Progress while runs train: bars on a terminal, lines elsewhere."""

import sys
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from penex.lab.ground.errors import writes
from penex.lab.ground.sentences import count, visible
from penex.lab.records import Json, Record
from penex.lab.tasks.runs import Run
from penex.lab.training import flow
from penex.lab.training.session import Lines, Silent, Watcher, name_of


class Bars(Silent):
    """Progress as two bars: the runs, and the epochs of the one that trains."""

    def __init__(self, total: int, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
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
            verb = "was" if self.reused == 1 else "were"
            self.say(f"{count(self.reused, 'run')} {verb} there already.")

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
        """Move the run's bar; say how long all of them take."""
        self.progress.update(self.runs, note=self.pace.words())
        note = f"validation accuracy {line['validation']['accuracy']:.4f}{flow.words(line)}"
        self.progress.update(self.epochs, completed=line["epoch"], note=note)

    def done(self, run: Run, record: Record, reused: bool) -> None:
        """Move the bar of the runs; say so if one diverged."""
        self.reused += reused
        self.training -= not reused
        self.progress.advance(self.runs)
        done = record.done()
        if done["status"] == "diverged":
            self.say(f"{name_of(run)} diverged: {done['reason']}")

    def say(self, text: str) -> None:
        """Print above the bars."""
        self.console.print(visible(text), highlight=False, markup=False)


def watcher(total: int) -> Watcher:
    """The right watcher for where the output goes."""
    if not writes():
        return Silent()
    console = Console(stderr=True)
    return Bars(total, console) if console.is_terminal else Lines(total, sys.stderr)
