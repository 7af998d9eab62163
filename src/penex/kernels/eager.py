"""PENEX on the CPU in a handful of operations: one exp over the logits, and its multiple backward.

The gradient of a logit is rho exp(f_j) / D, less |alpha| exp(-alpha f_y) / D at the target, so the
exponentials of the forward pass are all that is kept, and they become the gradient in place. The
two sums are read as Python numbers (nothing waits for a CPU), which makes the step of rho free.

This is the common case only: class indices, with or without class weights and ignored targets, no
smoothing, nothing near saturation. `sums` says None for anything else, and the caller then takes
the plain formula, which covers everything.
"""

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penex import functional as F


class Sums(NamedTuple):
    """What the forward pass has read of a batch.

    Attributes:
        ex: sum_i w_i exp(-alpha f_y).
        se: sum_i w_i sum_j exp f_ij.
        total: sum_i w_i.
        label: the target, with a class dimension.
        own: w exp(-alpha f_y), with the class dimension kept.
        powers: exp f.
        mass: w, with the class dimension kept; None if it is 1 everywhere.
        result: a number, for the loss to be written to.
    """

    ex: float
    se: float
    total: float
    label: Tensor
    own: Tensor
    powers: Tensor
    mass: Tensor | None
    result: Tensor


def sums(
    logits: Tensor,
    target: Tensor,
    alpha: float,
    weight: Tensor | None = None,
    ignore_index: int = -100,
) -> Sums | None:
    """The sums of a batch, or None if it is not the common case.

    Args:
        logits: f, of shape (N, C, ...), on the CPU.
        target: int64 class indices of shape (N, ...).
        alpha: the sensitivity.
        weight: a weight for each class.
        ignore_index: the target that takes a position out, below 0.
    """
    f = logits.detach()
    if f.dtype.itemsize == 2:
        f = f.float()
    index, mass = target.unsqueeze(1), None
    try:
        own = f.gather(1, index)
    except RuntimeError:  # an ignored target, or one out of range
        kept = index != ignore_index
        index, mass = index.where(kept, 0), kept.to(f.dtype)
        try:
            own = f.gather(1, index)
        except RuntimeError:
            return None
    if weight is not None:
        if weight.shape != f.shape[1:2] or weight.dtype != logits.dtype or weight.requires_grad:
            return None
        own_weight = weight[index].to(f.dtype)
        mass = own_weight if mass is None else own_weight.mul_(mass)
    own = own.mul_(_constant(-alpha, f.dtype)).exp_()
    powers = f.exp()
    result = powers.sum()
    ex, se, total = own.sum().item(), result.item(), float(target.numel())
    # No term is larger than its sum: if the sums are at most exp(limit), no term is past the limit
    # from which exp is continued as a line, and plain exp was right. NaN fails the comparison too.
    bound = _bound(f.numel(), f.dtype)
    if not (0 < ex <= bound and 0 < se <= bound):
        return None
    if mass is not None:
        parts = own.mul_(mass), powers.sum(1, keepdim=True).mul_(mass), mass
        ex, se, total = (part.sum().item() for part in parts)
        if not all(0 < value < math.inf for value in (ex, se, total)):
            return None
    return Sums(ex, se, total, index, own, powers, mass, result)


@functools.lru_cache(maxsize=128)
def _constant(value: float, dtype: torch.dtype) -> Tensor:
    # torch wraps a Python number in a new tensor at every call, which doubles the time of a product
    # on a small batch; so the tensor is kept, on the CPU whatever the user's default device is.
    # That is safe, as `choice` sends no batch here under torch.func or a fake mode.
    return torch.tensor(value, dtype=dtype, device="cpu")


def _scale(values: Tensor, factor: float) -> None:
    """Multiply in place.

    As 0 + factor * values: for `alpha=` of an addition torch makes no tensor of a Python number,
    and the factor is another one in every batch, so `_constant` would not help.
    """
    try:
        torch.add(_constant(0.0, values.dtype), values, alpha=factor, out=values)
    except RuntimeError:  # it does not fit the dtype
        values.mul_(math.copysign(math.inf, factor))


@functools.lru_cache(maxsize=128)
def _bound(summands: int, dtype: torch.dtype) -> float:
    return math.exp(F.exp_limit(summands, dtype))


def loss(
    logits: Tensor,
    batch: Sums,
    alpha: float,
    rho: float,
    divisor: float,
    shown: float | None = None,
) -> Tensor:
    """(sign(alpha) sum ex + rho sum se) / divisor, with its gradient if one is asked for.

    Args:
        logits: f.
        batch: its sums.
        alpha: the sensitivity.
        rho: the penalty.
        divisor: of value and gradient.
        shown: another value, with the same gradient.
    """
    value = shown
    if value is None:
        value = (F.sign(alpha) * batch.ex + rho * batch.se) / divisor
    if not (logits.requires_grad and torch.is_grad_enabled()):
        return _filled(batch.result, value)
    return apply(_Loss, logits, (batch, alpha, rho, divisor, value))


def apply(kind: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    """What kind.apply does where no transform is active, without asking again whether one is."""
    found: Tensor = super(torch.autograd.Function, kind).apply(*arguments)  # type: ignore[misc]
    return found


def _filled(result: Tensor, value: float) -> Tensor:
    try:
        return result.fill_(value)
    except RuntimeError:  # it does not fit the dtype
        return result.fill_(math.copysign(math.inf, value))


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, given: tuple[Sums, float, float, float, float]) -> Tensor:
        batch, alpha, rho, divisor, value = given
        batch.own.mul_(_constant(-abs(alpha) / divisor, batch.own.dtype))
        # Only a second backward pass, or a derivative of this one, reads the logits again: until
        # then they may be changed, as under cross-entropy. The target is read at once.
        ctx.save_for_backward(logits, batch.label)
        ctx.parts = batch.powers, batch.own, batch.label, batch.label._version, logits.dtype
        ctx.rest = batch.mass, alpha, rho / divisor, divisor
        return _filled(batch.result, value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        parts: tuple[Tensor, Tensor, Tensor, int, torch.dtype] | None = ctx.parts
        if parts is None or torch.is_grad_enabled() or is_batched(grad):
            logits, index = ctx.saved_tensors
            unit = _gradient_again(logits, index, *ctx.rest)
            return (grad * unit).to(logits.dtype), None
        ctx.parts = None  # the exponentials become the gradient, and it is nobody else's then
        gradient, own, index, version, dtype = parts
        if index._version != version:  # autograd's own error, unless someone has kept a copy
            _, index = ctx.saved_tensors
        mass, _, scale, _ = ctx.rest
        _scale(gradient, scale)
        if mass is not None:
            gradient.mul_(mass)
        gradient.scatter_add_(1, index, own)
        outer = grad.item()
        if outer != 1:
            _scale(gradient, outer)
        return gradient if gradient.dtype == dtype else gradient.to(dtype), None


def is_batched(grad: Tensor) -> bool:
    """Whether many gradients are asked for at once, by torch.func.vmap or its elder."""
    kinds = torch._C._functorch
    return kinds.is_batchedtensor(grad) or kinds.is_legacy_batchedtensor(grad)


def _gradient_again(
    logits: Tensor, index: Tensor, mass: Tensor | None, alpha: float, scale: float, divisor: float
) -> Tensor:
    """The gradient by operations that can be differentiated: the same ones, so the same bits."""
    wide = logits.float() if logits.dtype.itemsize == 2 else logits
    own = torch.exp(-alpha * wide.gather(1, index))
    powers = wide.exp() * scale
    if mass is not None:
        own, powers = own * mass, powers * mass
    return powers.scatter_add(1, index, own * (-abs(alpha) / divisor))
