"""PENEX on the CPU in a handful of operations: one exp over the logits, and its multiple backward.

The gradient of a logit is rho exp(f_j) / D, less alpha exp(-alpha f_y) / D at the target, so the
exponentials of the forward pass are all that is kept. The two sums are read as Python numbers
(nothing waits for a CPU), which makes the step of rho free.

This is the common case only: whole batches of class indices, no class weights, no smoothing, no
ignored target, nothing near saturation. `sums` says None for anything else, and the caller then
takes the plain formula, which covers everything.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Sums(NamedTuple):
    """What the forward pass has read of a batch.

    Attributes:
        ex: sum_i exp(-alpha f_y).
        se: sum_ij exp f_ij.
        label: the target, with a class dimension.
        own: exp(-alpha f_y), with the class dimension kept.
        powers: exp f.
    """

    ex: float
    se: float
    label: Tensor
    own: Tensor
    powers: Tensor


def sums(logits: Tensor, target: Tensor, alpha: float, limit: float) -> Sums | None:
    """The sums of a batch, or None if it is not the common case.

    Args:
        logits: f, of shape (N, C, ...), on the CPU.
        target: int64 class indices of shape (N, ...).
        alpha: the sensitivity.
        limit: up to where exp is exact; the plain formula takes over beyond.
    """
    f = logits.detach()
    if f.dtype.itemsize == 2:
        f = f.float()
    index = target.unsqueeze(1)
    try:
        own = f.gather(1, index)
    except RuntimeError:  # an ignored target, or one out of range
        return None
    own = own.mul_(-alpha).exp_()
    powers = f.exp()
    ex, se = own.sum().item(), powers.sum().item()
    # No term is larger than its sum: below exp(limit) nothing is saturated. NaN is not below.
    bound = math.exp(limit)
    if not (0 < ex <= bound and 0 < se <= bound):
        return None
    return Sums(ex, se, index, own, powers)


def loss(logits: Tensor, batch: Sums, alpha: float, rho: float, divisor: float) -> Tensor:
    """(sum ex + rho sum se) / divisor, with its gradient if one is asked for."""
    if not (logits.requires_grad and torch.is_grad_enabled()):
        return _value(batch, rho, divisor)
    apply: Callable[..., Tensor] = _Loss.apply
    return apply(logits, batch, alpha, rho, divisor)


def _value(batch: Sums, rho: float, divisor: float) -> Tensor:
    return torch.full((), (batch.ex + rho * batch.se) / divisor, dtype=batch.powers.dtype)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        batch: Sums,
        alpha: float,
        rho: float,
        divisor: float,
    ) -> Tensor:
        ctx.save_for_backward(batch.label, batch.own, batch.powers)
        # Only a second derivative reads the logits again. They are not saved as the others are,
        # so that changing them in place after the loss is as legal as with cross-entropy.
        ctx.logits, ctx.version = logits, logits._version
        ctx.numbers = alpha, rho, divisor
        return _value(batch, rho, divisor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        index, own, powers = ctx.saved_tensors
        alpha, rho, divisor = ctx.numbers
        logits = ctx.logits
        if torch.is_grad_enabled():  # someone will differentiate this again
            if logits._version != ctx.version:
                raise RuntimeError(
                    "The logits were changed in place after the loss was computed; its second "
                    "derivative needs them as they were."
                )
            wide = logits.to(powers.dtype)
            own, powers = torch.exp(-alpha * wide.gather(1, index)), wide.exp()
            gradient = rho / divisor * powers
            gradient = grad * gradient.scatter_add(1, index, -alpha / divisor * own)
        else:
            scale = grad.item() / divisor
            gradient = powers * (scale * rho)
            gradient.scatter_add_(1, index, own * (-scale * alpha))
        return gradient.to(logits.dtype), None, None, None, None
