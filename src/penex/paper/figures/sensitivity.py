"""Validation curves of small and large alpha (the paper's fig:sensitivity_curves)."""

from dataclasses import replace
from typing import Any

import numpy as np

from penex.metrics import METRICS
from penex.paper import plan
from penex.paper.figures import over_epochs
from penex.paper.figures.picture import Picture, Point, Shown, Source, Verdict
from penex.report.figures import grid
from penex.report.results import Results, Row
from penex.report.statistics import Interval, paired_difference

# From light to dark as alpha grows: matplotlib's viridis, turned round, without its yellow end.
_INKS = ("#B5DE2B", "#4AC16D", "#21918C", "#2F6B8E", "#414487", "#440154")
INKS = dict(zip(plan.ALPHAS, _INKS, strict=True))
_ACCURACY = METRICS["accuracy"]
_NEEDS = "penex reproduce sensitivity"
_EARLY = 0.05  # of the epochs: what "initially" is


def alpha_of(row: Row) -> float:
    """The alpha of a version of PENEX."""
    return float(row.argument("alpha") or 0.0)


def draw(every: list[Results]) -> Any:
    """A line of panels for each task and way to have rho; a colour for each alpha."""
    lines = []
    for results in every:
        for held, way in ((False, "rho estimated"), (True, "rho at 1e-6")):
            rows = [r for r in results.rows if r.done and over_epochs.is_floor(r) == held]
            if rows:
                inks = {row.label: INKS[alpha_of(row)] for row in rows}
                (title, panel), *rest = over_epochs.panels(
                    replace(results, rows=rows),
                    lambda row: f"alpha {alpha_of(row):g}",
                    inks,
                )
                lines.append([(f"{results.task}, {way}: {title}", panel), *rest])
    return grid(lines, 2.6, 2.0)


def points(results: Results) -> list[Point]:
    """The caption's statements for a task, with rho estimated and at its floor."""
    found = []
    for held, way in ((False, "rho estimated"), (True, "rho at 1e-6")):
        rows = [r for r in results.rows if r.done and over_epochs.is_floor(r) == held]
        missing = [alpha for alpha in plan.ALPHAS if alpha not in map(alpha_of, rows)]
        where = f"{results.task}, {way}"
        lacking = f" Not trained: alpha {', '.join(f'{a:g}' for a in missing)}." if missing else ""
        if len(rows) > 1:
            sound = sorted(rows, key=alpha_of)
            found += [_faster(where, sound, lacking), _better(where, sound, lacking)]
        if rows and not missing:
            found.append(_rough(where, sorted(rows, key=alpha_of)))
        if len(rows) < 2:
            claim = f"{where}: smaller alpha is faster, larger better in the end, 3.2 less stable"
            found.append(Point(claim, "not trained", lacking.strip()))
    return found


def _early(row: Row) -> dict[int, float]:
    """The accuracy after a twentieth of the epochs, or after the first that there is, by seed."""
    found = {}
    for seed, run in row.records.items():
        points = over_epochs.curve(run.history, _ACCURACY)
        late = _EARLY * run.config["recipe"]["epochs"]
        if points:
            found[seed] = [y for x, y in points if x <= max(late, points[0][0])][-1]
    return found


def _faster(where: str, rows: list[Row], lacking: str) -> Point:
    """The smallest alpha against the largest one, early."""
    early = {alpha_of(row): found for row in rows if (found := _early(row))}
    first, last = min(early), max(early)
    lead = paired_difference(early[first], early[last])
    means = (f"{np.mean(list(found.values())):.3f} at {alpha:g}" for alpha, found in early.items())
    return Point(
        f"{where}: a smaller alpha is faster at first",
        _above(lead),
        f"Validation accuracy after a twentieth of the epochs: {', '.join(means)}; alpha {first:g} "
        f"less {last:g}: {lead.words}.{lacking}",
    )


def _above(lead: Interval) -> Verdict:
    if not lead.excludes_zero:
        return "unclear"
    return "holds" if lead.mean > 0 else "does not hold"


def _better(where: str, rows: list[Row], lacking: str) -> Point:
    """The smallest alpha against the best larger one, after the last epoch."""
    last = {row.label: row.values("accuracy", "validation") for row in rows}
    known = [row for row in rows if last[row.label]]
    if len(known) < 2:
        return Point(f"{where}: a larger alpha ends better", "unclear", f"Too few ended.{lacking}")
    first, *larger = known
    best = max(larger, key=lambda row: float(np.mean(list(last[row.label].values()))))
    lead = paired_difference(last[best.label], last[first.label])
    return Point(
        f"{where}: a larger alpha ends better",
        _above(lead),
        f"Validation accuracy after the last epoch, alpha {alpha_of(best):g} less "
        f"{alpha_of(first):g}: {lead.words}.{lacking}",
    )


def _rough(where: str, rows: list[Row]) -> Point:
    """The largest alpha against the roughest of the others, by seed."""
    steps = {alpha_of(row): over_epochs.roughness(row, METRICS["cross_entropy"]) for row in rows}
    means = {alpha: float(np.mean(list(one.values()))) for alpha, one in steps.items() if one}
    said = ", ".join(f"{step:.3f} at {alpha:g}" for alpha, step in means.items())
    claim = f"{where}: the largest alpha is the least stable"
    last = plan.ALPHAS[-1]
    others = {alpha: mean for alpha, mean in means.items() if alpha != last}
    if last not in means or not others:
        return Point(claim, "unclear", f"Too few runs have steps to compare: {said or 'none'}.")
    lead = paired_difference(steps[last], steps[max(others, key=lambda alpha: others[alpha])])
    return Point(
        claim,
        _above(lead),
        f"Mean step of the validation cross-entropy in the second half: {said}; the largest alpha "
        f"less the roughest other: {lead.words}.",
    )


def shown(every: list[Results]) -> Shown:
    """The figure of some records."""
    trained = replace(every[0], rows=[row for row in every[0].rows if row.done])
    return Shown(
        lambda: draw(every),
        [point for one in every for point in points(one)],
        f"{trained.seeds_in_words} (thin lines are seeds). {every[0].made_with}",
    )


def _make(source: Source) -> Shown | None:
    swept = plan.sweeps()["sensitivity"]
    found = [source.load(sweep.task, sweep.losses, _NEEDS) for sweep in swept]
    every = [one for one in found if one is not None]
    return shown(every) if every else None


PICTURE = Picture(
    "sensitivity",
    "The sensitivity alpha",
    "Six values of alpha. The smaller ones typically converge faster and generalise worse towards "
    "the end, which is clearer on CIFAR-100; at the very large 3.2 the curves are less stable.",
    _make,
    _NEEDS,
)
