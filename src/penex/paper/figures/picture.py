"""What a figure of the paper is here: its claim, what is drawn, and what became of the claim."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penex.lab.tasks import find
from penex.lab.training.compare import Comparison, listing_of
from penex.paper.claims import Verdict as Verdict
from penex.report import results
from penex.report.results import Results
from penex.report.statistics import FEWEST, Interval, paired_difference


class Point(NamedTuple):
    """One thing that a caption says, and what we found.

    Attributes:
        claim: what the paper says, in our words.
        verdict: what became of it.
        found: the numbers that decide it.
    """

    claim: str
    verdict: Verdict
    found: str


class Shown(NamedTuple):
    """A figure that can be drawn.

    Attributes:
        draw: () -> a matplotlib figure; called in our style.
        points: the caption, point by point.
        setup: how the numbers came about.
    """

    draw: Callable[[], Any]
    points: Sequence[Point]
    setup: str


@dataclass(frozen=True)
class Source:
    """Where the records of figures lie.

    Attributes:
        folder: of all tasks.
        seeds: how many of a run are asked for.
        prepare: (comparison) -> the one to read, as the user wants it otherwise.
        quick: True to train small models for a moment only, to try everything.
        read_only: True to train no small models.
    """

    folder: Path
    seeds: int
    prepare: Callable[[Comparison], Comparison] = lambda comparison: comparison
    quick: bool = False
    read_only: bool = False

    def load(
        self,
        task: str,
        losses: Sequence[str],
        command: str,
        sizes: tuple[int, ...] = (),
        changes: Mapping[str, int | float | bool | str] | None = None,
    ) -> Results | None:
        """The runs of some losses that there are; None if there are none.

        Args:
            task: its name.
            losses: as on the command line.
            command: what trains them.
            sizes: of the training set; none for the task's own.
            changes: of the recipe.
        """
        asked = Comparison(
            find(task), tuple(losses), self.seeds, sizes, changes={**(changes or {})}
        )
        comparison = self.prepare(asked)
        listing = listing_of(comparison, self.folder, command)
        found = results.load(self.folder / task, listing)
        return found if any(row.done for row in found.rows) else None


@dataclass(frozen=True)
class Picture:
    """A figure by its name.

    Attributes:
        name: on the command line, and of its files.
        title: on the page.
        claim: the paper's caption in our words.
        make: (source) -> what is drawn; None without the records that it needs.
        needs: the command that trains those records; empty if it needs none.
        trains: whether it trains small models itself.
    """

    name: str
    title: str
    claim: str
    make: Callable[[Source], Shown | None]
    needs: str = ""
    trains: bool = False


def rise(curves: Mapping[int, Sequence[float]]) -> Interval:
    """By how much runs end above where their mean was lowest, by seed; 0 if it is lowest last.

    >>> rise({0: [3.0, 1.0, 2.0], 1: [3.0, 1.0, 2.5], 2: [3.0, 1.0, 2.1]}).mean
    1.2
    """
    lowest = int(np.argmin(np.mean(list(curves.values()), axis=0)))
    last = {seed: curve[-1] for seed, curve in curves.items()}
    return paired_difference(last, {seed: curve[lowest] for seed, curve in curves.items()})


def stays(change: Interval, little: float) -> Verdict:
    """Whether a rise is little: by its interval, or by its mean where seeds are all alike.

    >>> stays(Interval(0.0, math.nan, math.nan, 5), 0.01), stays(Interval(1, 0.5, 1.5, 5), 0.01)
    ('holds', 'does not hold')
    """
    if change.pairs < FEWEST:
        return "unclear"
    low, high = (change.mean if math.isnan(end) else end for end in change[1:3])
    if high <= little:
        return "holds"
    return "does not hold" if low > little else "unclear"


def rises(change: Interval, little: float) -> Verdict:
    """Whether a rise is more than little.

    >>> rises(Interval(1, 0.5, 1.5, 5), 0.01), rises(Interval(0.1, -0.1, 0.3, 5), 0.01)
    ('holds', 'unclear')
    """
    opposite: dict[Verdict, Verdict] = {"holds": "does not hold", "does not hold": "holds"}
    found = stays(change, little)
    return opposite.get(found, found)


def below(difference: Interval) -> Verdict:
    """Whether a difference is below 0.

    >>> below(Interval(-1, -1.5, -0.5, 5)), below(Interval(-1, -2.5, 0.5, 5))
    ('holds', 'unclear')
    """
    if not difference.excludes_zero:
        return "unclear"
    return "holds" if difference.mean < 0 else "does not hold"
