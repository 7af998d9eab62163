"""Who won, and whether that is more than luck."""

import itertools
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from penex.metrics import RESAMPLES, Metric
from penex.report import sampling
from penex.report.results import Row

LEVEL = 0.95
FEWEST = 3  # seeds: two that happen to differ alike have an interval of almost no width
LUCKLESS = 0.9  # of log K: a cross-entropy above that is hardly better than guessing

RULE = (
    "the best mean among losses that completed with every seed, where its seed-paired lead over "
    f"every other has a p of at most {1 - LEVEL:.2f} by Student's t and Holm's correction, with "
    f"{FEWEST} seeds or more"
)

# Differences that are all alike have no interval: accuracies lie on a lattice, and a few seeds may
# well hit the same step of it by chance. Records hold float32, whose rounding is no spread.
_EXACT = 1e-6


def mean_and_spread(values: Collection[float]) -> tuple[float, float]:
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
        p: of a true difference of 0, two-sided; NaN likewise.
    """

    mean: float
    low: float
    high: float
    pairs: int
    p: float = math.nan

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
    """Student's interval of the differences a - b over the seeds that both have, and its p.

    The same seed means the same split, start and order of examples, so what is common to both
    losses cancels.

    >>> [round(x, 3) for x in paired_difference({0: 1.0, 1: 2.0}, {0: 0.5, 1: 1.0})]
    [0.75, -2.427, 3.927, 2, 0.205]
    """
    shared = sorted(a.keys() & b.keys())
    mean, spread = mean_and_spread([a[seed] - b[seed] for seed in shared])
    n = len(shared)
    if n < 2 or spread <= _EXACT * max(1.0, *(abs(a[seed]) for seed in shared)):
        return Interval(mean, math.nan, math.nan, n)
    from scipy.special import stdtr, stdtrit  # a second of imports that --help need not pay

    error = spread / math.sqrt(n)
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * error
    p = 2 * float(stdtr(n - 1, -abs(mean) / error))
    return Interval(mean, mean - half, mean + half, n, p)


def with_test_set(seeds: Interval, error: float) -> Interval:
    """An interval over seeds, widened by the luck of the test examples.

    With s the standard deviation of n paired differences, v the standard error that the examples
    add, and R the number of resamples that v comes from, half the interval is

        sqrt((t(0.975, n - 1) s)^2 / n + (t(0.975, R - 1) v)^2)

    the root of the sum of the squared halves of both intervals, as for any sum of two independent
    errors: it is that of the seeds where the examples add nothing, and never narrower. Both terms
    hold the part of the examples' luck that differs from seed to seed, so it errs on the wide side.

    Args:
        seeds: from `paired_difference`.
        error: v, see `penex.report.sampling`; NaN if unknown, and then the interval is.
    """
    from scipy.special import stdtrit

    examples = float(stdtrit(RESAMPLES - 1, (1 + LEVEL) / 2)) * error
    half = math.hypot(seeds.high - seeds.mean, examples)
    return Interval(seeds.mean, seeds.mean - half, seeds.mean + half, seeds.pairs)


def holm(plain: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: reject those up to 0.05, and one or more is wrong in 5 % of cases.

    From small to large, p_i becomes the largest of (m - j + 1) p_j for j up to i, and at most 1.
    A comparison that has no p (NaN) counts among the m, for it was made.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = sorted((p, place) for place, p in enumerate(plain) if not math.isnan(p))
    adjusted, highest = [math.nan] * len(plain), 0.0
    for rank, (p, place) in enumerate(known):
        highest = max(highest, min(1.0, (len(plain) - rank) * p))
        adjusted[place] = highest
    return adjusted


class Lead(NamedTuple):
    """The leader against a rival.

    Attributes:
        leader: the loss with the better mean.
        rival: the other loss.
        metric: which one.
        seeds: the difference, in the direction of better, with its interval over seeds.
        p: of that, with Holm's correction.
    """

    leader: Row
    rival: Row
    metric: Metric
    seeds: Interval
    p: float

    @property
    def clear(self) -> bool:
        """Whether it is beyond luck, as far as the seeds can tell."""
        return self.seeds.mean > 0 and self.seeds.pairs >= FEWEST and self.p <= 1 - LEVEL

    @property
    def overall(self) -> Interval:
        """The difference with its interval over seeds and test sets."""
        name = self.metric.name
        error = sampling.paired_error(self.leader.scored, self.rival.scored, self.metric)
        if error is None:
            error = sampling.unpaired_error(self.leader.spreads(name), self.rival.spreads(name))
        return with_test_set(self.seeds, error)


class Verdict(NamedTuple):
    """The leader in a metric.

    Attributes:
        metric: which one.
        leader: the loss with the best mean.
        leads: over each other candidate, from the runner-up to the last.
        learned: whether the leader does better than guessing.
        below: the leads of the others over each other.
    """

    metric: Metric
    leader: Row
    leads: tuple[Lead, ...]
    learned: bool
    below: tuple[Lead, ...] = ()

    @property
    def comparisons(self) -> int:
        """How many pairs of candidates there are: the family of Holm's correction."""
        return math.comb(len(self.leads) + 1, 2)

    def corrected(self, lead: Lead) -> Interval:
        """A lead with an interval that has zero inside unless Holm's correction calls it clear.

        Its level is Bonferroni's, 0.05 over the number of comparisons; a clear lead has the step of
        Holm's procedure that made it so. No interval where there is no verdict.
        """
        seeds = lead.seeds
        if not self.learned or seeds.pairs < FEWEST or math.isnan(seeds.p):
            return Interval(seeds.mean, math.nan, math.nan, seeds.pairs)
        from scipy.special import stdtrit

        step = seeds.p / lead.p if lead.clear and lead.p > 0 else 1 / self.comparisons
        quantiles = [float(stdtrit(seeds.pairs - 1, 1 - (1 - LEVEL) * k / 2)) for k in (1, step)]
        half = (seeds.high - seeds.mean) * quantiles[1] / quantiles[0]
        return Interval(seeds.mean, seeds.mean - half, seeds.mean + half, seeds.pairs, lead.p)

    @property
    def beaten(self) -> list[Lead]:
        """The leads that are beyond luck; none before anything has learned."""
        return [lead for lead in self.leads if self.learned and lead.clear]

    @property
    def clear(self) -> bool:
        """Whether there is a winner. Every star, bold number and "best" asks this, and only this.

        Each lead is more than luck, as far as the seeds can tell, and the leader has learned.
        """
        return 0 < len(self.leads) == len(self.beaten)


def has_learned(row: Row) -> bool:
    """Whether a loss does better than guessing: always so, if unknown.

    On its validation sets or on its test sets: where labels are wrong in one of them, a loss that
    has learned much looks as if it had not. By its cross-entropy; but a loss that is right three
    times as often as guessing (or whose error is less than half of guessing's, where there are few
    classes) has learned, even if its probabilities are bad: label smoothing with a large epsilon is
    an example, or one that grows too sure.
    """
    return any(_is_better_than_guessing(row, part) for part in ("validation", "test"))


def _is_better_than_guessing(row: Row, part: str) -> bool:
    entropy, accuracy = (
        mean_and_spread(row.values(name, part).values())[0]
        for name in ("cross_entropy", "accuracy")
    )
    if math.isnan(entropy) or row.classes is None or row.classes < 2:
        return True
    return entropy <= LUCKLESS * math.log(row.classes) or accuracy > min(
        (1 + 1 / row.classes) / 2, 3 / row.classes
    )


def verdict(rows: Sequence[Row], metric: Metric) -> Verdict | None:
    """The leader among losses that have the metric with every seed; None if there is none.

    A loss that diverged with some seed, is not done, has a damaged record, or a metric that is not
    finite, is no candidate: the mean of the lucky seeds flatters it.

    The family of Holm's correction is every pair of the candidates of one table in one metric, not
    only the leader's pairs: the same data choose the leader, and of seven equal losses the best of
    five seeds would else be clear of another in 9 % of cases instead of 5 %. Other metrics and
    other training sizes are families of their own.
    """
    means = {
        row.label: mean_and_spread(values.values())[0]
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
    pairs = list(itertools.combinations(ranked, 2))
    seeds = [advantage(better, other, metric) for better, other in pairs]
    adjusted = holm([interval.p for interval in seeds])
    every = [
        Lead(better, other, metric, interval, p)
        for (better, other), interval, p in zip(pairs, seeds, adjusted, strict=True)
    ]
    leader, others = ranked[0], len(ranked) - 1  # the leader's pairs come first
    return Verdict(
        metric, leader, tuple(every[:others]), has_learned(leader), tuple(every[others:])
    )


def advantage(ours: Row, theirs: Row, metric: Metric) -> Interval:
    """How much better one loss is than another, paired by seed: above 0 if it is better."""
    a, b = ours.values(metric.name), theirs.values(metric.name)
    return paired_difference(a, b) if metric.higher else paired_difference(b, a)
