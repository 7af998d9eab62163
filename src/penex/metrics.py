"""Accuracy, cross-entropy, Brier score and calibration error, with their bootstrap spread.

Every metric takes logits of shape (N, C) and class indices of shape (N), and the temperature of
the loss the model was trained with (``loss.temperature``): probabilities are
softmax(logits / temperature). A row of logits with a NaN makes a metric NaN, never a number.

`METRICS` names what runs record and reports show; `register` adds to it, and all of them follow.
`VOTED` names what is recorded besides, of a test set for which people voted.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from penex.scoring import Scores as Scores
from penex.scoring import check_votes
from penex.scoring import scores as scores
from penex.scoring import scores_side_by_side as scores_side_by_side

RESAMPLES = 100  # the paper's number
_AT_ONCE = 2**22  # scores that are resampled together: those of 100 times 10000 examples


def accuracy(logits: Tensor, target: Tensor, *, temperature: float = 1.0) -> Tensor:
    """The share of examples whose largest logit is the target's; no temperature changes it.

    >>> accuracy(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
    tensor(0.5000)
    """
    return scores(logits, target, temperature=temperature).correct.mean()


def cross_entropy(logits: Tensor, target: Tensor, *, temperature: float = 1.0) -> Tensor:
    """The mean negative log-likelihood, -E[log P(y | x)].

    >>> cross_entropy(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.6931)
    """
    return scores(logits, target, temperature=temperature).nll.mean()


def human_cross_entropy(logits: Tensor, votes: Tensor, *, temperature: float = 1.0) -> Tensor:
    """The cross-entropy to the shares of people's votes, -E[sum_j q_j log P(j | x)].

    It is lowest where the model doubts as much as people do: q itself scores q's entropy.

    Args:
        logits: (N, C), as the model gave them.
        votes: how many people chose each class, or their shares, (N, C).
        temperature: of the loss the model was trained with.

    >>> votes = torch.tensor([[3.0, 1.0]])
    >>> human_cross_entropy(votes.log(), votes)
    tensor(0.5623)
    """
    check_votes(logits, votes)
    target = votes.argmax(dim=-1)  # any will do: this metric does not look at it
    found = scores(logits, target, temperature=temperature, votes=votes).human
    assert found is not None
    return found.mean()


def brier(logits: Tensor, target: Tensor, *, temperature: float = 1.0) -> Tensor:
    """The Brier score, E[sum_j (P(j | x) - 1[j = y])^2].

    >>> brier(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.5000)
    """
    return scores(logits, target, temperature=temperature).brier.mean()


def ece(logits: Tensor, target: Tensor, *, temperature: float = 1.0, bins: int = 15) -> Tensor:
    """The expected calibration error of the whole set: sum_m |B_m| / n |acc(B_m) - conf(B_m)|.

    An example is in bin m of M if its top probability is in ((m - 1) / M, m / M]; a probability
    of exactly 1 is in the last bin. The paper's text averages the true class's probability; like
    the literature (and the paper's code) we average the top one.

    >>> ece(torch.tensor([[9.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 1]))
    tensor(0.4999)
    """
    return _ece(scores(logits, target, temperature=temperature), bins)


def ece_per_batch(
    logits: Tensor,
    target: Tensor,
    *,
    temperature: float = 1.0,
    batch_size: int = 64,
    bins: int = 15,
) -> Tensor:
    """The plain mean of the calibration errors of consecutive batches.

    What published tables often hold, for it is what logging batch by batch gives. Within 64
    examples chance alone opens a gap: a perfectly calibrated model scores about 0.15 at an
    accuracy of 0.53 and 0.10 at 0.82. Compare it with its own kind only, and prefer `ece`.

    >>> ece_per_batch(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]), batch_size=2)
    tensor(0.2500)
    """
    return _ece_per_batch(scores(logits, target, temperature=temperature), batch_size, bins)


def bootstrap(
    logits: Tensor,
    target: Tensor,
    *,
    temperature: float = 1.0,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Tensor]:
    """The bootstrap spread of every metric: its standard deviation over resampled test sets.

    Each resample draws n examples with replacement from the cached scores, so no model is called.
    The spread says how much the finite test set moves a number; it knows nothing of seeds.

    Args:
        logits: (N, C), as the model gave them.
        target: class indices, (N).
        temperature: of the loss the model was trained with.
        resamples: how many test sets to draw, at least 2. The paper draws 100.
        seed: the same seed draws the same resamples.

    >>> spread = bootstrap(torch.eye(2).repeat(50, 1), torch.zeros(100).long())
    >>> sorted(spread)
    ['accuracy', 'brier', 'cross_entropy', 'ece', 'ece_per_batch']
    """
    cached = scores(logits, target, temperature=temperature)
    return bootstrap_scores(cached, resamples=resamples, seed=seed)


def bootstrap_scores(
    cached: Scores, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Tensor]:
    """`bootstrap` from scores that are already there, as a stored run has them.

    >>> cached = scores(torch.eye(2).repeat(50, 1), torch.arange(2).repeat(50))
    >>> bootstrap_scores(cached)["accuracy"]
    tensor(0.)
    """
    drawn = resampled(cached, recorded(cached), resamples=resamples, seed=seed)
    return {name: values.std() for name, values in drawn.items()}


def resampled(
    cached: Scores, names: Collection[str], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Tensor]:
    """Some metrics on so many resampled test sets, (resamples) each.

    Two models' scores of one test set meet the same resamples, so their values can be subtracted.

    >>> cached = scores(torch.eye(2).repeat(50, 1), torch.arange(2).repeat(50))
    >>> resampled(cached, ["accuracy"], resamples=3)
    {'accuracy': tensor([1., 1., 1.])}
    """
    if resamples < 2:
        raise ValueError(f"A spread needs at least 2 resamples; got {resamples}.")
    generator = torch.Generator().manual_seed(seed)
    table = torch.stack([column for column in cached if column is not None])
    n = table.shape[1]
    drawn = []
    at_once = max(1, _AT_ONCE // table.numel())
    for start in range(0, resamples, at_once):
        some = range(start, min(start + at_once, resamples))
        index = torch.stack([torch.randint(n, (n,), generator=generator) for _ in some])
        drawn.append(summary(Scores(*table[:, index.to(table.device)]), names))
    return {name: torch.cat([values[name] for values in drawn]) for name in names}


def summary(cached: Scores, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """Every metric from the scores of a set, or of sets side by side: (...) from (..., N).

    Args:
        cached: the scores.
        names: of the metrics, if not all.

    >>> summary(scores(torch.zeros(1, 2), torch.tensor([0])))["accuracy"]
    tensor(1.)
    """
    known = recorded(cached)
    wanted = known if names is None else names
    return {name: known[name].of(cached).to(cached.nll.dtype) for name in wanted}


def recorded(cached: Scores) -> "dict[str, Metric]":
    """The metrics of a set: with those of people's votes, where there are votes."""
    return METRICS if cached.human is None else METRICS | VOTED


def _gaps(cached: Scores, batch_size: int, bins: int) -> Tensor:
    """The calibration error of each batch of consecutive examples, (..., batches) from (..., N).

    |B| |acc(B) - conf(B)| is the absolute sum of (correct - confidence) over B, so one running sum
    a batch and bin is all that is kept.
    """
    if batch_size < 1 or bins < 1:
        raise ValueError(f"batch_size and bins must be at least 1; got {batch_size} and {bins}.")
    confidence = cached.confidence
    *sets, n = confidence.shape
    device = confidence.device
    batches = -(-n // batch_size)
    edges = torch.arange(1, bins, device=device, dtype=confidence.dtype) / bins
    cell = torch.bucketize(confidence, edges)  # bins closed on the right
    if batches > 1:
        cell += torch.arange(n, device=device) // batch_size * bins
    # In float64 where there is one: a running float32 sum of 1e6 gaps is off in the third digit.
    wide = torch.float32 if device.type == "mps" else torch.float64
    sums = torch.zeros(*sets, batches * bins, dtype=wide, device=device)
    sums.scatter_add_(-1, cell, (cached.correct - confidence).to(wide))
    sizes = (n - batch_size * torch.arange(batches, device=device)).clamp(max=batch_size)
    return sums.view(*sets, batches, bins).abs().sum(dim=-1) / sizes


def _ece(cached: Scores, bins: int = 15) -> Tensor:
    whole = _gaps(cached, cached.confidence.shape[-1], bins).squeeze(-1)
    return whole.to(cached.confidence.dtype)


def _ece_per_batch(cached: Scores, batch_size: int = 64, bins: int = 15) -> Tensor:
    return _gaps(cached, batch_size, bins).mean(dim=-1).to(cached.confidence.dtype)


@dataclass(frozen=True)
class Metric:
    """A metric as runs record it and reports show it.

    Attributes:
        name: in records.
        title: in tables and figures.
        of: its value from the scores of a set, or of sets side by side: (...) from (..., N).
        higher: whether higher is better.
        digits: after the point, in tables.
        drawn: whether it is also shown where there is room for few: in figures and terminals.
    """

    name: str
    title: str
    of: Callable[[Scores], Tensor]
    higher: bool = False
    digits: int = 4
    drawn: bool = True

    @property
    def direction(self) -> str:
        """Which way is better, in words."""
        return "higher is better" if self.higher else "lower is better"

    def text(self, value: float, *, sign: bool = False) -> str:
        """A value of it for a table.

        >>> METRICS["brier"].text(0.25), METRICS["brier"].text(0.25, sign=True)
        ('0.2500', '+0.2500')
        """
        return f"{value:{'+' if sign else ''}.{self.digits}f}"


METRICS: dict[str, Metric] = {}


def register(metric: Metric) -> Metric:
    """Add a metric: runs that are evaluated from now on record it, and reports show it.

    >>> sure = Metric("sure", "sure", lambda s: (s.confidence > 0.9).double().mean(-1), higher=True)
    >>> register(sure) is METRICS.pop("sure")
    True
    """
    if metric.name in METRICS:
        raise ValueError(f"There is a metric {metric.name!r} already: choose another name.")
    METRICS[metric.name] = metric
    return metric


register(Metric("accuracy", "accuracy", lambda s: s.correct.mean(dim=-1), higher=True))
register(Metric("cross_entropy", "cross-entropy", lambda s: s.nll.mean(dim=-1)))
register(Metric("brier", "Brier", lambda s: s.brier.mean(dim=-1)))
register(Metric("ece", "ECE", _ece))
register(Metric("ece_per_batch", "ECE per batch", _ece_per_batch, drawn=False))


def _mean_human(cached: Scores) -> Tensor:
    assert cached.human is not None
    return cached.human.mean(dim=-1)


_HUMAN = Metric("human_cross_entropy", "human cross-entropy", _mean_human, drawn=False)
VOTED: dict[str, Metric] = {_HUMAN.name: _HUMAN}
