"""A comparison as it lies on disk, ready for tables and figures."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from penex import registry
from penex.lab.compare import LISTING
from penex.lab.errors import RecordError
from penex.lab.records import FORMAT, Json, Record


class Metric(NamedTuple):
    """A metric as tables and figures show it."""

    name: str
    title: str
    higher: bool

    @property
    def direction(self) -> str:
        """Which way is better, in words."""
        return "higher is better" if self.higher else "lower is better"


METRICS = (
    Metric("accuracy", "accuracy", True),
    Metric("cross_entropy", "cross-entropy", False),
    Metric("brier", "Brier", False),
    Metric("ece", "ECE", False),
    Metric("ece_per_batch", "ECE per batch", False),
)
METRIC = {metric.name: metric for metric in METRICS}


@dataclass
class Row:
    """A loss at a training size: its runs, by seed.

    Attributes:
        label: the loss as on the command line, unique within a comparison.
        title: the loss as tables name it.
        loss: its name in the registry.
        train_size: the number of training examples.
        records: of every run that is done.
        done: their done.json.
        missing: seeds whose run is not done.
    """

    label: str
    title: str
    loss: str
    train_size: int
    records: dict[int, Record] = field(default_factory=dict)
    done: dict[int, Json] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)

    @property
    def diverged(self) -> list[int]:
        """The seeds whose run diverged."""
        return [seed for seed, done in self.done.items() if done["status"] == "diverged"]

    def values(self, metric: str, part: str = "test") -> dict[int, float]:
        """A metric of each completed run, by seed; one that is not finite is left out.

        See `broken`: a mean of what is left would flatter.
        """
        values = {
            seed: done[part][metric]
            for seed, done in self.done.items()
            if done["status"] == "completed"
        }
        return {seed: value for seed, value in values.items() if value is not None}

    def argument(self, name: str) -> float | bool | str | None:
        """An argument of the loss, as it was resolved; None if it has none such."""
        for record in self.records.values():
            value: float | bool | str | None = record.config()["loss"]["arguments"].get(name)
            return value
        return None

    def pooled_logits(self) -> tuple[Tensor, Tensor] | None:
        """The test logits and targets of all seeds; None where the records hold none."""
        found = [r.predictions() for r in self.records.values() if r.has("predictions.npz")]
        if not found:
            return None
        logits = np.concatenate([arrays["test_logits"] for arrays in found])
        targets = np.concatenate([arrays["test_targets"] for arrays in found])
        return torch.from_numpy(logits), torch.from_numpy(targets)

    def broken(self, metric: str) -> bool:
        """Whether a completed run's metric is not finite."""
        return any(
            done["status"] == "completed" and done["test"][metric] is None
            for done in self.done.values()
        )

    def spreads(self, metric: str) -> dict[int, float]:
        """The bootstrap spread of a metric on each run's test set, by seed."""
        return {
            seed: done["test_spread"][metric]
            for seed, done in self.done.items()
            if done["status"] == "completed" and done["test_spread"][metric] is not None
        }


@dataclass(frozen=True)
class Results:
    """A comparison.

    Attributes:
        folder: where it lies.
        task: the name of the task.
        command: how it was asked for.
        rows: a loss at a training size each, in the order in which they were asked for.
        sources: where the value of a loss came from, in words, by its label; if it was looked up.
    """

    folder: Path
    task: str
    command: str
    rows: list[Row]
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def train_sizes(self) -> list[int]:
        """The training sizes, from small to large."""
        return sorted({row.train_size for row in self.rows})

    @property
    def seeds(self) -> int:
        """How many seeds there are."""
        return max(len(row.done) + len(row.missing) for row in self.rows)

    @property
    def seeds_in_words(self) -> str:
        """How many seeds there are, and which losses lack more.

        >>> rows = [Row("ce", "CE", "ce", 8, done={0: {}, 1: {}}), Row("ex", "EX", "ex", 8)]
        >>> Results(Path(), "digits", "", rows[:1]).seeds_in_words
        '2 seeds'
        >>> rows[0].missing.append(2), rows[1].missing.extend([0, 1, 2])
        (None, None)
        >>> Results(Path(), "digits", "", rows).seeds_in_words
        '2 of 3 seeds (none of EX)'
        """
        most = max(len(row.done) for row in self.rows)
        lacking = [row for row in self.rows if row.missing and len(row.done) < most]
        words = [
            f"{len(row.done) or 'none'} of {row.title}"
            + (f" at {row.train_size:,}" if len(self.train_sizes) > 1 else "")
            for row in lacking
        ]
        count = str(most) if most == self.seeds else f"{most} of {self.seeds}"
        noun = "seed" if self.seeds == 1 else "seeds"
        return f"{count} {noun}" + (f" ({', '.join(words)})" if words else "")

    @property
    def made_with(self) -> str:
        """The machine, the time of a run and the command, as sentences."""
        facts = next(self.records()).environment()
        times = [done.get("wall_time", 0.0) for row in self.rows for done in row.done.values()]
        return (
            f"{facts.get('device', 'an unknown device')}, torch {facts.get('torch', '?')}, Python "
            f"{facts.get('python', '?')}; {sum(times) / len(times):.0f} s a run. The command: "
            f"`{self.command}`."
        )

    def at(self, train_size: int) -> list[Row]:
        """The rows of a training size."""
        return [row for row in self.rows if row.train_size == train_size]

    def records(self) -> Iterator[Record]:
        """Every record."""
        for row in self.rows:
            yield from row.records.values()


def load(folder: Path, listing: Json | None = None) -> Results:
    """The comparison in a task's folder, or a RecordError that says why it cannot be read.

    Args:
        folder: of the task.
        listing: its runs; read from the folder unless given.
    """
    path = folder / LISTING
    try:
        if listing is None:
            listing = json.loads(path.read_bytes())
        if listing["format"] != FORMAT:
            raise RecordError(
                f"{path} was written by another version of penex (record format "
                f"{listing['format']!r}; this one has {FORMAT}). It is left as it is."
            )
        rows = _rows(folder, listing["runs"])
        sources = {str(k): str(v) for k, v in dict(listing.get("sources", {})).items()}
        return Results(folder, listing["task"], listing["command"], rows, sources)
    except FileNotFoundError as error:
        raise RecordError(f"There is no comparison in {folder}: {path} is missing.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is damaged: {error!r}. Nothing was changed.") from error


def _rows(folder: Path, listed: list[Json]) -> list[Row]:
    rows: dict[tuple[str, int], Row] = {}
    for run in listed:
        key = (run["label"], run["train_size"])
        if key not in rows:
            entry = registry.LOSSES.get(run["loss"])
            title = entry.title if entry else run["loss"]
            given = run["label"].partition(":")[2]
            title = f"{title} ({given})" if given else title
            rows[key] = Row(run["label"], title, run["loss"], run["train_size"])
        record = Record(folder / run["folder"])
        if record.is_done:
            rows[key].records[run["seed"]] = record
            rows[key].done[run["seed"]] = record.done()
        else:
            rows[key].missing.append(run["seed"])
    return list(rows.values())
