"""How the kernels of `kernels.triton` are launched: their tiles, what they need and return."""

from typing import Any

import torch
from torch import Tensor

from penex import functional as F
from penex.kernels import triton
from penex.kernels.kept import INTERPRETED as INTERPRETED
from penex.kernels.kept import Plan, counter, launch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

_LARGEST_BLOCK = 2048
# Rows that the last of their programs adds up without keeping the GPU waiting.
_MOST_COUNTED = 1024


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


def _is_exact(dtype: torch.dtype) -> bool:
    """Whether exp must be good to the last bits; the interpreter's always is."""
    return dtype == torch.float32 and not INTERPRETED


def rows(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    alpha: float,
    ignore_index: int,
    smoothing: float,
) -> Tensor:
    """The sums of each row, ex, se, its share of D and its mass, (4, N) in float32; flat.

    Behind them is room for two numbers: the rho that the batch uses and its divisor.

    Args:
        logits: (N, C) in one of `DTYPES`, with any strides.
        target: int64 class indices (N), or probabilities (N, C).
        weight: a weight for each class, contiguous.
        alpha: the sensitivity.
        ignore_index: the class index that takes a row out.
        smoothing: of the labels.
    """
    device = logits.device
    out = torch.empty(4 * len(logits) + 2, dtype=torch.float32, device=device)
    key = (
        logits.dtype, target.dtype, None if weight is None else weight.dtype,
        logits.shape, logits.stride(), target.stride(), ignore_index, smoothing > 0,
    )  # fmt: skip
    tensors = logits, target, logits if weight is None else weight, out
    launch(triton.rows, _rows_plan, key, device, tensors, (alpha, smoothing))
    return out


def _rows_plan(
    dtype: torch.dtype,
    _: torch.dtype,
    weights: torch.dtype | None,
    shape: tuple[int, int],
    steps: tuple[int, int],
    target_steps: tuple[int, ...],
    ignored: int,
    smooth: bool,
) -> Plan:
    rows, classes = shape
    block, warps = block_of(classes)
    soft = len(target_steps) == 2
    return rows, warps, (
        F.exp_limit(rows * classes, torch.float32), rows, classes, *steps,
        *target_steps, *(() if soft else (0,)), ignored,
        _is_exact(dtype), soft, weights is not None, soft or smooth, -(-classes // block), block,
    )  # fmt: skip


def finish(
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
    scaled: bool,
) -> Tensor:
    """The loss of a batch. Moves rho in training, and completes the sums.

    Args:
        sums: of `rows`.
        rho: the penalty, a float32 buffer.
        alpha: the sensitivity.
        ema: the weight of a new batch in rho.
        rho_min: the lower bound of rho.
        rho_max: the upper bound of rho.
        fixed: a rho that is never moved; 0 for none.
        training: whether this is a step of rho.
        listing: whether to clip before averaging.
        mean: whether to divide by D.
        scaled: whether to divide by max(|alpha| EX, rho SE).
    """
    device = sums.device
    value = torch.empty((), dtype=torch.float32, device=device)
    key = len(sums) // 4, fixed > 0, training, listing, mean, scaled
    numbers = alpha, ema, rho_min, rho_max, fixed
    launch(triton.finish, _finish_plan, key, device, (sums, rho, value), numbers)
    return value


def _finish_plan(rows: int, *options: bool) -> Plan:
    return 1, 4, (rows, *options, *_blocks_of(rows, _LARGEST_BLOCK))


def _blocks_of(rows: int, largest: int) -> tuple[int, int]:
    block = min(power(rows), largest)
    # Each number of blocks is a compilation of its own: powers of two make few for all batch sizes.
    return 1 << (-(-rows // block) - 1).bit_length(), block


def rows_and_finish(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    rho: Tensor,
    alpha: float,
    ignore_index: int,
    smoothing: float,
    ema: float,
    rho_min: float,
    rho_max: float,
    fixed: float,
    *options: bool,
) -> tuple[Tensor, Tensor]:
    """The loss of a batch and its sums: `rows`, then `finish`, in one launch if it is small."""
    device, count = logits.device, len(logits)
    if count > _MOST_COUNTED:
        sums = rows(logits, target, weight, alpha, ignore_index, smoothing)
        return finish(sums, rho, alpha, ema, rho_min, rho_max, fixed, *options), sums
    sums = torch.empty(4 * count + 2, dtype=torch.float32, device=device)
    value = torch.empty((), dtype=torch.float32, device=device)
    key = (
        (fixed > 0, *options), logits.dtype, target.dtype, None if weight is None else weight.dtype,
        logits.shape, logits.stride(), target.stride(), ignore_index, smoothing > 0,
    )  # fmt: skip
    weights, arrived = logits if weight is None else weight, counter(device)
    tensors = logits, target, weights, sums, rho, value, arrived
    numbers = alpha, smoothing, ema, rho_min, rho_max, fixed
    launch(triton.rows_and_finish, _both_plan, key, device, tensors, numbers)
    return value, sums


def _both_plan(options: tuple[bool, ...], *key: Any) -> Plan:
    programs, warps, rest = _rows_plan(*key)
    # A larger block would want more registers than `rows`, and fewer programs would run at once.
    return programs, warps, (*rest, *options, *_blocks_of(programs, 128 * warps))


def gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    sums: Tensor,
    grad: Tensor,
    out: Tensor,
    alpha: float,
    smoothing: float,
) -> None:
    """Write the gradient of each logit to `out`, which may be the logits themselves."""
    key = (
        logits.dtype, target.dtype, None if weight is None else weight.dtype, grad.dtype, out.dtype,
        logits.shape, logits.stride(), target.stride(), grad.stride(), out.stride(), smoothing > 0,
    )  # fmt: skip
    tensors = logits, target, logits if weight is None else weight, sums, grad, out
    launch(triton.gradient, _gradient_plan, key, logits.device, tensors, (alpha, smoothing))


def _gradient_plan(
    dtype: torch.dtype,
    _target: torch.dtype,
    weights: torch.dtype | None,
    _grad: torch.dtype,
    _out: torch.dtype,
    shape: tuple[int, int],
    steps: tuple[int, int],
    target_steps: tuple[int, ...],
    grad_steps: tuple[int, ...],
    out_steps: tuple[int, int],
    smooth: bool,
) -> Plan:
    rows, classes = shape
    block, warps = block_of(classes)
    blocks = -(-classes // block)
    soft = len(target_steps) == 2
    return rows * blocks, warps, (
        F.exp_limit(rows * classes, torch.float32), rows, classes, blocks, *steps,
        *target_steps, *(() if soft else (0,)), *(grad_steps or (0,)), *out_steps,
        _is_exact(dtype), soft, weights is not None, soft or smooth, block,
    )  # fmt: skip
