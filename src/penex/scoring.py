"""What every metric is a function of: a few numbers for each example."""

from typing import NamedTuple

import torch
from torch import Tensor

from penex import targets


class Scores(NamedTuple):
    """What every metric is a function of: four numbers for each example, five if people voted.

    Attributes:
        correct: 1 where the top class is the target, else 0.
        nll: the negative log-likelihood of the target.
        brier: the squared distance of the probabilities from the one-hot target.
        confidence: the probability of the top class.
        human: the cross-entropy of the probabilities to people's votes; None without votes.
    """

    correct: Tensor
    nll: Tensor
    brier: Tensor
    confidence: Tensor
    human: Tensor | None = None


def scores(
    logits: Tensor, target: Tensor, *, temperature: float = 1.0, votes: Tensor | None = None
) -> Scores:
    """The scores of each example, at least in float32.

    Args:
        logits: (N, C), as the model gave them.
        target: class indices, (N).
        temperature: of the loss the model was trained with.
        votes: how many people chose each class, (N, C), if they were asked.

    >>> scores(torch.zeros(1, 2), torch.tensor([0])).brier
    tensor([0.5000])
    """
    _check(logits, target, temperature)
    found = scores_side_by_side(logits, target, temperature)
    if votes is None:
        return found
    check_votes(logits, votes)
    return found._replace(human=_human(logits, votes, temperature))


def _human(logits: Tensor, votes: Tensor, temperature: float) -> Tensor:
    """-sum_j q_j log P(j | x) for the shares q of the votes; a class without votes adds nothing."""
    logits = logits.detach().to(targets.statistics_dtype(logits)) / temperature
    log_p = torch.log_softmax(logits, dim=-1)
    votes = votes.to(log_p.device, log_p.dtype)
    q = votes / votes.sum(dim=-1, keepdim=True)
    return -(q * log_p.masked_fill(q == 0, 0.0)).sum(dim=-1)


def scores_side_by_side(logits: Tensor, target: Tensor, temperature: float | Tensor) -> Scores:
    """`scores` of any number of models at once, from logits (..., N, C) and targets (..., N).

    Nothing is checked, so nothing waits for a GPU. A tensor of temperatures has the logits' dtype
    and broadcasts to them.

    >>> logits, target = torch.zeros(3, 1, 2), torch.zeros(3, 1).long()
    >>> scores_side_by_side(logits, target, torch.ones(3, 1, 1)).brier.shape
    torch.Size([3, 1])
    """
    logits = logits.detach().to(targets.statistics_dtype(logits)) / temperature
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    confidence = p.amax(dim=-1)
    right = logits.argmax(dim=-1) == target  # two logits may be closer than their probabilities
    correct = torch.where(confidence.isnan(), confidence, right.to(p.dtype))
    own = target.unsqueeze(-1)
    # |p - e_y|^2 as written: sum p^2 - 2 p_y + 1 would cancel where p_y is close to 1.
    brier = p.scatter_add(-1, own, -torch.ones_like(p[..., :1])).square().sum(dim=-1)
    return Scores(correct, -log_p.gather(-1, own).squeeze(-1), brier, confidence)


def check_votes(logits: Tensor, votes: Tensor) -> None:
    """Raise ValueError if votes do not go with logits."""
    if votes.shape != logits.shape or not bool((votes >= 0).all() & (votes.sum(-1) > 0).all()):
        raise ValueError(
            f"Votes are a number of at least 0 for each class, of shape {tuple(logits.shape)}, and "
            f"one or more for each example; got {votes.dtype} of shape {tuple(votes.shape)}."
        )


def _check(logits: Tensor, target: Tensor, temperature: float) -> None:
    if logits.dim() != 2 or not logits.is_floating_point() or len(logits) == 0:
        raise ValueError(
            "Metrics need floating-point logits of shape (N, C) with N at least 1; got "
            f"{logits.dtype} of shape {tuple(logits.shape)}."
        )
    if target.shape != logits.shape[:1] or target.dtype != torch.int64:
        raise ValueError(
            f"Metrics need int64 class indices of shape ({len(logits)},); got {target.dtype} of "
            f"shape {tuple(target.shape)}."
        )
    low, high = target.min().item(), target.max().item()
    if low < 0 or high >= logits.shape[1]:
        raise IndexError(
            f"Target {low if low < 0 else high} is out of bounds: with {logits.shape[1]} classes, "
            f"a target is a class index from 0 to {logits.shape[1] - 1}."
        )
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be a finite number above 0; got {temperature}.")
