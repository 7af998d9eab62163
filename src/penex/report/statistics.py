"""Who won, and whether that is more than luck."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penex.metrics import Metric
from penex.report.results import Row

LEVEL = 0.95
FEWEST = 3  # seeds: two that happen to differ alike have an interval of almost no width
LUCKLESS = 0.9  # of log K: a cross-entropy above that is hardly better than guessing

RULE = (
    f"the best mean among losses that completed with every seed, where the 95 % interval of the "
    f"seed-paired difference to the runner-up excludes zero, with {FEWEST} seeds or more"
)

# Differences that are all alike have no interval: accuracies lie on a lattice, and a few seeds may
# well hit the same step of it by chance. Records hold float32, whose rounding is no spread.
_EXACT = 1e-6


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
        """Whether the difference is more than its own uncertainty, over enough pairs to know.

        >>> [Interval(0.5, 0.25, 0.75, pairs).excludes_zero for pairs in (2, 3)]
        [False, True]
        """
        return self.pairs >= FEWEST and (self.low > 0 or self.high < 0)

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
    shared = sorted(a.keys() & b.keys())
    mean, spread = mean_and_spread([a[seed] - b[seed] for seed in shared])
    n = len(shared)
    if n < 2 or spread <= _EXACT * max(1.0, *(abs(a[seed]) for seed in shared)):
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
        learned: whether the leader does better than guessing.
    """

    metric: Metric
    leader: Row
    runner_up: Row | None
    lead: Interval | None
    learned: bool

    @property
    def clear(self) -> bool:
        """Whether there is a winner. Every star, bold number and "best" asks this, and only this.

        The lead is more than luck, as far as the seeds can tell, and the leader has learned.
        """
        return self.learned and self.lead is not None and self.lead.excludes_zero


def has_learned(row: Row) -> bool:
    """Whether a loss does better on its validation sets than guessing: always so, if unknown.

    By its cross-entropy; but a loss whose error is less than half of guessing's has learned, even
    if its probabilities are bad: label smoothing with a large epsilon is an example.
    """
    entropy, accuracy = (
        mean_and_spread(list(row.values(name, "validation").values()))[0]
        for name in ("cross_entropy", "accuracy")
    )
    if math.isnan(entropy) or row.classes is None or row.classes < 2:
        return True
    return entropy <= LUCKLESS * math.log(row.classes) or accuracy > (1 + 1 / row.classes) / 2


def verdict(rows: Sequence[Row], metric: Metric) -> Verdict | None:
    """The leader among losses that have the metric with every seed; None if there is none.

    A loss that diverged with some seed, is not done, has a damaged record, or a metric that is not
    finite, is no candidate: the mean of the lucky seeds flatters it.
    """
    means = {
        row.label: mean_and_spread(list(values.values()))[0]
        for row in rows
        if (values := row.values(metric.name)) and len(values) == row.total
    }
    ranked = sorted(
        (row for row in rows if row.label in means),
        key=lambda row: means[row.label],
        reverse=metric.higher,
    )
    if not ranked:
        return None
    if len(ranked) == 1:
        return Verdict(metric, ranked[0], None, None, has_learned(ranked[0]))
    first, second = ranked[:2]
    ours, theirs = first.values(metric.name), second.values(metric.name)
    lead = paired_difference(ours, theirs) if metric.higher else paired_difference(theirs, ours)
    return Verdict(metric, first, second, lead, has_learned(first))
