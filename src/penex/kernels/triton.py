"""PENEX on a GPU in three Triton kernels: one read of the logits forward, one and a write backward.

`rows` sums each row: ex_i, se_i, its share of D and the mass sum_j u_ij (u: see `penex.targets`).
`finish` sums the rows and moves rho, on the device. `gradient` reads the logits again:

    dL / df_ij = g_i / D (rho mass_i e(f_ij) - alpha u_ij e(-alpha f_ij)),

with e(x) = exp(min(x, limit)), the slope of the saturated exponential. Every sum has a fixed
order, so that the same batch gives the same bits. A target that is no class (and not ignored)
makes its row NaN, which reaches the loss; no address is ever computed from it.
"""

import os

import torch
import triton
import triton.language as tl
from torch import Tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

_LARGEST_BLOCK = 2048
MOST_CLASSES = 65535 * _LARGEST_BLOCK  # programs that a GPU takes in the second direction
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def power(n: int) -> int:
    """The power of two that holds n, within reason. Triton's own is several times slower.

    >>> power(3), power(17), power(10_000)
    (16, 32, 2048)
    """
    return min(_LARGEST_BLOCK, max(16, 1 << (n - 1).bit_length()))


def block_of(columns: int) -> tuple[int, int]:
    """How many columns a program reads at once, and by how many warps.

    >>> block_of(10), block_of(1000), block_of(128256)
    ((16, 1), (1024, 4), (2048, 4))
    """
    block = power(columns)
    return block, min(4, max(1, block // 256))


def _is_exact(logits: Tensor) -> bool:
    """Whether exp must be good to the last bits; the interpreter's always is."""
    return logits.dtype == torch.float32 and not INTERPRETED


@triton.jit
def _exp(x, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """exp(x). A GPU's own is 2^(x log2 e) with the product rounded: exactly, that is added back."""
    if EXACT:
        x = tl.maximum(x, -128.0, propagate_nan=tl.PropagateNan.ALL)  # -inf less -inf is NaN
        power = x * 1.44269502162933349609375
        rest = tl.fma(x, 1.44269502162933349609375, -power) + x * 1.9259629911266175e-08
        return tl.exp2(power) * (1.0 + 0.6931471805599453 * rest)
    else:
        return tl.exp(x)


@triton.jit
def _saturated(x, limit, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """exp(x) up to the limit, then its tangent."""
    above = tl.where(x > limit, x - limit, 0.0)  # not x less the smaller, which is NaN at -inf
    return _slope(x, limit, EXACT) * (1.0 + above)


@triton.jit
def _slope(x, limit, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    return _exp(tl.minimum(x, limit, propagate_nan=tl.PropagateNan.ALL), EXACT)


@triton.jit
def _class(y, classes):  # type: ignore[no-untyped-def]
    """A target as a column, -1 if there is no such one; in 32 bits, as every element meets it."""
    return tl.where((y >= 0) & (y < classes), y, -1).to(tl.int32)


@triton.jit
def _spread(  # type: ignore[no-untyped-def]
    columns,
    mask,
    y,
    q,
    step,
    weight,
    smoothing,
    classes,
    SOFT: tl.constexpr,
    WEIGHTED: tl.constexpr,
):
    """U of a stretch of columns: w ((1 - e) q + e / K)."""
    if SOFT:
        share = tl.load(q + columns.to(tl.int64) * step, mask=mask, other=0.0).to(tl.float32)
    else:
        share = tl.where(columns == y, 1.0, 0.0)
    u = (1.0 - smoothing) * share + smoothing / classes
    if WEIGHTED:
        u *= tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    return tl.where(mask, u, 0.0)


@triton.jit
def _rows_kernel(  # type: ignore[no-untyped-def]
    logits, target, weight, out, rows, classes, row_step, step, target_row_step, target_step,
    alpha, limit, ignored, smoothing,
    EXACT: tl.constexpr, SOFT: tl.constexpr, WEIGHTED: tl.constexpr, SPREAD: tl.constexpr,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x = logits + row * row_step
    q = target + row * target_row_step
    y = tl.full((), -1, tl.int32)
    kept = True
    legal = True
    if not SOFT:
        given = tl.load(q)
        kept = given != ignored
        y = _class(given, classes)
        legal = y >= 0
    sum_se = tl.zeros((BLOCK,), tl.float32)
    sum_ex = tl.zeros((BLOCK,), tl.float32)
    sum_u = tl.zeros((BLOCK,), tl.float32)
    for k in range(BLOCKS):
        columns = k * BLOCK + tl.arange(0, BLOCK)
        mask = columns < classes
        f = tl.load(x + columns.to(tl.int64) * step, mask=mask, other=-float("inf")).to(tl.float32)
        sum_se += _saturated(f, limit, EXACT)
        if SPREAD:
            u = _spread(
                columns, mask, y, q, target_step, weight, smoothing, classes, SOFT, WEIGHTED
            )
            sum_ex += tl.where(u != 0, u * _saturated(-alpha * f, limit, EXACT), 0.0)
            sum_u += u
    share = 1.0
    if not SOFT:
        safe = tl.where(legal, y, 0).to(tl.int64)
        if WEIGHTED:
            share = tl.load(weight + safe).to(tl.float32)
        share = tl.where(kept, share, 0.0)
    if SPREAD:
        ex, mass = tl.sum(sum_ex), tl.sum(sum_u)
        if not SOFT:
            mass = tl.where(kept, mass, 0.0)
    else:
        own = tl.load(x + safe * step).to(tl.float32)
        mass = share
        ex = mass * _saturated(-alpha * own, limit, EXACT)
    se = tl.where(mass == 0, 0.0, mass * tl.sum(sum_se))
    ex = tl.where(mass == 0, 0.0, ex)
    if not SOFT:
        wrong = kept & (legal == 0)
        ex = tl.where(wrong, float("nan"), ex)
        mass = tl.where(wrong, float("nan"), mass)
    tl.store(out + row, ex)
    tl.store(out + rows + row, se)
    tl.store(out + 2 * rows + row, share)
    tl.store(out + 3 * rows + row, mass)


@triton.jit
def _finish_kernel(  # type: ignore[no-untyped-def]
    sums, rho, value, numbers, rows, alpha, ema, rho_min, rho_max, fixed,
    FIXED: tl.constexpr, TRAINING: tl.constexpr, LISTING: tl.constexpr, MEAN: tl.constexpr,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    sum_ex = tl.zeros((BLOCK,), tl.float32)
    sum_se = tl.zeros((BLOCK,), tl.float32)
    sum_share = tl.zeros((BLOCK,), tl.float32)
    for k in range(BLOCKS):
        row = k * BLOCK + tl.arange(0, BLOCK)
        mask = row < rows
        sum_ex += tl.load(sums + row, mask=mask, other=0.0)
        sum_se += tl.load(sums + rows + row, mask=mask, other=0.0)
        sum_share += tl.load(sums + 2 * rows + row, mask=mask, other=0.0)
    ex, se, total = tl.sum(sum_ex), tl.sum(sum_se), tl.sum(sum_share)
    left = ex + se
    if FIXED:
        now = fixed
    else:
        before = tl.load(rho)
        estimate = alpha * ex / (se + 1e-12 * total)
        if LISTING:
            estimate = tl.minimum(tl.maximum(estimate, rho_min), rho_max)
        average = (1.0 - ema) * tl.where(before == 0, estimate, before) + ema * estimate
        if not LISTING:
            average = tl.minimum(tl.maximum(average, rho_min), rho_max)
        usable = (left > 0) & (left < float("inf"))
        moved = tl.where(usable, average, before)
        if TRAINING:
            tl.store(rho, moved)
            now = moved
        else:
            now = tl.where(before == 0, moved, before)
    divisor = 1.0
    if MEAN:
        divisor = tl.where(left == 0, 1.0, total)
    tl.store(value, (ex + now * se) / divisor)
    tl.store(numbers, now)
    tl.store(numbers + 1, divisor)


@triton.jit
def _gradient_kernel(  # type: ignore[no-untyped-def]
    logits, target, weight, sums, grad, numbers, out, rows, classes,
    row_step, step, target_row_step, target_step, grad_step, out_row_step, out_step,
    alpha, limit, smoothing,
    UNIT: tl.constexpr, EXACT: tl.constexpr,
    SOFT: tl.constexpr, WEIGHTED: tl.constexpr, SPREAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < classes
    x = logits + row * row_step
    q = target + row * target_row_step
    y = tl.full((), -1, tl.int32)
    if not SOFT:
        y = _class(tl.load(q), classes)
    mass = tl.load(sums + 3 * rows + row)
    scale = 1.0 / tl.load(numbers + 1)
    if not UNIT:
        scale *= tl.load(grad + row * grad_step)
    f = tl.load(x + columns.to(tl.int64) * step, mask=mask, other=0.0).to(tl.float32)
    slope = scale * tl.load(numbers) * mass * _slope(f, limit, EXACT)
    if SPREAD:
        u = _spread(columns, mask, y, q, target_step, weight, smoothing, classes, SOFT, WEIGHTED)
        slope -= tl.where(u != 0, scale * alpha * u * _slope(-alpha * f, limit, EXACT), 0.0)
    else:
        own = tl.load(x + y.to(tl.int64) * step, mask=y >= 0, other=0.0).to(tl.float32)
        slope -= tl.where(
            columns == y, scale * alpha * mass * _slope(-alpha * own, limit, EXACT), 0.0
        )
    slope = tl.where(mass == 0, 0.0, slope)
    place = out + row * out_row_step + columns.to(tl.int64) * out_step
    tl.store(place, slope.to(out.dtype.element_ty), mask=mask)


def launch_rows(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    alpha: float,
    limit: float,
    ignore_index: int,
    smoothing: float,
) -> Tensor:
    """The sums of each row: ex, se, its share of D and its mass, (4, N) in float32.

    Args:
        logits: (N, C) in one of `DTYPES`, with any strides.
        target: int64 class indices (N), or probabilities (N, C).
        weight: a weight for each class, contiguous.
        alpha: the sensitivity.
        limit: up to where exp is exact.
        ignore_index: the class index that takes a row out.
        smoothing: of the labels.
    """
    rows, classes = logits.shape
    out = torch.empty(4, rows, dtype=torch.float32, device=logits.device)
    soft = target.dim() == 2
    block, warps = block_of(classes)
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        _rows_kernel[(rows,)](
            logits, target, logits if weight is None else weight, out, rows, classes,
            *logits.stride(), target.stride(0), target.stride(1) if soft else 0,
            alpha, limit, ignore_index, smoothing,
            EXACT=_is_exact(logits), SOFT=soft, WEIGHTED=weight is not None,
            SPREAD=soft or smoothing > 0, BLOCKS=-(-classes // block), BLOCK=block, num_warps=warps,
        )  # fmt: skip
    return out


def launch_finish(
    sums: Tensor,
    rho: Tensor,
    alpha: float,
    ema: float,
    rho_min: float,
    rho_max: float,
    fixed: float,
    training: bool,
    listing: bool,
    mean: bool,
) -> tuple[Tensor, Tensor]:
    """The loss of a batch; the rho that it used and its divisor, (2). Moves rho in training.

    Args:
        sums: of `launch_rows`.
        rho: the penalty, a float32 buffer.
        alpha: the sensitivity.
        ema: the weight of a new batch in rho.
        rho_min: the lower bound of rho.
        rho_max: the upper bound of rho.
        fixed: a rho that is never moved; 0 for none.
        training: whether this is a step of rho.
        listing: whether to clip before averaging.
        mean: whether to divide.
    """
    value, numbers = sums.new_empty(()), sums.new_empty(2)
    rows = sums.shape[1]
    block = power(rows)
    blocks = 1 << (-(-rows // block) - 1).bit_length()  # few kernels for any number of tokens
    with torch.cuda.device_of(sums):  # type: ignore[no-untyped-call]
        _finish_kernel[(1,)](
            sums, rho, value, numbers, rows, alpha, ema, rho_min, rho_max, fixed,
            FIXED=fixed > 0, TRAINING=training, LISTING=listing, MEAN=mean,
            BLOCKS=blocks, BLOCK=block, num_warps=4,
        )  # fmt: skip
    return value, numbers


def launch_gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    sums: Tensor,
    grad: Tensor | None,
    numbers: Tensor,
    out: Tensor,
    alpha: float,
    limit: float,
    smoothing: float,
) -> None:
    """Write the gradient of each logit to `out`, which may be the logits themselves.

    Without a gradient of the loss it is taken to be 1.
    """
    rows, classes = logits.shape
    soft = target.dim() == 2
    block, warps = block_of(classes)
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        _gradient_kernel[(rows, -(-classes // block))](
            logits, target, logits if weight is None else weight, sums,
            numbers if grad is None else grad, numbers, out,
            rows, classes, *logits.stride(), target.stride(0), target.stride(1) if soft else 0,
            0 if grad is None or not grad.dim() else grad.stride(0), *out.stride(),
            alpha, limit, smoothing, UNIT=grad is None, EXACT=_is_exact(logits),
            SOFT=soft, WEIGHTED=weight is not None, SPREAD=soft or smoothing > 0, BLOCK=block,
            num_warps=warps,
        )  # fmt: skip
