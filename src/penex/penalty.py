"""The penalty rho: its optimum, its lower bound, and its steps from batch to batch."""

import math
from typing import TypeVar

import torch
from torch import Tensor

Number = TypeVar("Number", float, Tensor)

ORDERS = ("algorithm", "listing")

# Up to here exp is exact in every batch there can be: the limit of 9e12 logits in float32.
_ALWAYS_EXACT = 45.0

_PAPERS_CLASSES = 1000  # the most that the paper's bounds were meant for: ImageNet's


def optimal_penalty(
    ex_mean: Number, se_mean: Number, alpha: float, eps: float | Tensor = 1e-12
) -> Number:
    r"""rho* = |alpha| E[EX] / E[SE], which minimises the margin tail bound (prop:optimal_penalty).

    The bound is e^(b gamma) rho^(-b) (EX + rho SE) with b = alpha / (1 + alpha). Its logarithm has
    the derivative -b / rho + SE / (EX + rho SE) in rho, which is zero at rho = alpha EX / SE only.
    For alpha below 0 there is no such bound, but rho* is the penalty at which no common shift of
    the logits helps, for either sign: dL(f + c) / dc = -|alpha| EX + rho SE at c = 0.

    Args:
        ex_mean: the mean of EX. Sums do as well, with eps times what the means divide by.
        se_mean: the mean of SE.
        alpha: the sensitivity, of either sign.
        eps: keeps the quotient finite when SE underflows (Algorithm 1's epsilon).

    >>> optimal_penalty(2.0, 10.0, alpha=0.1, eps=0.0)
    0.02
    """
    return abs(alpha) * ex_mean / (se_mean + eps)  # type: ignore[return-value]


def lowest_penalty(alpha: Number, rho_min: float = 0.0) -> Number:
    r"""The least rho under which the loss is bounded below, whatever the batch, or rho_min if more.

    For alpha below 0 an example that is certain has its best logit at
    f = log(|alpha| / rho) / (1 + alpha). Beyond the limit up to where exp is exact, both terms are
    lines, and -exp(|alpha| f) + rho exp f rises there just if f is below that limit. So rho must be
    at least |alpha| exp(-(1 + alpha) limit), here for the lowest limit that a batch can have, 45.

    >>> round(lowest_penalty(-0.9), 4), lowest_penalty(0.1)
    (0.01, 0.0)
    """
    if isinstance(alpha, Tensor):  # of each of many models
        lowest = -alpha * torch.exp(-_ALWAYS_EXACT * (1 + alpha))
        return torch.where(alpha < 0, lowest.clamp(min=rho_min), rho_min)
    if alpha > 0:
        return rho_min
    return max(rho_min, -alpha * math.exp(-_ALWAYS_EXACT * (1 + alpha)))


def bound_for(classes: int, rho_min: float) -> float:
    r"""The lower bound of rho for a number of classes: rho_min, times 1000 / K above 1000.

    rho* is about |alpha| / K as long as logits are near 0: 1e-4 for alpha = 0.1 and the 1000
    classes of the paper's largest task, a hundred times its bound of 1e-6, but 7.8e-7 for 128,256.
    A bound above rho* is no guard: it holds rho fixed, and the logits of all classes have to fall
    first. So the room that the paper's bound leaves at 1000 classes is kept beyond them.

    >>> bound_for(10, 1e-6), bound_for(100_000, 1e-6)
    (1e-06, 1e-08)
    """
    return rho_min if classes <= _PAPERS_CLASSES else rho_min * _PAPERS_CLASSES / classes


def check_penalty(alpha: float, rho: float) -> None:
    """Raise ValueError if the loss is not bounded below for a rho this low."""
    lowest = lowest_penalty(alpha)
    if rho < lowest:
        raise ValueError(
            f"With alpha={alpha:g} rho must be at least {lowest:.3g}, or the logits of a certain "
            f"example tend to log(|alpha| / rho) / (1 + alpha) = "
            f"{math.log(-alpha / rho) / (1 + alpha):.0f}, above {_ALWAYS_EXACT:g}, up to where exp "
            f"is exact in any batch; got {rho:g}."
        )


def update_penalty(
    rho: float | Tensor,
    estimate: float | Tensor,
    ema: float,
    rho_min: float | Tensor,
    rho_max: float,
    order: str = "algorithm",
) -> Tensor:
    r"""One step of rho: an average that forgets, and clipping (the paper's alg:penex_training).

    algorithm: rho_t = clip((1 - ema) rho_{t-1} + ema rho');
    listing:   rho_t = (1 - ema) rho_{t-1} + ema clip(rho'), as the paper's code has it.

    Args:
        rho: the value so far; 0 stands for the first batch, which starts from its own estimate.
            Whatever is no finite number above 0 counts as 0.
        estimate: rho', the optimal penalty of the batch.
        ema: the weight of the new estimate, in (0, 1].
        rho_min: the lower bound.
        rho_max: the upper bound.
        order: ``algorithm`` (average, then clip) or ``listing`` (clip, then average).

    >>> update_penalty(1.0, 2.0, ema=0.1, rho_min=1e-6, rho_max=100.0).item()
    1.1
    >>> update_penalty(0.0, 2.0, ema=0.1, rho_min=1e-6, rho_max=1.5).item()
    1.5
    """
    check_order(order)
    if not isinstance(rho, Tensor) and not isinstance(estimate, Tensor):
        moved = updated_number(rho, estimate, ema, float(rho_min), rho_max, order)
        return torch.tensor(moved, dtype=torch.float64)
    if not isinstance(rho, Tensor):
        rho = estimate.new_tensor(rho)  # type: ignore[union-attr]
    if not isinstance(estimate, Tensor):
        estimate = rho.new_tensor(estimate)
    if order == "listing":
        estimate = _clipped(estimate, rho_min, rho_max)
    previous = torch.where(is_set(rho), rho, estimate)
    # An estimate may have overflowed, and 0 times infinity is not the 0 that is meant.
    average = estimate if ema == 1 else (1 - ema) * previous + ema * estimate
    return average if order == "listing" else _clipped(average, rho_min, rho_max)


def _clipped(rho: Tensor, rho_min: float | Tensor, rho_max: float) -> Tensor:
    if isinstance(rho_min, Tensor):  # clamp takes two of these or none
        return torch.maximum(rho, rho_min.to(rho)).clamp(max=rho_max)
    return rho.clamp(rho_min, rho_max)


def updated_number(
    rho: float, estimate: float, ema: float, rho_min: float, rho_max: float, order: str
) -> float:
    """`update_penalty` for plain numbers, without a tensor.

    >>> updated_number(1.0, 2.0, ema=0.1, rho_min=1e-6, rho_max=100.0, order="algorithm")
    1.1
    """
    if order == "listing":
        estimate = min(max(estimate, rho_min), rho_max)
    previous = rho if 0 < rho < math.inf else estimate
    average = estimate if ema == 1 else (1 - ema) * previous + ema * estimate
    return average if order == "listing" else min(max(average, rho_min), rho_max)


def is_set(rho: Tensor) -> Tensor:
    """Whether a penalty is one: a finite number above 0, and not what a batch is to begin with.

    >>> is_set(torch.tensor([0.0, 0.5, torch.inf, torch.nan]))
    tensor([False,  True, False, False])
    """
    return (rho > 0) & (rho < math.inf)


def check_order(order: str) -> None:
    """Raise ValueError unless the order is one of `ORDERS`."""
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}; got {order!r}.")
