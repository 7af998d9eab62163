"""The same runs judged in every way that their records hold: which epoch, which temperature."""

import math
from collections.abc import Sequence
from dataclasses import replace

from penex.lab.ground.errors import RecordError
from penex.lab.records.views import View
from penex.metrics import METRICS
from penex.report.results import Row
from penex.report.statistics import mean_and_spread

COLUMNS = (
    ("accuracy", View()),
    ("cross_entropy", View()),
    ("cross_entropy", View("last", True)),
    ("brier", View()),
    ("ece", View()),
    ("accuracy", View("best")),
    ("cross_entropy", View("best")),
    ("cross_entropy", View("best", True)),
)
NOTE = (
    "After the last epoch, and after the one with the best cross-entropy on the validation set; at "
    "the loss's own temperature, and at one fitted to the validation set. Compare down a column."
)


def head(name: str, view: View) -> str:
    """A column's title.

    >>> head("cross_entropy", View("best", True))
    'cross-entropy, best epoch, fitted'
    """
    fitted = ", fitted" if view.calibrate else ""
    return f"{METRICS[name].title}, {view.select} epoch{fitted}"


HEADS = ("loss", *(head(name, view) for name, view in COLUMNS))


def viewed(row: Row, view: View) -> Row:
    """A row judged otherwise; a RecordError if a record does not hold that."""
    # Scores of single examples are of the last epoch, at the loss's own temperature.
    kept = dict(row.kept) if view == View() else dict.fromkeys(row.records)
    done = {seed: view.of(run.done) for seed, run in row.records.items()}
    return replace(row, done=done, kept=kept)


def lines(rows: Sequence[Row]) -> list[list[str]]:
    """The cells under `HEADS`, the best mean of a column in bold; none if a record lacks a way."""
    try:
        columns = [[viewed(row, view) for row in rows] for _, view in COLUMNS]
    except RecordError:
        return []
    means = [
        [_mean(row, name) for row in column]
        for (name, _), column in zip(COLUMNS, columns, strict=True)
    ]
    return [
        [
            row.title,
            *(
                _cell(column[k], name, best=_is_best(mean, k, name))
                for (name, _), column, mean in zip(COLUMNS, columns, means, strict=True)
            ),
        ]
        for k, row in enumerate(rows)
    ]


def _mean(row: Row, name: str) -> float:
    """The mean over seeds; NaN where a run diverged, or a number is not finite."""
    values = list(row.values(name).values())
    sound = values and not row.diverged and not row.broken(name)
    return mean_and_spread(values)[0] if sound else math.nan


def _is_best(column: list[float], k: int, name: str) -> bool:
    known = [value for value in column if not math.isnan(value)]
    return bool(known) and column[k] == (max if METRICS[name].higher else min)(known)


def _cell(row: Row, name: str, *, best: bool) -> str:
    if math.isnan(mean := _mean(row, name)):
        return "diverged" if row.diverged else "–"
    spread = mean_and_spread(list(row.values(name).values()))[1]
    said = f"**{mean:.3f}**" if best else f"{mean:.3f}"
    return said if math.isnan(spread) else f"{said} ± {spread:.3f}"
