"""Does it pay to move alpha or rho while a model trains? Schedules against constants.

    python -m benchmarks.schedules [--seeds 5] [--write results/schedules-cpu.json]

Labels of the training set are flipped to another class; validation and test labels are right. A
schedule pays if its validation cross-entropy, at a fitted temperature, is below that of the best
constant by more than luck over seeds; cross-entropy and accuracy of the test set stand beside it.
"""

import argparse
import functools
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks._main import positive, run
from benchmarks._trained import judged, trained
from penex.lab import tasks
from penex.lab.data.noise import LabelNoise
from penex.lab.engine.learner import AnyLoss
from penex.lab.ground import environment
from penex.lab.tasks import runs
from penex.lab.training.place import Place
from penex.loss import PENEX
from penex.report.statistics import paired_difference

FLOOR = 1e-6
RATES = (0.2, 0.4)
_NEAR_ZERO = 0.02  # no alpha is nearer to 0

Record = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """How alpha and rho go from the first epoch (t = 0) to the last (t = 1).

    Attributes:
        alpha: of t.
        rho: of t; None where rho is estimated.
        constant: whether nothing is moved.
    """

    alpha: Callable[[float], float]
    rho: Callable[[float], float | None] = lambda _: None
    constant: bool = False


def line(first: float, last: float, t: float) -> float:
    """A straight line that leaves 0 out.

    >>> line(0.5, -0.5, 0.0), line(0.5, -0.5, 0.51), line(0.5, -0.5, 1.0)
    (0.5, -0.02, -0.5)
    """
    value = first + (last - first) * t
    return value if abs(value) >= _NEAR_ZERO else math.copysign(_NEAR_ZERO, value)


def switch(first: float, last: float, at: float, t: float) -> float:
    """One value, then another."""
    return first if t < at else last


def falling(t: float) -> float | None:
    """Rho by Algorithm 1 for the first half, then from 1e-2 down to the floor."""
    return None if t < 0.5 else 10 ** (-2 + (math.log10(FLOOR) + 2) * (2 * t - 1))


def _constant(alpha: float, rho: float | None = None) -> Way:
    return Way(lambda _: alpha, lambda _: rho, constant=True)


WAYS = {
    "0.1": _constant(0.1),
    "-0.3": _constant(-0.3),
    "-0.5": _constant(-0.5),
    "-0.3, rho 1e-6": _constant(-0.3, FLOOR),
    "0.1 to -0.3": Way(functools.partial(line, 0.1, -0.3)),
    "0.1 to -0.5": Way(functools.partial(line, 0.1, -0.5)),
    "0.1, after a quarter -0.5": Way(functools.partial(switch, 0.1, -0.5, 0.25)),
    "0.1, after half -0.5": Way(functools.partial(switch, 0.1, -0.5, 0.5)),
    "-0.5 to 0.1": Way(functools.partial(line, -0.5, 0.1)),
    "-0.3, rho falling": Way(lambda _: -0.3, falling),
    "-0.3, rho 1e-6, after half estimated": Way(
        lambda _: -0.3, lambda t: FLOOR if t < 0.5 else None
    ),
}


def scored(one: runs.Run, way: Way, place: Place) -> dict[str, float]:
    """Train a run, with alpha and rho moved before every epoch; its numbers."""

    def move(loss: AnyLoss, t: float) -> None:
        assert isinstance(loss, PENEX)
        loss.configure(alpha=way.alpha(t), fixed_rho=way.rho(t))

    return judged(*trained(one, place, move))


def measured(names: list[str], rates: list[float], seeds_: int, out: Path) -> Record:
    """The numbers of every run."""
    rows = []
    for name in names:
        task = tables.task(name, out) if name in tables.NAMES else tasks.find(name)
        place = Place(out)
        for rate in rates:
            treatment = runs.Treatment(LabelNoise(rate) if rate else None)
            for way, how in WAYS.items():
                for seed in range(seeds_):
                    one = runs.plan(task, runs.LossSpec("penex"), seed, treatment=treatment)
                    rows.append({"data": name, "rate": rate, "way": way, "seed": seed})
                    rows[-1] |= scored(one, how, place)
                print(f"{name}, {rate:.0%} wrong: {way}", flush=True)
    return {"environment": environment.describe(place.device), "rows": rows}


def values(record: Record, name: str, rate: float, way: str, metric: str) -> dict[int, float]:
    """A metric by seed."""
    return {
        row["seed"]: row[metric]
        for row in record["rows"]
        if (row["data"], row["rate"], row["way"]) == (name, rate, way)
    }


def table(record: Record) -> str:
    """Each way beside the best constant by validation, in Markdown."""
    cells = dict.fromkeys((row["data"], row["rate"]) for row in record["rows"])
    lines = ["| accuracy / cross-entropy | " + " | ".join(f"{n}, {r:.0%}" for n, r in cells) + " |"]
    lines.append("|---" * (len(cells) + 1) + "|")
    for way in WAYS:
        shown = []
        for name, rate in cells:
            means = [
                f"{statistics.fmean(values(record, name, rate, way, metric).values()):.3f}"
                for metric in ("accuracy", "cross_entropy")
            ]
            better = " (better)" if is_better(record, name, rate, way) else ""
            shown.append(" / ".join(means) + better)
        lines.append(f"| {way} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def best_constant(record: Record, name: str, rate: float) -> str:
    """The constant with the lowest mean validation cross-entropy."""
    constants = [way for way, how in WAYS.items() if how.constant]
    return min(
        constants,
        key=lambda way: statistics.fmean(values(record, name, rate, way, "validation").values()),
    )


def is_better(record: Record, name: str, rate: float, way: str) -> bool:
    """Whether a schedule's validation cross-entropy is below the best constant's, beyond luck."""
    if WAYS[way].constant:
        return False
    best = best_constant(record, name, rate)
    less = paired_difference(
        values(record, name, rate, way, "validation"),
        values(record, name, rate, best, "validation"),
    )
    return less.high < 0


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["digits", "breast_cancer"])
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/schedules"))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--read", type=Path, help="a record to print, instead of measuring")
    options = parser.parse_args()
    if options.read:
        record = json.loads(options.read.read_text())
    else:
        record = measured(options.data, options.rates, options.seeds, options.out)
    print(table(record))
    if options.write:
        options.write.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
