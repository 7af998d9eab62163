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
    """Progress as two bars: the runs, and the epochs of the one that trains, or of many's mean."""

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
        self.reached: dict[int, int] = {}  # the epochs of those that train

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
        self.reached[id(run)] = epochs
        together = f"{run.task.name}: {len(self.reached)} runs side by side"
        self.progress.reset(
            self.epochs,
            total=run.recipe.epochs,
            completed=self._mean,
            description=together if len(self.reached) > 1 else name_of(run),
            note=f"resumed after epoch {epochs}" if epochs else "",
            visible=True,
        )

    def epoch(self, run: Run, line: Json) -> None:
        """Move the run's bar; say how long all of them take."""
        self.progress.update(self.runs, note=self.pace.words())
        note = f"validation accuracy {line['validation']['accuracy']:.4f}{flow.words(line)}"
        self.reached[id(run)] = line["epoch"]
        self.progress.update(self.epochs, completed=self._mean, note=note)

    @property
    def _mean(self) -> int:
        return sum(self.reached.values()) // max(len(self.reached), 1)

    def done(self, run: Run, record: Record, reused: bool) -> None:
        """Move the bar of the runs; say so if one diverged."""
        self.reused += reused
        self.reached.pop(id(run), None)
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
