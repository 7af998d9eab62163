"""The mathematics of PENEX: pure functions in the paper's symbols.

f are the logits, y the target, alpha the sensitivity, rho the penalty:

    EX(f) = E[exp(-alpha f_y)],   SE(x) = sum_j exp f_j(x),   L = sign(alpha) EX + rho E[SE].

The paper has alpha above 0. With the sign, alpha between -1 and 0 has the same minimiser,
P = (rho / |alpha|) exp((1 + alpha) f), and a wrong example then costs no more than so much.

Every function takes the shapes, dtypes and target kinds of torch's cross-entropy. Half precision
is computed and returned in float32, since a logit of 12 already overflows float16 under exp.
"""

import math
from typing import TypeVar, overload

import torch
from torch import Tensor

from penex import targets

Number = TypeVar("Number", float, Tensor)

ORDERS = ("algorithm", "listing")

# PENEX is exact up to exp(limit) and continues linearly, with the same slope, beyond. The limit
# leaves room in the dtype for the sum of all exponentials of a batch with logits up to 1e4 under
# rho = 100, that is, for summands x 1e4 x 100. In float32 it is 68 for a batch of 64 x 10 and 54
# for one of 8192 x 128,256; in float64 it is 621 more.
_LARGEST_LOGIT = 1e4
_ROOM = _LARGEST_LOGIT * 100.0

# Up to here exp is exact in every batch there can be: the limit of 9e12 logits in float32.
_ALWAYS_EXACT = 45.0


def exponential(logits: Tensor, target: Tensor, alpha: float | Tensor) -> Tensor:
    r"""EX of each example, exp(-alpha f_y): the exponential loss (the paper's eq:EL).

    Exact everywhere: it overflows where the mathematics does.

    Args:
        logits: f, of shape (C), (N, C) or (N, C, d1, ...).
        target: class indices (EX is 0 where it is -100), or probabilities q_j, for which EX is
            sum_j q_j exp(-alpha f_j).
        alpha: the sensitivity, of either sign.

    >>> exponential(torch.tensor([[0.0, 2.0]]), torch.tensor([1]), alpha=0.5)
    tensor([0.3679])
    """
    return exact_ex(targets.read(logits, target), alpha)


def sum_exp(logits: Tensor) -> Tensor:
    r"""SE(x) = sum_j exp f_j(x), the penalty that keeps logits from running away (SumExp).

    Exact everywhere: it overflows where the mathematics does.

    >>> sum_exp(torch.zeros(2, 3))
    tensor([3., 3.])
    """
    logits = logits.to(targets.statistics_dtype(logits))
    return logits.exp().sum(targets.class_dim(logits))


def penex(
    logits: Tensor,
    target: Tensor,
    alpha: float | Tensor,
    rho: float | Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    r"""PENEX for a given rho: sign(alpha) E[exp(-alpha f_y)] + rho E[sum_j exp f_j].

    The paper's eq:PEL, which has alpha above 0. With the weights u_ij of `penex.targets`, an
    example's loss is sign(alpha) sum_j u_ij exp(-alpha f_ij) + rho (sum_j u_ij) sum_j exp f_ij, and
    ``mean`` divides as torch's cross-entropy does. Exact while the sums fit; past that (exp(68) for
    a float32 batch of 64 x 10) exp continues linearly, so that value and gradient are finite for
    logits up to 1e4 in size. A batch with nothing in it (empty, or all ignored) has loss 0 and
    gradient 0, where torch's cross-entropy gives NaN.

    For alpha below 0 each logit has one stationary point, its minimum: the derivative
    rho exp f - |alpha| p exp(|alpha| f) is exp f times something that only rises. A common shift of
    the logits is a change of rho: L(f + c; rho) = e^(-alpha c) L(f; rho e^((1 + alpha) c)).

    Args:
        logits: f, of shape (C), (N, C) or (N, C, d1, ...).
        target: class indices, or class probabilities in the shape of the logits.
        alpha: the sensitivity, above 0, or between -1 and 0.
        rho: the penalty, above 0; `optimal_penalty` gives the best one. For alpha below 0 at least
            `lowest_penalty`.
        weight: a weight for each class.
        ignore_index: the class index that takes an example out.
        label_smoothing: between 0 and 1.
        reduction: ``mean``, ``sum`` or ``none``.

    >>> penex(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]), alpha=0.1, rho=0.5)
    tensor(2.5000)
    """
    targets.check_reduction(reduction)
    if not isinstance(alpha, Tensor) and not isinstance(rho, Tensor):
        check_penalty(alpha, rho)
    batch = targets.read(
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    ex, se = terms(batch, alpha)
    total = targets.divisor(batch.mass.detach().sum(), batch.total)
    return targets.reduce(sign(alpha) * ex + rho * se, total, reduction)


@overload
def sign(alpha: float) -> float: ...
@overload
def sign(alpha: float | Tensor) -> float | Tensor: ...
def sign(alpha: float | Tensor) -> float | Tensor:
    """1 or -1, as alpha is above or below 0.

    >>> sign(-0.3)
    -1.0
    """
    if isinstance(alpha, Tensor):
        return torch.sign(alpha)
    return math.copysign(1.0, alpha)


def terms(batch: targets.Examples, alpha: float | Tensor) -> tuple[Tensor, Tensor]:
    r"""The two terms of PENEX for each position, weighted by u and saturated.

    ex_i = sum_j u_ij exp(-alpha f_ij) and se_i = (sum_j u_ij) sum_j exp f_ij.

    >>> terms(targets.read(torch.zeros(1, 3), torch.tensor([0])), alpha=0.1)
    (tensor([1.]), tensor([3.]))
    """
    return saturated_ex(batch, alpha), saturated_se(batch)


def exact_ex(batch: targets.Examples, alpha: float | Tensor) -> Tensor:
    """ex_i = sum_j u_ij exp(-alpha f_ij) for each position, never saturated.

    >>> exact_ex(targets.read(torch.zeros(1, 3), torch.tensor([0])), alpha=0.1)
    tensor([1.])
    """
    largest = 0.99 * math.log(torch.finfo(batch.logits.dtype).max)  # exp of it is finite
    return batch.expect(lambda f: torch.exp(-alpha * f), batch.logits, floor=-largest / alpha)


def saturated_ex(batch: targets.Examples, alpha: float | Tensor) -> Tensor:
    """ex_i = sum_j u_ij exp(-alpha f_ij), saturated.

    For alpha below 0 it becomes a line at the same logit as se does. Both are lines beyond, where
    the penalty's is the steeper one (see `lowest_penalty`): the loss is bounded below.
    """
    limit = _limit(batch.logits)
    if isinstance(alpha, Tensor):
        limit = torch.where(alpha < 0, -alpha * limit, limit)
    elif alpha < 0:
        limit = -alpha * limit
    return batch.expect(
        lambda f: saturated_exp(-alpha * f, limit), batch.logits, floor=-_LARGEST_LOGIT / alpha
    )


def saturated_se(batch: targets.Examples) -> Tensor:
    """se_i = (sum_j u_ij) sum_j exp f_ij for each position, saturated.

    >>> saturated_se(targets.read(torch.zeros(1, 3), torch.tensor([0])))
    tensor([3.])
    """
    limit = _limit(batch.logits)
    return batch.mass * saturated_exp(batch.logits, limit).sum(batch.dim)


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


def progress(batch: targets.Examples, alpha: float) -> Tensor:
    r"""PENEX at the best level of the logits, in nats: log E[EX] / alpha + log E[SE].

    It is at least 0, since exp f_y <= SE and a mean of powers rises with the exponent, and log K
    for logits that are all alike. The gradient of PENEX at rho* is |alpha| EX times its own.

    >>> progress(targets.read(torch.zeros(1, 3), torch.tensor([0])), alpha=0.1)
    tensor(1.0986)
    """
    kept = (batch.mass != 0).unsqueeze(batch.dim)
    # No shift changes it, and this one keeps the exponentials from underflowing.
    level = torch.where(kept, batch.logits, -math.inf).detach().amax().nan_to_num(0.0, 0.0, 0.0)
    ex, se = terms(batch._replace(logits=batch.logits - level), alpha)
    mass = batch.mass.sum()
    nothing = (mass == 0).to(mass)  # then 0 and not NaN
    ex_mean, se_mean = ((term.sum() + nothing) / targets.divisor(mass, mass) for term in (ex, se))
    return ex_mean.log() / alpha + se_mean.log()


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


def probabilities(logits: Tensor, alpha: float | Tensor) -> Tensor:
    r"""P(y | x) = softmax((1 + alpha) f): PENEX is calibrated at temperature 1 / (1 + alpha).

    At the population minimiser P = (rho / |alpha|) exp((1 + alpha) f), and rho / |alpha| cancels in
    the normalisation (prop:self_calibration).

    >>> probabilities(torch.tensor([[0.0, 1.0]]), alpha=1.0)
    tensor([[0.1192, 0.8808]])
    """
    logits = logits.to(targets.statistics_dtype(logits))
    return torch.softmax((1 + alpha) * logits, dim=targets.class_dim(logits))


def check_order(order: str) -> None:
    """Raise ValueError unless the order is one of `ORDERS`."""
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}; got {order!r}.")


def exp_limit(summands: int, dtype: torch.dtype) -> float:
    """Up to where exp is exact, for a sum of that many exponentials to fit the dtype.

    >>> round(exp_limit(640, torch.float32), 1)
    68.4
    """
    return math.log(torch.finfo(dtype).max) - math.log(_ROOM * max(summands, 1))


def _limit(logits: Tensor) -> float | Tensor:
    """`exp_limit` of a batch: a tensor where its size may be a symbol.

    A compiler that had to know the logarithm of a size would compile anew for every size.
    """
    summands, dtype, device = logits.numel(), logits.dtype, logits.device
    if type(summands) is int and not torch.compiler.is_compiling():
        return exp_limit(summands, dtype)
    wide = torch.float32 if device.type == "mps" else torch.float64  # which MPS does not have
    number: float = torch.sym_float(summands)  # type: ignore[no-untyped-call]
    size = torch.full((), number, dtype=wide, device=device).clamp(min=1)
    return (math.log(torch.finfo(dtype).max) - (_ROOM * size).log()).to(dtype)


def smallest_size(dtype: torch.dtype) -> float:
    """The least size of a gradient that it is divided by: less would overflow, under a rho of 100.

    >>> smallest_size(torch.float32)
    1.1754943508222875e-34
    """
    return 1e4 * torch.finfo(dtype).tiny


def saturated_exp(x: Tensor, limit: float | Tensor) -> Tensor:
    """exp(x) up to the limit, then the tangent there: exp(limit) (1 + x - limit)."""
    # relu has slope 0 at 0 and clamp slope 1 at its bound: at the limit itself just one counts.
    return torch.exp(x.clamp(max=limit)) * (1 + torch.relu(x - limit))
