"""The mathematics of PENEX: pure functions in the paper's symbols.

f are the logits, y the target, alpha the sensitivity, rho the penalty:

    EX(f) = E[exp(-alpha f_y)],   SE(x) = sum_j exp f_j(x),   L = sign(alpha) EX + rho E[SE].

The paper has alpha above 0. With the sign, alpha between -1 and 0 has the same minimiser,
P = (rho / |alpha|) exp((1 + alpha) f), and a wrong example then costs no more than so much.

Every function takes the shapes, dtypes and target kinds of torch's cross-entropy. Half precision
is computed and returned in float32, since a logit of 12 already overflows float16 under exp.
"""

import math
from typing import overload

import torch
from torch import Tensor

from penex import targets
from penex.penalty import check_penalty
from penex.penalty import lowest_penalty as lowest_penalty
from penex.penalty import optimal_penalty as optimal_penalty
from penex.penalty import update_penalty as update_penalty

# PENEX is exact up to exp(limit) and continues linearly, with the same slope, beyond. The limit
# leaves room in the dtype for the sum of all exponentials of a batch with logits up to 1e4 under
# rho = 100, that is, for summands x 1e4 x 100. In float32 it is 68 for a batch of 64 x 10 and 54
# for one of 8192 x 128,256; in float64 it is 621 more.
_LARGEST_LOGIT = 1e4
_ROOM = _LARGEST_LOGIT * 100.0


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


def terms(batch: targets.Batch, alpha: float | Tensor) -> tuple[Tensor, Tensor]:
    r"""The two terms of PENEX for each position, weighted by u and saturated.

    ex_i = sum_j u_ij exp(-alpha f_ij) and se_i = (sum_j u_ij) sum_j exp f_ij.

    >>> terms(targets.read(torch.zeros(1, 3), torch.tensor([0])), alpha=0.1)
    (tensor([1.]), tensor([3.]))
    """
    return saturated_ex(batch, alpha), saturated_se(batch)


def exact_ex(batch: targets.Batch, alpha: float | Tensor) -> Tensor:
    """ex_i = sum_j u_ij exp(-alpha f_ij) for each position, never saturated.

    >>> exact_ex(targets.read(torch.zeros(1, 3), torch.tensor([0])), alpha=0.1)
    tensor([1.])
    """
    largest = 0.99 * math.log(torch.finfo(batch.logits.dtype).max)  # exp of it is finite
    # Where u is 0 the logit does not matter, and may be so large that exp is not finite.
    bound = largest / (sign(alpha) * alpha)
    return batch.expect(lambda f: torch.exp(-alpha * f), batch.logits, floor=-bound, ceiling=bound)


def saturated_ex(batch: targets.Batch, alpha: float | Tensor) -> Tensor:
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


def saturated_se(batch: targets.Batch) -> Tensor:
    """se_i = (sum_j u_ij) sum_j exp f_ij for each position, saturated.

    >>> saturated_se(targets.read(torch.zeros(1, 3), torch.tensor([0])))
    tensor([3.])
    """
    limit = _limit(batch.logits)
    return batch.mass * saturated_exp(batch.logits, limit).sum(batch.dim)


def progress(batch: targets.Batch, alpha: float) -> Tensor:
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
    share = mass / targets.divisor(mass, batch.total)  # 1, but for probabilities with weights
    return (ex_mean.log() / alpha + se_mean.log()) * share


def level_of_sums(ex: float, se: float, mass: float, alpha: float, smallest: float) -> float:
    """`progress` from the sums of a batch, in Python's numbers; `smallest` instead of less.

    >>> level_of_sums(2.0, 6.0, 2.0, 0.1, 1e-34) == math.log(3)
    True
    """
    return math.log(max(ex / mass, smallest)) / alpha + math.log(max(se / mass, smallest))


def probabilities(logits: Tensor, alpha: float | Tensor) -> Tensor:
    r"""P(y | x) = softmax((1 + alpha) f): PENEX is calibrated at temperature 1 / (1 + alpha).

    At the population minimiser P = (rho / |alpha|) exp((1 + alpha) f), and rho / |alpha| cancels in
    the normalisation (prop:self_calibration).

    >>> probabilities(torch.tensor([[0.0, 1.0]]), alpha=1.0)
    tensor([[0.1192, 0.8808]])
    """
    logits = logits.to(targets.statistics_dtype(logits))
    return torch.softmax((1 + alpha) * logits, dim=targets.class_dim(logits))


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
