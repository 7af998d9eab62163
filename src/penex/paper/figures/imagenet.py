"""A vision transformer at two rates, epoch by epoch: what the paper's rate for PENEX is for."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penex import registry
from penex.metrics import METRICS
from penex.paper import plan
from penex.paper.figures import over_epochs
from penex.paper.figures.picture import Picture, Point, Shown, Source, Verdict
from penex.report.drawing import Line, Mark, Panel, limits
from penex.report.figures import grid
from penex.report.results import Results, Row
from penex.report.statistics import FEWEST, paired_difference

_HIGH, _LOW = plan.IMAGENET_RATES
# PENEX at cross-entropy's rate and at its hundredth; with rho at its floor it is darker.
_INKS = {(False, _HIGH): "#D62728", (False, _LOW): "#FF9896"}
_INKS |= {(True, _HIGH): "#8C1D40", (True, _LOW): "#C49CBE"}

Epoch = Mapping[str, Any]
Seen = Callable[[Epoch], float | None]


def _validation(name: str) -> Seen:
    return lambda line: line["validation"].get(name)


def _log(name: str) -> Seen:
    """The decimal logarithm of what a line has; None for what has none."""

    def seen(line: Epoch) -> float | None:
        value = line.get(name)
        return math.log10(value) if value is not None and value > 0 else None

    return seen


_PANELS: tuple[tuple[str, Seen], ...] = (
    (METRICS["accuracy"].title, _validation("accuracy")),
    (METRICS["cross_entropy"].title, _validation("cross_entropy")),
    ("rho, log10", _log("rho")),
    ("Largest logit, log10", _log("max_logit")),
    ("Gradient norm, log10", _log("grad_norm")),
)


def rate_of(row: Row) -> float:
    """The learning rate of a row."""
    return next(float(run.config["recipe"]["lr"]) for run in row.records.values())


def name_of(row: Row) -> str:
    """A loss, and PENEX with its rate."""
    own = f", rate {rate_of(row):g}" if row.loss == registry.SUBJECT else ""
    return over_epochs.short(row) + own


def draw(results: Results) -> Any:
    """A panel for each of what an epoch leaves; a line for each run."""
    rows = [row for row in results.rows if row.done]
    return grid([[(title, _panel(title, rows, seen)) for title, seen in _PANELS]], 2.6, 2.6)


def _panel(title: str, rows: Sequence[Row], seen: Seen) -> Panel:
    marks: list[Mark] = []
    every: list[float] = []
    last = 1.0
    for row in rows:
        is_ours = row.loss == registry.SUBJECT
        ink = _INKS[over_epochs.is_floor(row), rate_of(row)] if is_ours else row.loss
        for k, run in enumerate(row.records.values()):
            found = [(float(line["epoch"]), seen(line)) for line in run.history]
            points = [(x, y) for x, y in found if y is not None and math.isfinite(y)]
            if not points:
                continue
            every += [y for _, y in points]
            last = max(last, points[-1][0])
            marks.append(Line(points, ink, "seed" if k else "mean", name="" if k else name_of(row)))
    return Panel(title, (0.0, last), limits(every), "epoch", marks=marks)


def points(results: Results) -> list[Point]:
    """Whether PENEX is better at a hundredth of the rate, for each way to have rho."""
    found = []
    for held, way in ((False, "rho estimated"), (True, "rho at 1e-6")):
        claim = f"{way}: PENEX needs a hundredth of cross-entropy's rate"
        ours = [r for r in results.rows if r.loss == registry.SUBJECT and r.done]
        rows = {rate_of(row): row for row in ours if over_epochs.is_floor(row) == held}
        if not rows.keys() >= {_HIGH, _LOW}:
            found.append(Point(claim, "not trained", "There are no records of both rates."))
            continue
        found.append(Point(claim, *_judged(rows[_HIGH], rows[_LOW])))
    return found


def _judged(high: Row, low: Row) -> tuple[Verdict, str]:
    if high.diverged:
        said = f"At {_HIGH:g} {len(high.diverged)} of {len(high.done)} runs diverged"
        if low.diverged:
            return "unclear", f"{said}, at {_LOW:g} {len(low.diverged)} of {len(low.done)}."
        return "holds", f"{said}."
    values = [row.values("accuracy") for row in (low, high)]
    if not all(values):
        return "unclear", "Too few runs ended."
    means = [sum(one.values()) / len(one) for one in values]
    said = f"Test accuracy {means[0]:.3f} at {_LOW:g} and {means[1]:.3f} at {_HIGH:g}"
    lead = paired_difference(*values)
    if lead.pairs < FEWEST:
        return "unclear", f"{said}, of too few seeds for a verdict."
    verdict: Verdict = "unclear"
    if lead.excludes_zero:
        verdict = "holds" if lead.mean > 0 else "does not hold"
    return verdict, f"{said}; the first less the second: {lead.words}."


def shown(results: Results) -> Shown:
    """The figure of some records."""
    how = f"{results.seeds_in_words}; a line for each run. {results.made_with}"
    return Shown(lambda: draw(results), points(results), how)


def _make(source: Source) -> Shown | None:
    (sweep,) = plan.sweeps()["imagenet"]
    found = source.load(sweep.task, sweep.losses, PICTURE.needs, changes=sweep.changes)
    return None if found is None else shown(found)


PICTURE = Picture(
    "imagenet",
    "A vision transformer at two rates",
    "No figure of the paper's. It trains PENEX on ImageNet at a hundredth of the others' rate: "
    "here on Tiny-ImageNet, with a small network, at both.",
    _make,
    "penex reproduce imagenet",
)
