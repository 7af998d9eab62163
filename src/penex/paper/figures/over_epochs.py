"""What figures of validation curves share: larger is better, PENEX thick, runs that broke off."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from penex import registry
from penex.metrics import METRICS, Metric
from penex.paper.plan import FLOOR
from penex.report import series
from penex.report.drawing import Dot, Line, Mark, Panel, limits, most
from penex.report.results import Results, Row

SHOWN = tuple(metric for metric in METRICS.values() if metric.drawn)


def short(row: Row) -> str:
    """A loss without its numbers, but for a rho that is held."""
    rho = row.argument("rho") if row.loss == registry.SUBJECT else None
    return registry.title(row.loss) + ("" if rho is None else f", rho held at {rho:g}")


def is_floor(row: Row) -> bool:
    """Whether it is PENEX with rho held at its lower bound."""
    return row.loss == registry.SUBJECT and row.argument("rho") == FLOOR


def panels(
    results: Results,
    name: Callable[[Row], str] = short,
    inks: Mapping[str, str] | None = None,
    *,
    robust: bool = False,
) -> list[tuple[str, Panel | None]]:
    """The validation metrics over the epochs, larger being better: a title and a panel for each.

    Args:
        results: of one training size; rows without runs are left out.
        name: of a row in the legend.
        inks: the colour of a row by its label, where a loss's own would not tell them apart.
        robust: True to fit the axis to what most runs reach, and not to one gone astray.
    """
    rows = [row for row in results.rows if row.done]
    found = series.Series(replace(results, rows=rows)).curves
    size = rows[0].train_size if rows else 0
    return [
        (_title(m), _upright(found.get((size, m.name)), m, rows, name, inks or {}, robust))
        for m in SHOWN
    ]


def _title(metric: Metric) -> str:
    return metric.title if metric.higher else f"− {metric.title}"


def _upright(
    panel: Panel | None,
    metric: Metric,
    rows: Sequence[Row],
    name: Callable[[Row], str],
    inks: Mapping[str, str],
    robust: bool,
) -> Panel | None:
    """A panel with larger values being better, PENEX thick, and a dot where a run broke off."""
    if panel is None:
        return None
    sign = 1 if metric.higher else -1
    lines = [mark for mark in panel.marks if isinstance(mark, Line)]
    seeds = [line for line in lines if line.kind == "seed"]
    means = {line.name: line for line in lines if line.kind == "mean"}
    marks: list[Mark] = []
    waiting = iter(seeds)  # row by row, in the order of the rows
    for row in rows:
        ink = inks.get(row.label, row.loss)
        drawn = [next(waiting) for run in row.records.values() if curve(run.history, metric)]
        marks += [_turned(line, sign, ink) for line in drawn]
        marks += [Dot((x, sign * y), ink) for x, y in ends(row, metric).values()]
        if (mean := means.get(row.title)) is not None:
            line = _turned(mean, sign, ink)._replace(name=name(row) + broke_off(row))
            strong = row.loss == registry.SUBJECT and row.label not in inks and not is_floor(row)
            line = line._replace(dash=0) if row.label in inks else line
            marks.append(line._replace(kind="subject") if strong else line)
    low, high = sorted(sign * edge for edge in panel.y)
    if robust:
        averages = [mark for mark in marks if isinstance(mark, Line) and mark.kind != "seed"]
        low, high = most([y for line in averages for y in _finite(line)], higher=True)
        for line in averages:  # what most reach, and all of PENEX but its start
            if line.kind == "subject" and (later := _finite(line)[len(line.points) // 5 :]):
                low = min(low, limits(later)[0])
    return replace(panel, y=(low, high), y_label="", marks=marks)


def _finite(line: Line) -> list[float]:
    return [y for _, y in line.points if math.isfinite(y)]


def _turned(line: Line, sign: int, ink: str) -> Line:
    return line._replace(points=[(x, sign * y) for x, y in line.points], ink=ink)


def curve(history: Sequence[Mapping[str, object]], metric: Metric) -> list[tuple[float, float]]:
    """A validation metric at the epochs that have a finite one."""
    found = []
    for line in history:
        values = line["validation"]
        value = values.get(metric.name) if isinstance(values, dict) else None
        if value is not None and math.isfinite(value):
            found.append((float(str(line["epoch"])), float(value)))
    return found


def ends(row: Row, metric: Metric) -> dict[int, tuple[float, float]]:
    """Where runs ended that did not reach their last epoch with a finite value, by seed."""
    found = {}
    for seed, run in row.records.items():
        points = curve(run.history, metric)
        if points and points[-1][0] < run.config["recipe"]["epochs"]:
            found[seed] = points[-1]
    return found


def broke_off(row: Row) -> str:
    """What a legend says of runs that broke off in any of the metrics; nothing if none did."""
    found = [(epoch, seed) for m in SHOWN for seed, (epoch, _) in ends(row, m).items()]
    if not found:
        return ""
    runs = len({seed for _, seed in found})
    many = "" if len(row.records) == 1 else f", {runs} of {len(row.records)} runs"
    return f" (not finite after epoch {min(found)[0]:g}{many})"


def shared(row: Row, metric: Metric, sign: int = 1) -> dict[int, list[float]]:
    """A validation metric at the epochs that every run has, by seed, times a sign."""
    tables = {seed: dict(curve(run.history, metric)) for seed, run in row.records.items()}
    known = [set(table) for table in tables.values()]
    epochs = sorted(set.intersection(*known)) if known else []
    return {seed: [sign * table[x] for x in epochs] for seed, table in tables.items()}


def roughness(row: Row, metric: Metric) -> dict[int, float]:
    """The mean step from epoch to epoch in the second half, by seed; of runs with two or more."""
    halves = {seed: one[len(one) // 2 :] for seed, one in shared(row, metric).items()}
    return {
        seed: float(np.abs(np.diff(half)).mean()) for seed, half in halves.items() if len(half) > 1
    }
