"""The same runs judged in every way that their records hold: which epoch, which temperature."""

from collections.abc import Sequence
from dataclasses import replace

from penex.lab.ground.errors import RecordError
from penex.lab.records.views import View
from penex.metrics import METRICS, Metric
from penex.report.results import Row
from penex.report.statistics import verdict
from penex.report.words import cell

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
    """The cells under `HEADS`, bold where best beyond luck; none if a record lacks a way."""
    try:
        columns = [
            _marked([viewed(row, view) for row in rows], METRICS[name]) for name, view in COLUMNS
        ]
    except RecordError:
        return []
    return [[row.title, *cells] for row, *cells in zip(rows, *columns, strict=True)]


def _marked(rows: list[Row], metric: Metric) -> list[str]:
    found = verdict(rows, metric)
    best = found.leader.label if found is not None and found.clear else None
    return [f"**{cell(row, metric)}**" if row.label == best else cell(row, metric) for row in rows]
