"""How the kernels of `kernels.triton` are launched: their tiles, what they need and return."""

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from triton import __version__ as _VERSION

from penex import functional as F
from penex.kernels import triton

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

_LARGEST_BLOCK = 2048
_MOST_KEPT = 4096
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# Before Triton 3.3 a compiled kernel that was launched directly, as in `_launch`, wanted only the
# arguments that are no constants of its compilation; since then it takes all of them.
_TAKES_ALL = tuple(map(int, _VERSION.split(".")[:2])) >= (3, 3)


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


# By everything that a compilation and its number of programs depend on: the kernel, dtypes, sizes,
# steps, alignment, device.
_runners: dict[tuple[object, ...], Callable[..., None]] = {}


def _launch(
    kernel: Any, key: tuple[object, ...], device: torch.device, programs: int, *given: object
) -> None:
    """Launch a kernel. Which of its compilations it is, Triton is asked once: that takes long.

    Args:
        kernel: of `kernels.triton`.
        key: everything that a compilation depends on besides the kernel and the device: dtypes,
            flags, every whole number, and how tensors are aligned. A float is a float, whichever.
        device: where.
        programs: how many.
        given: the arguments in their order, and the number of warps.
    """
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            _launch(kernel, key, device, programs, *given)
        return
    key = id(kernel), device, key  # the id, as hash(kernel) takes a lock at every launch
    run = _runners.get(key)
    if run is not None:
        run(*given[:-1])
        return
    *arguments, warps = given
    compiled = kernel[(programs,)](*arguments, num_warps=warps)
    # Triton's interpreter returns no compiled kernel that could be kept.
    if _TAKES_ALL and hasattr(compiled, "asm"):
        if len(_runners) >= _MOST_KEPT:
            _runners.clear()
        _runners[key] = compiled[(programs, 1, 1)]


@functools.lru_cache(maxsize=128)
def _limit(summands: int) -> float:
    # Computed here and not an argument of `rows`: torch.compile, to pass it on as a number, would
    # fix the batch's size in its graph and compile again for every other size.
    return F.exp_limit(summands, torch.float32)


def _aligned(*tensors: Tensor) -> tuple[bool, ...]:
    """Which tensors begin where 16 bytes can be read at once."""
    return tuple([tensor.data_ptr() % 16 == 0 for tensor in tensors])


def rows(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    alpha: float,
    ignore_index: int,
    smoothing: float,
) -> Tensor:
    """The sums of each row: ex, se, its share of D and its mass, (4, N) in float32.

    Args:
        logits: (N, C) in one of `DTYPES`, with any strides.
        target: int64 class indices (N), or probabilities (N, C).
        weight: a weight for each class, contiguous.
        alpha: the sensitivity.
        ignore_index: the class index that takes a row out.
        smoothing: of the labels.
    """
    rows, classes = logits.shape
    out = torch.empty(4, rows, dtype=torch.float32, device=logits.device)
    soft = target.dim() == 2
    spread = soft or smoothing > 0
    block, warps = block_of(classes)
    steps = (*logits.stride(), target.stride(0), target.stride(1) if soft else 0)
    kinds = logits.dtype, target.dtype, None if weight is None else weight.dtype
    tensors = logits, target, logits if weight is None else weight, out
    key = kinds, logits.shape, steps, ignore_index, spread, _aligned(*tensors)
    _launch(
        triton.rows, key, logits.device, rows, *tensors, rows, classes, *steps,
        float(alpha), _limit(logits.numel()), ignore_index, float(smoothing),
        _is_exact(logits), soft, weight is not None, spread, -(-classes // block), block, warps,
    )  # fmt: skip
    return out


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
) -> tuple[Tensor, Tensor]:
    """The loss of a batch; the rho that it used and its divisor, (2). Moves rho in training.

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
    value, numbers = sums.new_empty(()), sums.new_empty(2)
    rows = sums.shape[1]
    block = power(rows)
    # Each number of blocks is a compilation of its own: powers of two make few for all batch sizes.
    blocks = 1 << (-(-rows // block) - 1).bit_length()
    options = fixed > 0, training, listing, mean, scaled
    tensors = sums, rho, value, numbers
    _launch(
        triton.finish, (rows, options, _aligned(*tensors)), sums.device, 1,
        *tensors, rows, *map(float, (alpha, ema, rho_min, rho_max, fixed)),
        *options, blocks, block, 4,
    )  # fmt: skip
    return value, numbers


def gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    sums: Tensor,
    grad: Tensor,
    numbers: Tensor,
    out: Tensor,
    alpha: float,
    smoothing: float,
) -> None:
    """Write the gradient of each logit to `out`, which may be the logits themselves."""
    rows, classes = logits.shape
    soft = target.dim() == 2
    spread = soft or smoothing > 0
    block, warps = block_of(classes)
    blocks = -(-classes // block)
    steps = (
        *logits.stride(), target.stride(0), target.stride(1) if soft else 0,
        grad.stride(0) if grad.dim() else 0, *out.stride(),
    )  # fmt: skip
    weights = None if weight is None else weight.dtype
    kinds = logits.dtype, target.dtype, weights, grad.dtype, out.dtype
    tensors = logits, target, logits if weight is None else weight, sums, grad, numbers, out
    key = kinds, logits.shape, steps, spread, _aligned(*tensors)
    _launch(
        triton.gradient, key, logits.device, rows * blocks, *tensors,
        rows, classes, blocks, *steps, float(alpha), _limit(logits.numel()), float(smoothing),
        _is_exact(logits), soft, weight is not None, spread, block, warps,
    )  # fmt: skip
