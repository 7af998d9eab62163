r"""PENEX of a linear layer's logits, f = h W^T + b, which never exist all at once.

With T positions and K = 128,256 classes the (T, K) logits are what fills a GPU. PENEX has no
normaliser that they would have to wait for, and rho, which the whole batch decides, is a factor of
all the penalty's gradient. So one walk over chunks of classes c is enough, three products each:

    G_c = mass e(h W_c^T + b_c),   SE += sum_c G_c,   dH += G_c W_c,   dW_c = G_c^T h,

e(f) = exp(min(f, limit)) being the slope of the saturated exponential. dW_c is one product and is
written once; only dH is added up, in float32. At the end both are multiplied by rho / D, and the
targets' part, one entry a position, is added.

Products of more classes are faster. The walk begins with the last classes, and as long as the
first ones' dW is not written a GPU has the logits of a chunk in its memory: see `head.parts`.

With label smoothing the first term is as dense as the second and rho is no factor any more: then a
first walk makes the sums, and a second one, which knows rho, the gradient: four products.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penex import functional as F
from penex.kernels import eager, head
from penex.kernels.head import Batch


class Decided(NamedTuple):
    """What the sums of a batch decide.

    Attributes:
        rho: the penalty.
        divisor: what the loss is divided by, if by anything.
        shown: its value, if not its own.
    """

    rho: Tensor | float
    divisor: Tensor | None
    shown: Tensor | None


Settle = Callable[[Tensor, int], Decided]


class Walk(NamedTuple):
    """What a walk over the classes found.

    Attributes:
        se: sum_j exp f_ij of each position, saturated, without its mass.
        ex: sum_j u_ij exp(-alpha f_ij) over what smoothing spreads; 0 without it.
        hidden: G W, in float32 or wider; None if nobody asked.
        weight: G^T h, in the products' dtype; None if nobody asked.
        bias: the column sums of G; None if nobody asked.
    """

    se: Tensor
    ex: Tensor
    hidden: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


def loss(
    hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, options: head.Options,
    settle: Settle,
) -> Tensor:  # fmt: skip
    """PENEX of the layer's logits.

    Args:
        hidden: h, (..., H).
        weight: W, (K, H).
        target: class indices, (...).
        bias: b, (K) or None.
        options: what else decides it.
        settle: decides by the sums of ex, se, D and mass, and the number of classes.

    Raises:
        ValueError: for what it cannot do.
    """
    if torch.compiler.is_compiling():
        # Chunks, and kernels that are asked for once, are nothing for its graph: it goes around.
        around = torch.compiler.disable(_given)  # type: ignore[no-untyped-call]
        found: Tensor = around(hidden, weight, target, bias, options, settle)
        return found
    return _given(hidden, weight, target, bias, options, settle)


def _given(
    hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, options: head.Options,
    settle: Settle,
) -> Tensor:  # fmt: skip
    head.check(hidden, weight, target, bias, options)
    hidden, weight, bias = head.cast(hidden, weight, bias)
    hidden = hidden.reshape(-1, hidden.shape[-1])
    with torch.no_grad():
        batch = head.read(hidden, weight, target.reshape(-1), bias, options)
    return _loss(hidden, weight, bias, batch, settle)


def _loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, batch: Batch, settle: Settle
) -> Tensor:
    """(sign(alpha) sum ex + rho sum se) / divisor, with its gradients if any are asked for."""
    on = torch.is_grad_enabled()
    wanted = [on and given is not None and given.requires_grad for given in (hidden, weight, bias)]
    smooth = batch.spread is not None
    with torch.no_grad():
        found = walk(batch, [asked and not smooth for asked in wanted])
        own, slope = _own(batch)
        ex, se = (own + found.ex).sum(), (batch.mass * found.se).sum()
        sums = torch.stack([ex, se, batch.total, batch.mass.sum()])
    rho, divisor, shown = settle(sums, len(weight))
    with torch.no_grad():
        if divisor is None:
            divisor = torch.ones_like(ex)
        value = (F.sign(batch.alpha) * ex + rho * se) / divisor if shown is None else shown
        if not any(wanted):
            return value
        if smooth:
            found = walk(batch, wanted, rho)
    pull = slope.mul_(-abs(batch.alpha))
    factor = 1 / divisor if smooth else rho / divisor
    kept = batch._replace(hidden=None), found, wanted, rho if smooth else None
    numbers = value, pull, factor, divisor
    result: Tensor = _WithGradients.apply(hidden, weight, bias, numbers, kept)  # type: ignore[no-untyped-call]
    return result


def walk(batch: Batch, wanted: list[bool], rho: Tensor | float | None = None) -> Walk:
    """One walk over the classes: their sums, and the parts of the gradient that are wanted.

    Args:
        batch: what to walk over.
        wanted: whether the gradients of hidden, weight and bias are.
        rho: with label smoothing, the penalty in the gradient; None for the sums alone.
    """
    h, mass = batch.hidden, batch.mass
    assert h is not None
    (tokens, width), classes = h.shape, len(batch.weight)
    wide, narrow = mass.dtype, h.dtype
    se, ex = torch.zeros_like(mass), torch.zeros_like(mass)
    d_hidden = torch.empty(h.shape, dtype=wide, device=h.device) if wanted[0] else None
    d_weight = torch.empty(batch.weight.shape, dtype=narrow, device=h.device) if wanted[1] else None
    d_bias = torch.empty(classes, dtype=wide, device=h.device) if wanted[2] else None
    lent = (width, tokens) if batch.grows and wanted[1] else None
    parts = list(head.parts(classes, batch.chunk, lent))
    memory = _memory(parts, h)
    with torch.autocast(h.device.type, enabled=False):
        for k, (part, ahead, is_lent) in enumerate(parts):
            count = part.stop - part.start
            if is_lent and d_weight is not None:
                f = d_weight.view(-1)[: tokens * count].view(tokens, count)
            else:
                f = memory[:, :count]
            rows = batch.weight[part].to(narrow)
            bare = batch.fused and not ahead and batch.bias is None and batch.spread is None
            if not (bare and batch.kernels.product(h, rows, mass, se, batch.limit, f)):
                torch.mm(h, rows.t(), out=f)
                _powers(f[:, ahead:], slice(part.start + ahead, part.stop), batch, se, ex, rho)
            if ahead:
                f[:, :ahead] = 0  # they are in the next part, and are to add nothing here
            if d_bias is not None:
                torch.sum(f, 0, dtype=wide, out=d_bias[part])
            if d_weight is not None:
                torch.mm(f.t(), h, out=d_weight[part])
            if d_hidden is not None:
                _add_product(d_hidden, f, rows, is_first=k == 0)
    return Walk(se, ex, d_hidden, d_weight, d_bias)


def _memory(parts: list[head.Part], hidden: Tensor) -> Tensor:
    """The memory of the logits of any part that has to have its own.

    Its rows begin where 16 bytes can be read at once, however many classes a part has.
    """
    most = max((p.classes.stop - p.classes.start for p in parts if not p.lent), default=0)
    return hidden.new_empty(len(hidden), -(-most // 64) * 64)


def _powers(
    f: Tensor,
    part: slice,
    batch: Batch,
    se: Tensor,
    ex: Tensor,
    rho: Tensor | float | None,
) -> None:
    """Make the exponentials of some classes' logits, in their place, and add to their sums."""
    bias = None if batch.bias is None else batch.bias[part]
    if batch.spread is not None:
        _spread_powers(f, bias, batch, batch.spread[part], se, ex, rho)
    else:
        batch.kernels.powers(f, bias, batch.mass, se, batch.limit)


def _spread_powers(
    f: Tensor,
    bias: Tensor | None,
    batch: Batch,
    spread: Tensor,
    se: Tensor,
    ex: Tensor,
    rho: Tensor | float | None,
) -> None:
    """The same with label smoothing: both terms are dense, and the gradient needs rho."""
    wide = f.to(se.dtype)
    if bias is not None:
        wide = wide + bias
    kept = (batch.mass != 0).unsqueeze(1)
    u = torch.where(kept, spread, 0)
    own = -batch.alpha * wide
    if rho is None:
        se += F.saturated_exp(wide, batch.limit).sum(1)
        # A class of no weight may be masked with -inf, and 0 times infinity is to be 0.
        ex += torch.where(u == 0, 0, u * F.saturated_exp(own, batch.own_limit)).sum(1)
        return
    penalty = wide.clamp(max=batch.limit).exp_() * (rho * batch.mass).unsqueeze(1)
    f.copy_(penalty.sub_(own.clamp_(max=batch.own_limit).exp_() * u, alpha=abs(batch.alpha)))


def _own(batch: Batch) -> tuple[Tensor, Tensor]:
    """The weighted exp(-alpha f_y) of each position, saturated, and its slope, without alpha."""
    f = batch.kernels.own_logits(batch.hidden, batch.weight, batch.label)
    if batch.bias is not None:
        f += batch.bias[batch.label]
    x = f.mul_(-batch.alpha)
    value = batch.own * F.saturated_exp(x, batch.own_limit)
    return value, x.clamp_(max=batch.own_limit).exp_().mul_(batch.own)


def _add_product(total: Tensor, left: Tensor, right: Tensor, *, is_first: bool) -> None:
    """Add left right to a total in float32, though they may be in half precision.

    The first one is written there, whatever there was.
    """
    if total.dtype == left.dtype:
        torch.addmm(total, left, right, beta=0 if is_first else 1, out=total)
    elif _adds_wide(left.device):
        # The sum is made where the product is, and no product is stored.
        if is_first:
            torch.mm(left, right, out_dtype=total.dtype, out=total)
        else:
            torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    elif is_first:
        total.copy_(left @ right)
    else:
        total += left @ right


_WIDE: dict[torch.device, bool] = {}


def _adds_wide(device: torch.device) -> bool:
    """Whether torch adds a product of bfloat16 to float32 in one call there; tried once."""
    if device not in _WIDE:
        small = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
        total = torch.zeros(16, 16, device=device)
        try:
            torch.mm(small, small, out_dtype=total.dtype, out=total)
            torch.addmm(total, small, small, out_dtype=total.dtype, out=total)
            _WIDE[device] = True
        except (RuntimeError, TypeError):  # an older torch, or a device for which it has none
            _WIDE[device] = False
    return _WIDE[device]


class _WithGradients(torch.autograd.Function):
    """A value that was computed, with the gradients that belong to it."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        numbers: tuple[Tensor, Tensor, Tensor, Tensor],
        kept: tuple[Batch, Walk, list[bool], Tensor | float | None],
    ) -> Tensor:
        """Return the value."""
        ctx.save_for_backward(hidden, weight)
        ctx.numbers, ctx.kept = numbers[1:], kept
        ctx.bias_dtype = None if bias is None else bias.dtype
        return numbers[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients, in place, and add the targets' part."""
        grad = grads[0]
        if torch.is_grad_enabled() or eager.is_batched(grad):
            raise RuntimeError(
                "Linear PENEX has a first derivative only, and one at a time: for second ones "
                "(create_graph=True) or batched ones give the logits themselves to the loss."
            )
        hidden, weight = ctx.saved_tensors
        pull, factor, divisor = ctx.numbers
        batch, found, wanted, rho = ctx.kept
        if found is None:  # a second backward pass: the first one has used the gradients up
            found = walk(batch.again(hidden), wanted, rho)
        ctx.kept = batch, None, wanted, rho
        pull, factor = pull * (grad / divisor), factor * grad
        result: list[Tensor | None] = [None, None, None]
        kernels = batch.kernels
        if found.hidden is not None:
            rest = batch.label, pull, factor, hidden.dtype
            result[0] = kernels.finish_hidden(found.hidden, weight, *rest)
        if found.weight is not None:
            kernels.finish_weight(found.weight, batch.label, pull, factor, hidden)
            result[1] = found.weight.to(weight.dtype)
        if found.bias is not None:
            d_bias = found.bias.mul_(factor).index_add_(0, batch.label, pull)
            result[2] = d_bias.to(ctx.bias_dtype)
        return *result, None, None
