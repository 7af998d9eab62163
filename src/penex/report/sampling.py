"""What a finite test set adds to the uncertainty of a difference between two losses."""

import hashlib
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from penex import metrics
from penex.lab.ground.errors import RecordError
from penex.lab.records.scores import Array, scores_of
from penex.metrics import Metric, Scores
from penex.report.finished import Finished


@dataclass(eq=False)
class Scored:
    """What a run said of its test examples, ready to be drawn anew.

    Attributes:
        scores: of each example.
        test_set: stands for the examples: runs that share it were tested on the same ones.
    """

    scores: Scores
    test_set: str
    _known: dict[str, Tensor] = field(default_factory=dict)

    def resampled(self, metric: Metric) -> Tensor:
        """The metric on each resampled test set, computed once."""
        if metric.name not in self._known:
            self._known.update(metrics.resampled(self.scores, [metric.name]))
        return self._known[metric.name]


def scored(run: Finished) -> Scored | None:
    """The scores of a run's test examples; None where the record has none that can be read."""
    try:
        kept = scores_of(run.record)
    except RecordError:
        return None  # the page says so where it would draw them
    return None if kept is None else of_arrays(kept)


def of_arrays(kept: Mapping[str, Array]) -> Scored:
    """The same from the arrays of a record, in whatever precision they are kept."""
    numbers = {name: torch.from_numpy(kept[name].astype(np.float32)) for name in _NUMBERS}
    correct = torch.from_numpy((kept["prediction"] == kept["target"]).astype(np.float32))
    target = kept["target"].astype(np.int64)
    return Scored(Scores(correct, **numbers), hashlib.sha256(target.tobytes()).hexdigest())


_NUMBERS = ("nll", "brier", "confidence")


def paired_error(a: Mapping[int, Scored], b: Mapping[int, Scored], metric: Metric) -> float | None:
    r"""The standard error of the mean difference a - b that comes from the test examples.

    Seeds that share a test set share its luck, however many they are. So examples are drawn, not
    seeds: for each resample of the test set the difference of the metric, averaged over the seeds
    that share it, and the standard deviation of that over the resamples. Where seeds have test
    sets of their own, the errors of those are averaged, as if they had the same luck: that is the
    most they can add up to.

    Args:
        a: the runs of a loss that have scores, by seed.
        b: those of another.
        metric: which one.

    Returns:
        None if no seed has scores of both on the same examples. Seeds without scores only make
        the error larger: their share would have averaged out.
    """
    groups: dict[str, list[Tensor]] = {}
    for seed in sorted(a.keys() & b.keys()):
        if a[seed].test_set == b[seed].test_set:
            change = a[seed].resampled(metric) - b[seed].resampled(metric)
            groups.setdefault(a[seed].test_set, []).append(change.double())
    if not groups:
        return None
    pairs = sum(map(len, groups.values()))
    return sum(
        float(torch.stack(changes).mean(dim=0).std()) * len(changes) / pairs
        for changes in groups.values()
    )


def unpaired_error(a: Mapping[int, float], b: Mapping[int, float]) -> float:
    """The same from the spreads alone: the root of the sum of both losses' mean variances.

    It is too large wherever two losses find the same examples hard, as they do; NaN if unknown.

    Args:
        a: the bootstrap spread of a loss on its test set, by seed.
        b: that of another.

    >>> unpaired_error({0: 3.0, 1: 3.0}, {0: 4.0, 1: 4.0})
    5.0
    """
    shared = a.keys() & b.keys()
    if not shared:
        return math.nan
    return math.sqrt(statistics.fmean(a[seed] ** 2 + b[seed] ** 2 for seed in shared))
