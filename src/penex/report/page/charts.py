"""The charts of the page, as functions of results."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from penex import theory
from penex.lab.scores import scores_of
from penex.report.page.svg import Chart, Point
from penex.report.results import Metric, Results, Row
from penex.report.statistics import mean_and_spread

_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_BINS = 15
_POINTS = 200  # of a curve: more than a screen shows


def colour(row: Row) -> str:
    """The colour of a loss, by a name that the page's style knows."""
    return f"var(--loss-{row.loss.replace('_', '-')}, #7f7f7f)"


def dash(rows: Sequence[Row], row: Row) -> str:
    """Rows of one loss with other arguments differ in their dashes."""
    same = [r.label for r in rows if r.loss == row.loss]
    return _DASHES[same.index(row.label) % len(_DASHES)]


def _finite(values: Sequence[float | None]) -> list[float]:
    return [math.nan if v is None else float(v) for v in values]


def _thin(n: int) -> list[int]:
    """Which of n points to draw: all, or evenly spread ones with the last."""
    if n <= _POINTS:
        return list(range(n))
    return sorted({round(k * (n - 1) / (_POINTS - 1)) for k in range(_POINTS)})


def series(row: Row, pick: Any) -> list[list[float]]:
    """A number of each epoch, for each seed's run."""
    return [_finite([pick(line) for line in record.metrics()]) for record in row.records.values()]


def _limits(values: Sequence[float], room: float = 0.06) -> Point:
    known = [v for v in values if math.isfinite(v)]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    extra = room * (high - low) or abs(high) * 0.05 or 0.05
    return low - extra, high + extra


def over_epochs(title: str, rows: Sequence[Row], pick: Any, y_label: str) -> str:
    """A number over the epochs: seeds as thin lines, their mean as a thick one; "" if none."""
    found = {row.label: series(row, pick) for row in rows}
    found = {
        label: [run for run in runs if any(math.isfinite(v) for v in run)]
        for label, runs in found.items()
    }
    longest = max((len(run) for runs in found.values() for run in runs), default=0)
    if not longest:
        return ""
    later = [v for runs in found.values() for run in runs for v in run[len(run) // 5 :]]
    epochs = _epochs(rows)
    chart = Chart(title, (1, max(epochs[-1], 2)), _limits(later), "epoch", y_label)
    hover = []
    for row in rows:
        runs = found[row.label]
        for run in runs:
            chart.line([(epochs[k], run[k]) for k in _thin(len(run))], colour(row), kind="seed")
    for row in rows:
        runs = [run for run in found[row.label] if len(run) == longest]
        runs = runs or found[row.label]
        if not runs:
            continue
        length = min(len(run) for run in runs)
        mean = np.mean([run[:length] for run in runs], axis=0)
        picked = _thin(length)
        chart.line([(epochs[k], float(mean[k])) for k in picked], colour(row), dash=dash(rows, row))
        values = [None if math.isnan(v) else float(f"{v:.5g}") for v in mean[picked]]
        hover.append({"n": row.title, "y": values, "x": [epochs[k] for k in picked]})
    chart.hover = json.dumps({"x": "epoch", "series": hover}, separators=(",", ":"))
    return chart.render()


def _epochs(rows: Sequence[Row]) -> list[int]:
    """The epochs of the longest run's lines: a small record has not all of them."""
    found = [[line["epoch"] for line in r.metrics()] for row in rows for r in row.records.values()]
    return max(found, key=len)


def learning_curves(rows: Sequence[Row], metric: Metric) -> str:
    """A validation metric over the epochs."""
    return over_epochs(
        f"{metric.title} on the validation set over the epochs, {metric.direction}",
        rows,
        lambda line: line["validation"].get(metric.name),
        f"{metric.title}, {metric.direction}",
    )


def penalty(rows: Sequence[Row]) -> str:
    """The moving rho of those losses that estimate one."""
    moving = [
        row
        for row in rows
        if any(len({v for v in run if math.isfinite(v)}) > 1 for run in series(row, _rho))
    ]
    return over_epochs("rho over the epochs", moving, _rho, "rho") if moving else ""


def _rho(line: dict[str, Any]) -> float | None:
    value: float | None = line.get("rho")
    return value


def by_size(results: Results, metric: Metric) -> str:
    """A test metric against the number of training examples."""
    sizes = results.train_sizes
    labels = list(dict.fromkeys(row.label for row in results.rows))
    values = []
    drawn: list[tuple[Row, float, float, float]] = []
    for label in labels:
        for row in results.rows:
            seeds = list(row.values(metric.name).values())
            if row.label == label and seeds and not row.broken(metric.name):
                mean, spread = mean_and_spread(seeds)
                spread = 0.0 if math.isnan(spread) else spread
                drawn.append((row, row.train_size, mean, spread))
                values += [mean - spread, mean + spread]
    if not drawn:
        return ""
    chart = Chart(
        f"{metric.title} on the test set against the training size, {metric.direction}",
        (sizes[0] / 1.15, sizes[-1] * 1.15),
        _limits(values),
        "training examples",
        f"{metric.title}, {metric.direction}",
        log_x=True,
        x_ticks=sizes,
    )
    for k, label in enumerate(labels):
        shift = 1.02 ** (k - (len(labels) - 1) / 2)
        rows = [(row, n * shift, m, s) for row, n, m, s in drawn if row.label == label]
        if not rows:
            continue
        ink = colour(rows[0][0])
        same = results.at(rows[0][0].train_size)
        chart.line([(n, m) for _, n, m, _ in rows], ink, dash=dash(same, rows[0][0]))
        for row, n, mean, spread in rows:
            chart.whisker(n, mean - spread, mean + spread, ink)
            chart.dot((n, mean), ink, f"{row.title}, {row.train_size}: {mean:.4f} ± {spread:.4f}")
    return chart.render()


def reliability(row: Row) -> str:
    """Accuracy against confidence in 15 bins, with how many examples each holds; "" if unknown."""
    found = [scores_of(record) for record in row.records.values()]
    known = [scores for scores in found if scores is not None]
    if not known:
        return ""
    confidence = np.concatenate([scores["confidence"] for scores in known]).astype(float)
    correct = np.concatenate([s["prediction"] == s["target"] for s in known])
    bins = np.minimum(np.ceil(confidence * _BINS).astype(int) - 1, _BINS - 1).clip(0)
    counts = np.bincount(bins, minlength=_BINS)
    chart = Chart(
        f"{row.title}: accuracy against confidence; shaded, the share of examples",
        (0, 1),
        (0, 1),
        "confidence",
        "accuracy",
        width=260,
        height=240,
    )
    for k in range(_BINS):
        if counts[k]:
            share = counts[k] / counts.sum()
            chart.bar(
                (k / _BINS, 0),
                ((k + 1) / _BINS, share),
                "var(--shade)",
                f"{counts[k]} examples ({share:.1%})",
            )
    chart.line([(0, 0), (1, 1)], "var(--muted)", kind="guide", dash="3 3")
    points = []
    for k in range(_BINS):
        if counts[k]:
            inside = bins == k
            points.append((float(confidence[inside].mean()), float(correct[inside].mean())))
            chart.dot(
                points[-1],
                colour(row),
                f"confidence {points[-1][0]:.3f}, accuracy {points[-1][1]:.3f}, "
                f"{counts[k]} examples",
            )
    chart.line(points, colour(row))
    return chart.render()


def margins(row: Row) -> str:
    """The share of test examples with a margin up to gamma, under the theorem's bound."""
    pooled = row.pooled_logits()
    if pooled is None:
        return ""
    logits, targets = pooled
    values = theory.margins(logits, targets).double().sort().values.numpy()
    low, high = float(np.quantile(values, 0.002)), float(np.quantile(values, 0.98))
    gammas = np.linspace(min(low, 0.0), max(high, 1e-3), 80)
    share = np.searchsorted(values, gammas, side="right") / len(values)
    chart = Chart(
        f"{row.title}: share of test examples whose margin is at most gamma",
        (float(gammas[0]), float(gammas[-1])),
        (0, 1),
        "margin gamma",
        "share",
        width=260,
        height=240,
    )
    chart.line(list(zip(gammas.tolist(), share.tolist(), strict=True)), colour(row))
    alpha = row.argument("alpha")
    if row.loss == "penex" and isinstance(alpha, float):
        bound = [
            (g, float(theory.sharp_margin_tail_bound(logits, targets, g, alpha)))
            for g in gammas.tolist()
        ]
        chart.line([(g, min(v, 1.5)) for g, v in bound], "var(--ink)", kind="bound", dash="5 3")
    return chart.render()
