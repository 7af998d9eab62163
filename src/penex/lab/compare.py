"""A comparison: losses times seeds times training sizes, and the list of its runs on disk."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from penex.lab import files, runs, tasks
from penex.lab.engine import ranks
from penex.lab.errors import LabError
from penex.lab.records import FORMAT, Record

FIVE = ("ce", "label_smoothing", "confidence_penalty", "focal", "penex")
LISTING = "comparison.json"


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes:
        task: the name of the task.
        losses: as on the command line: ``penex``, ``penex:alpha=0.03``.
        seeds: how many, from 0.
        train_sizes: the sizes of the training set; none for the task's own.
        changes: what is changed in the task's recipe.
    """

    task: str = "digits"
    losses: tuple[str, ...] = FIVE
    seeds: int = 3
    train_sizes: tuple[int, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)

    def runs(self) -> list[runs.Run]:
        """Every run, seed by seed: what was trained when one stops early can be compared."""
        if self.seeds < 1:
            raise LabError(f"A comparison needs at least 1 seed; got {self.seeds}.")
        if not self.losses:
            raise LabError("A comparison needs at least one loss.")
        specs = [runs.LossSpec.parse(text) for text in self.losses]
        for k, spec in enumerate(specs):
            if any((s.name, s.resolved) == (spec.name, spec.resolved) for s in specs[:k]):
                raise LabError(f"The loss {spec} is there twice: name each once.")
        sizes = self.train_sizes or (tasks.find(self.task).train_size,)
        return [
            runs.plan(self.task, spec, seed, size, self.changes)
            for size in dict.fromkeys(sizes)
            for seed in range(self.seeds)
            for spec in specs
        ]


def compare(
    comparison: Comparison,
    out: Path,
    device: torch.device,
    *,
    command: str = "",
    hooks: runs.Hooks | None = None,
    done: Callable[[runs.Run, Record, bool], None] = lambda run, record, reused: None,
) -> Path:
    """Carry out a comparison, or what is left of it; the folder that now holds it.

    Args:
        comparison: what is compared.
        out: the folder of all tasks.
        device: where to train.
        command: how the user asked for it, for the record.
        hooks: who watches.
        done: (run, record, whether it was there already) after each run.
    """
    planned = comparison.runs()
    folder = out / comparison.task
    for run in planned:  # a size that the data do not have must not stop the third hour
        if run.seed == 0:
            runs.data_of(run.task, run.seed, run.train_size, device)
    if ranks.rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        files.write_json(folder / LISTING, _listing(comparison, planned, folder, command))
    for run in planned:
        reused = Record.of(out, run.config).is_done
        record = runs.train(run, out, device, hooks)
        done(run, record, reused)
    return folder


def _listing(
    comparison: Comparison, planned: list[runs.Run], folder: Path, command: str
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "task": comparison.task,
        "command": command,
        "runs": [
            {
                "loss": run.loss.name,
                "label": str(run.loss),
                "train_size": run.train_size,
                "seed": run.seed,
                "folder": str(Record.of(folder.parent, run.config).folder.relative_to(folder)),
            }
            for run in planned
        ],
    }
