"""Who won, and whether that is more than luck."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penex.report.results import Metric, Row

LEVEL = 0.95

# Differences that are all alike have no interval: accuracies lie on a lattice, and two or three
# seeds may well hit the same step of it by chance.
_EXACT = 1e-9


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation over seeds; NaN where there are too few.

    >>> mean_and_spread([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    mean = statistics.fmean(values) if values else math.nan
    return mean, statistics.stdev(values) if len(values) > 1 else math.nan


class Interval(NamedTuple):
    """A mean difference and its 95 % confidence interval.

    Attributes:
        mean: of the differences.
        low: NaN for fewer than two pairs, or differences that are all alike.
        high: NaN likewise.
        pairs: how many seeds both have.
    """

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the difference is more than its own uncertainty."""
        return self.low > 0 or self.high < 0

    @property
    def words(self) -> str:
        """The mean, and the interval if there is one.

        >>> Interval(0.5, 0.25, 0.75, 5).words, Interval(0.5, math.nan, math.nan, 1).words
        ('+0.500 [+0.250, +0.750]', '+0.500')
        >>> Interval(math.nan, math.nan, math.nan, 0).words
        '–'
        """
        if math.isnan(self.mean):
            return "–"
        interval = "" if math.isnan(self.low) else f" [{self.low:+.3f}, {self.high:+.3f}]"
        return f"{self.mean:+.3f}{interval}"


def paired_difference(a: Mapping[int, float], b: Mapping[int, float]) -> Interval:
    """Student's interval of the differences a - b over the seeds that both have.

    The same seed means the same split, start and order of examples, so what is common to both
    losses cancels.

    >>> [round(x, 3) for x in paired_difference({0: 1.0, 1: 2.0}, {0: 0.5, 1: 1.0})]
    [0.75, -2.427, 3.927, 2]
    """
    differences = [a[seed] - b[seed] for seed in a.keys() & b.keys()]
    mean, spread = mean_and_spread(differences)
    n = len(differences)
    if n < 2 or spread <= _EXACT * max(1.0, abs(mean)):
        return Interval(mean, math.nan, math.nan, n)
    from scipy.special import stdtrit  # a second of imports that --help need not pay

    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * spread / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


class Verdict(NamedTuple):
    """The leader in a metric.

    Attributes:
        metric: which one.
        leader: the loss with the best mean.
        runner_up: the one after it; None if there is no other.
        lead: how much better the leader is, in the direction of better; None without runner-up.
    """

    metric: Metric
    leader: Row
    runner_up: Row | None
    lead: Interval | None

    @property
    def clear(self) -> bool:
        """Whether the leader's lead is more than luck, as far as the seeds can tell."""
        return self.lead is not None and self.lead.excludes_zero


def verdict(rows: Sequence[Row], metric: Metric) -> Verdict | None:
    """The leader among losses all of whose runs completed; None if there is none.

    A loss that diverged with some seed, or has a metric that is not finite, is no candidate: the
    mean of the lucky seeds flatters it.
    """
    means = {
        row.label: mean_and_spread(list(values.values()))[0]
        for row in rows
        if (values := row.values(metric.name))
        and not (row.diverged or row.missing or row.broken(metric.name))
    }
    ranked = sorted(
        (row for row in rows if row.label in means),
        key=lambda row: means[row.label],
        reverse=metric.higher,
    )
    if not ranked:
        return None
    if len(ranked) == 1:
        return Verdict(metric, ranked[0], None, None)
    first, second = ranked[:2]
    ours, theirs = first.values(metric.name), second.values(metric.name)
    lead = paired_difference(ours, theirs) if metric.higher else paired_difference(theirs, ours)
    return Verdict(metric, first, second, lead)
