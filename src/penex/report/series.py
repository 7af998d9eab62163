"""What is drawn of a comparison, computed once; a page and figures show the same."""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from penex import registry, theory
from penex.lab.ground.errors import RecordError
from penex.lab.ground.sentences import count, visible
from penex.lab.records import Json
from penex.lab.records.reading import PREDICTIONS
from penex.lab.records.scores import SCORES, Array, scored
from penex.metrics import METRICS, Metric
from penex.report import standing
from penex.report.drawing import (
    DASHES,
    Bar,
    Dot,
    Line,
    Mark,
    Panel,
    Point,
    Whisker,
    limits,
    thinned,
    toned,
)
from penex.report.results import Results, Row
from penex.report.sampling import of_arrays
from penex.report.statistics import mean_and_spread

_BINS = 15
SMALLEST, _LARGEST = 1.2, 9.0  # the radius of a dot for no example, and what all of them add


@functools.lru_cache(maxsize=2)  # a page has two comparisons at most
def of(results: Results) -> "Series":
    """The drawings of a comparison."""
    return Series(results)


class Series:
    """The drawings of a comparison, each made when it is first asked for.

    Attributes:
        results: of what.
        unread: a sentence for each file that a drawing lacks because it is damaged.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self.unread: list[str] = []

    @functools.cached_property
    def curves(self) -> dict[tuple[int, str], Panel]:
        """The validation metrics over the epochs, by training size and metric."""
        return {
            (size, metric.name): panel
            for size in self.results.train_sizes
            for metric in METRICS.values()
            if (panel := _learning_curves(self.results, size, metric)) is not None
        }

    @functools.cached_property
    def rho(self) -> dict[int, Panel]:
        """The moving rho of those losses that estimate one, by training size."""
        found = {size: _penalty(self.results, size) for size in self.results.train_sizes}
        return {size: panel for size, panel in found.items() if panel is not None}

    @functools.cached_property
    def by_size(self) -> dict[str, Panel]:
        """The test metrics against the training size, if there are several, by metric."""
        if len(self.results.train_sizes) < 2:
            return {}
        shown = (metric for metric in METRICS.values() if metric.drawn)
        found = {metric.name: _by_size(self.results, metric) for metric in shown}
        return {name: panel for name, panel in found.items() if panel is not None}

    @functools.cached_property
    def seeds(self) -> dict[tuple[int, str], Panel]:
        """Who stands where on the test set, by training size and metric."""
        return {
            (size, metric.name): standing.panel(self.results, size, metric)
            for size in self.results.train_sizes
            for metric in METRICS.values()
            if metric.drawn
        }

    @functools.cached_property
    def predicted(self) -> list[tuple[Row, Panel | None, Panel | None]]:
        """Calibration and margins of each row, None where the records do not say.

        One after the other: the logits of all rows may be more than fits into memory.
        """
        found = []
        for row in self.results.rows:
            scores, logits = self._predictions(row)
            ink = ink_of(self.results, row)
            calibration = reliability(row, ink, scores) if scores else None
            found.append((row, calibration, _margins(row, ink, logits) if logits else None))
        return found

    def _predictions(self, row: Row) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
        """The scores of each run, and the arrays with its logits, of the runs that have them."""
        scores, logits = [], []
        for seed, run in row.records.items():
            try:
                there = {name for name in (PREDICTIONS, SCORES) if run.record.has(name)}
                if not there:  # what is gone without done.json knowing it is told
                    there = run.done["sha256"].keys() & {PREDICTIONS, SCORES}
                if PREDICTIONS in there:
                    logits.append(run.record.predictions())
                    scores.append(scored(logits[-1]))
                    row.kept.setdefault(seed, of_arrays(scores[-1]))  # no verdict reads them again
                elif there:
                    scores.append(run.record.arrays(SCORES))
                    row.kept.setdefault(seed, of_arrays(scores[-1]))
            except RecordError as error:
                text = str(error).replace(f"{self.results.folder}/", "")
                self.unread.append(visible(text))
        return scores, logits


def ink_of(results: Results, row: Row) -> str:
    """The colour of a row in every figure: its loss's, or a tone of it for other arguments."""
    return toned(row.loss, results.variant(row))


def dash_of(results: Results, row: Row) -> int:
    """The dashes of a row's lines in every figure: rows of one loss differ in them."""
    return results.variant(row) % DASHES


def _over_epochs(
    title: str,
    results: Results,
    rows: Sequence[Row],
    pick: Callable[[Json], float | None],
    y_label: str,
) -> Panel | None:
    """A number over the epochs: seeds as thin lines, their mean as a thick one; None if none."""
    found = {row.label: _lines(row, pick) for row in rows}
    runs = [run for lines in found.values() for run in lines]
    if not runs:
        return None
    later = [y for run in runs for _, y in run[len(run) // 5 :]]
    last = max(run[-1][0] for run in runs)
    panel = Panel(title, (1, max(last, 2)), limits(later), "epoch", y_label, hover="epoch")
    panel.marks += [
        Line(thinned(run), ink_of(results, row), "seed") for row in rows for run in found[row.label]
    ]
    for row in rows:
        if mean := _mean(found[row.label]):
            ink, dash = ink_of(results, row), dash_of(results, row)
            panel.marks.append(Line(thinned(mean), ink, dash=dash, name=row.title))
    return panel


def _lines(row: Row, pick: Callable[[Json], float | None]) -> list[list[Point]]:
    """A number of each epoch, for each seed's run that has some."""
    found = []
    for run in row.records.values():
        values = [(float(line["epoch"]), pick(line)) for line in run.history]
        points = [(epoch, math.nan if y is None else float(y)) for epoch, y in values]
        if any(math.isfinite(y) for _, y in points):
            found.append(points)
    return found


def _mean(runs: list[list[Point]]) -> list[Point]:
    """The mean at the epochs that every run has: it ends where the first run ends."""
    tables = [dict(run) for run in runs]
    shared = [x for x in (tables[0] if tables else ()) if all(x in table for table in tables)]
    return [(x, float(np.mean([table[x] for table in tables]))) for x in shared]


def _learning_curves(results: Results, size: int, metric: Metric) -> Panel | None:
    return _over_epochs(
        f"{metric.title} on the validation set over the epochs, {metric.direction}",
        results,
        results.at(size),
        lambda line: line["validation"].get(metric.name),
        f"{metric.title}, {metric.direction}",
    )


def _penalty(results: Results, size: int) -> Panel | None:
    def rho(line: Json) -> float | None:
        value: float | None = line.get("rho")
        return value

    moving = [
        row
        for row in results.at(size)
        if any(len({y for _, y in run if math.isfinite(y)}) > 1 for run in _lines(row, rho))
    ]
    return _over_epochs("rho over the epochs", results, moving, rho, "rho")


def _by_size(results: Results, metric: Metric) -> Panel | None:
    """Mean ± standard deviation over seeds; None if no loss has the metric."""
    sizes = results.train_sizes
    labels = list(dict.fromkeys(row.label for row in results.rows))
    marks: list[Mark] = []
    reached = []
    for k, label in enumerate(labels):
        shift = 1.02 ** (k - (len(labels) - 1) / 2)  # whiskers side by side
        rows = sorted(
            (r for r in results.rows if r.label == label and r.values(metric.name)),
            key=lambda row: row.train_size,
        )
        points = []
        for row in (row for row in rows if not row.broken(metric.name)):
            mean, spread = mean_and_spread(row.values(metric.name).values())
            spread = 0.0 if math.isnan(spread) else spread
            points.append((row.train_size * shift, mean))
            low, high = mean - spread, mean + spread
            reached += [low, high]
            words = f"{metric.text(mean)} ± {metric.text(spread)}"
            ink = ink_of(results, row)
            marks.append(Whisker(points[-1][0], low, high, ink))
            marks.append(Dot(points[-1], ink, f"{row.title}, {row.train_size}: {words}"))
        if points:
            dash = dash_of(results, rows[0])
            marks.append(Line(points, ink, dash=dash, name=rows[0].title))
    if not marks:
        return None
    return Panel(
        f"{metric.title} on the test set against the training size, {metric.direction}",
        (sizes[0] / 1.15, sizes[-1] * 1.15),
        limits(reached),
        "training examples",
        f"{metric.title}, {metric.direction}",
        log_x=True,
        x_ticks=sizes,
        marks=marks,
    )


def reliability(row: Row, ink: str, known: list[dict[str, Array]]) -> Panel:
    """Accuracy against confidence in 15 bins; a dot's area is the share of examples in its bin."""
    confidence = np.concatenate([scores["confidence"] for scores in known]).astype(float)
    correct = np.concatenate([s["prediction"] == s["target"] for s in known])
    bins = np.minimum(np.ceil(confidence * _BINS).astype(int) - 1, _BINS - 1).clip(0)
    counts = np.bincount(bins, minlength=_BINS)
    bars: list[Mark] = []
    dots: list[Mark] = []
    points = []
    for k in np.flatnonzero(counts).tolist():
        share, inside = counts[k] / counts.sum(), bins == k
        x, y = float(confidence[inside].mean()), float(correct[inside].mean())
        points.append((x, y))
        examples = count(int(counts[k]), "example")
        text = f"{examples} ({share:.1%})"
        bars.append(Bar((k / _BINS, 0.0), ((k + 1) / _BINS, float(share)), "shade", text))
        text = f"confidence {x:.3f}, accuracy {y:.3f}, {examples}"
        dots.append(Dot((x, y), ink, text, SMALLEST + _LARGEST * math.sqrt(share)))
    guide = Line([(0.0, 0.0), (1.0, 1.0)], "muted", "guide", dash=2)
    return Panel(
        f"{row.title}: accuracy against confidence; the larger a dot, the more examples",
        (0, 1),
        (0, 1),
        "confidence",
        "accuracy",
        small=True,
        marks=[*bars, guide, Line(points, ink, "seed"), *dots],
    )


def _margins(row: Row, ink: str, known: list[dict[str, Array]]) -> Panel:
    """The share of test examples with a margin up to gamma, under the theorem's bound."""
    logits = torch.from_numpy(np.concatenate([arrays["test_logits"] for arrays in known]))
    targets = torch.from_numpy(np.concatenate([arrays["test_targets"] for arrays in known]))
    values = theory.margins(logits, targets).double().sort().values.numpy()
    low, high = float(np.quantile(values, 0.002)), float(np.quantile(values, 0.98))
    gammas = np.linspace(min(low, 0.0), max(high, 1e-3), 80)
    share = np.searchsorted(values, gammas, side="right") / len(values)
    panel = Panel(
        f"{row.title}: share of test examples whose margin is at most gamma",
        (float(gammas[0]), float(gammas[-1])),
        (0, 1),
        "margin gamma",
        "share",
        small=True,
        marks=[Line(list(zip(gammas.tolist(), share.tolist(), strict=True)), ink)],
    )
    alpha = row.argument("alpha")
    # The theorem is for alpha above 0; below, there is no bound to draw.
    if row.loss == registry.SUBJECT and isinstance(alpha, float) and alpha > 0:
        bound = [
            (g, min(float(theory.sharp_margin_tail_bound(logits, targets, g, alpha)), 1.5))
            for g in gammas.tolist()
        ]
        panel.marks.append(Line(bound, "ink", "bound", dash=1))
    return panel
