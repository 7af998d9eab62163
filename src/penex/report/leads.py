"""The leader against each other loss, as a table: differences, intervals and p-values."""

import csv
import io
import math
from collections.abc import Sequence

from penex.metrics import METRICS
from penex.report.plain import csv_text
from penex.report.results import Results, Row
from penex.report.statistics import FEWEST, Lead, Verdict, verdict
from penex.report.words import with_interval

HEADS = (
    "metric",
    "leader",
    "rival",
    "lead [seeds]",
    "[seeds and test set]",
    "p",
    "p, Holm",
    "clear",
)
NOTE = (
    "The lead is in the direction of better, paired by seed, with 95 % intervals: over seeds on "
    "this test set, and over seeds and test sets (examples are drawn anew for both losses at once; "
    "where a record has no scores of single examples, the spreads of both losses are added up, "
    "which is wider). p is of Student's paired t-test over seeds; Holm's correction is for every "
    "pair of the table's losses in a metric. Clear is a corrected p of at most 0.05."
)


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """The verdict in each metric that is shown where there is room for few, if there are rivals."""
    found = [verdict(rows, metric) for metric in METRICS.values() if metric.drawn]
    return [one for one in found if one is not None and one.leads]


def lines(rows: Sequence[Row]) -> list[list[str]]:
    """The cells under `HEADS`, a line a metric and rival.

    None where the leader has learned nothing, and none at all if no lead has seeds enough for an
    interval.
    """
    found = [(one, lead) for one in verdicts(rows) if one.learned for lead in one.leads]
    if all(math.isnan(lead.seeds.p) or lead.seeds.pairs < FEWEST for _, lead in found):
        return []
    return [_cells(one, lead) for one, lead in found]


def _cells(found: Verdict, lead: Lead) -> list[str]:
    overall, metric = lead.overall, found.metric
    return [
        metric.title,
        found.leader.title,
        lead.rival.title,
        with_interval(lead.seeds, metric),
        with_interval(overall, metric).partition(" ")[2] or "–",
        p_text(lead.seeds.p),
        p_text(lead.p),
        "yes" if found.learned and lead.clear else "no",
    ]


def p_text(p: float) -> str:
    """A p-value for a table.

    >>> p_text(0.0234), p_text(0.0002), p_text(math.nan)
    ('0.023', '<0.001', '–')
    """
    if math.isnan(p):
        return "–"
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def as_csv(results: Results) -> str:
    """A line a training size, metric and rival; nothing is rounded."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    intervals = ["seeds_low", "seeds_high", "overall_low", "overall_high"]
    start = ["task", "train_size", "metric", "leader", "rival", "seeds", "lead"]
    writer.writerow([*start, *intervals, "p", "p_holm", "clear"])
    for size in results.train_sizes:
        for found in verdicts(results.at(size)):
            for lead in found.leads:
                names = [csv_text(row.label) for row in (found.leader, lead.rival)]
                ends = [*lead.seeds[1:3], *lead.overall[1:3]]
                what = [csv_text(results.task), size, found.metric.name, *names, lead.seeds.pairs]
                numbers = [lead.seeds.mean, *ends, lead.seeds.p, lead.p]
                clear = int(found.learned and lead.clear)
                writer.writerow([*what, *map(_known, numbers), clear])
    return buffer.getvalue()


def _known(value: float) -> float | str:
    return "" if math.isnan(value) else value
