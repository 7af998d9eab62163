"""How many labels are wrong, and which: confident learning over held-out probabilities.

Northcutt, Jiang and Chuang, 2021, *Confident learning: estimating uncertainty in dataset labels*.
Probabilities must come from models that did not see the label: one that learned it by heart finds
every label right. All functions take probabilities (N, K) and the given class indices (N).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor


def self_confidence(probabilities: Tensor, target: Tensor) -> Tensor:
    """p_y of each example, the probability of its given label: low where that looks wrong.

    >>> p = torch.tensor([[0.75, 0.25], [0.75, 0.25]])
    >>> self_confidence(p, torch.tensor([0, 1]))
    tensor([0.7500, 0.2500])
    """
    _check(probabilities, target)
    return probabilities.gather(1, target.unsqueeze(1)).squeeze(1)


def confident_class(probabilities: Tensor, target: Tensor) -> Tensor:
    """The class that each example is confidently of, or -1 where it is of none.

    A class j is confident of an example if p_j is at least its threshold, the mean of p_j over the
    examples that are labelled j; of several such classes the most probable counts.

    >>> p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.9, 0.1]])
    >>> confident_class(p, torch.tensor([0, 0, 1, 1]))
    tensor([ 0, -1,  1,  0])
    """
    p = probabilities.double()
    own = self_confidence(p, target)
    counts = torch.bincount(target, minlength=p.shape[1])
    sums = torch.zeros_like(p[0]).index_add_(0, target, own)
    # A class that labels nothing has no threshold, so that nothing is confidently of it. A mean of
    # equal numbers may round to more than they are.
    thresholds = (sums / counts - 1e-12).where(counts > 0, torch.inf)
    passing = p.where(p >= thresholds, -1.0)
    return passing.argmax(dim=1).where((passing >= 0).any(dim=1), -1)


def joint(probabilities: Tensor, target: Tensor) -> Tensor:
    """The estimated joint distribution of given labels (rows) and right ones (columns), (K, K).

    The counts of given label and confident class, each row scaled to the share of its label. A row
    without any count stays on the diagonal: nothing speaks against its labels.

    >>> p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.9, 0.1]])
    >>> joint(p, torch.tensor([0, 0, 1, 1]))
    tensor([[0.5000, 0.0000],
            [0.2500, 0.2500]], dtype=torch.float64)
    """
    confident = confident_class(probabilities, target)
    k = probabilities.shape[1]
    known = confident >= 0
    counts = torch.bincount(k * target[known] + confident[known], minlength=k * k)
    rows = counts.view(k, k).double()
    empty = rows.sum(dim=1) == 0
    rows[empty, empty] = 1.0
    shares = torch.bincount(target, minlength=k).double() / len(target)
    return rows / rows.sum(dim=1, keepdim=True) * shares.unsqueeze(1)


def wrong_share(probabilities: Tensor, target: Tensor) -> float:
    """The estimated share of wrong labels: what `joint` has off its diagonal.

    Too high where models often err and where classes overlap, of unequal ones most of all:
    `estimate` looks whether they do.

    >>> p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.9, 0.1]])
    >>> wrong_share(p, torch.tensor([0, 0, 1, 1]))
    0.25
    """
    return 1.0 - float(joint(probabilities, target).diagonal().sum())


def wrong_share_error(probabilities: Tensor, target: Tensor, group: Tensor) -> float:
    """The standard error of `wrong_share`, by the jackknife that leaves out a group at a time.

    sqrt((G - 1) / G sum_g (s_g - mean s)^2), s_g being the share without group g of G.

    Args:
        probabilities: (N, K).
        target: the given class indices, (N).
        group: of each example, (N), as the fold whose model said its probabilities.
    """
    shares = torch.tensor(
        [
            wrong_share(probabilities[group != one], target[group != one])
            for one in group.unique().tolist()  # type: ignore[no-untyped-call]
        ],
        dtype=torch.float64,
    )
    return float(((len(shares) - 1) * shares.var(correction=0)).sqrt())


def sure_share(probabilities: Tensor, target: Tensor) -> tuple[float, float]:
    """The share of wrong labels among the examples that models are surest of, and its error.

    Where a model is sure it hardly ever errs, so what is labelled otherwise there is labelled
    wrongly. The surest tenth of the examples of each predicted class, more of little data; classes
    count by their sizes. Too low where people err on what is hard, too high where even a sure model
    errs.

    >>> p = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.4, 0.6]])
    >>> sure_share(p, torch.tensor([1, 0, 1, 0]))[0]
    0.5
    """
    _check(probabilities, target)
    sure, predicted = probabilities.max(dim=1)
    others, share = (predicted != target).double(), _sure(len(target))
    total, looked_at = 0.0, 0
    for index in (predicted == k for k in range(probabilities.shape[1])):
        size = int(index.sum())
        most = math.ceil(share * size)
        first = sure[index].argsort(descending=True, stable=True)[:most]
        total += size * float(others[index][first].mean()) if size else 0.0
        looked_at += most
    found = total / len(target)
    likely = (found * looked_at + 1) / (looked_at + 2)  # none of a few is no proof of none at all
    return found, math.sqrt(likely * (1 - likely) / looked_at)


def _sure(examples: int) -> float:
    """Which share of the examples is looked at: a tenth, or a hundred of them, but half at most."""
    return min(0.5, max(0.1, 100 / examples))


class Estimate(NamedTuple):
    """How many labels are wrong.

    Attributes:
        share: of the labels.
        error: one standard error; NaN for an upper bound.
        way: ``confident`` learning, the ``sure`` examples, or the ``disagreement`` as a bound.
    """

    share: float
    error: float
    way: str


def estimate(probabilities: Tensor, target: Tensor, group: Tensor) -> Estimate:
    """The share of wrong labels, by what is least misled where models err.

    Confident learning, which takes a model's mistakes for the labels'; or the share among the sure
    examples where that is lower by more than two of its errors; and no more than what models
    disagree with.

    Args:
        probabilities: (N, K), of models that did not see the labels.
        target: the given class indices, (N).
        group: of each example, (N), as the fold whose model said its probabilities.
    """
    confident = wrong_share(probabilities, target)
    sure, error = sure_share(probabilities, target)
    disagreement = float((probabilities.argmax(dim=1) != target).double().mean())
    if sure + 2 * error < min(confident, disagreement):
        return Estimate(sure, error, "sure")
    if confident > disagreement + 1e-9:  # equal numbers may round apart
        return Estimate(disagreement, math.nan, "disagreement")
    return Estimate(confident, wrong_share_error(probabilities, target, group), "confident")


def _check(probabilities: Tensor, target: Tensor) -> None:
    if probabilities.dim() != 2 or target.shape != probabilities.shape[:1] or not len(target):
        raise ValueError(
            "Expected probabilities (N, K) and class indices (N) of at least one example; got "
            f"{tuple(probabilities.shape)} and {tuple(target.shape)}."
        )
    if not bool(probabilities.isfinite().all()):
        raise ValueError("The probabilities hold a number that is not finite.")
