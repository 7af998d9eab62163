"""How the kernels of `kernels.triton` are launched: their tiles, what they need and return."""

import os

import torch
from torch import Tensor

from penex.kernels import triton

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


def rows(
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
        triton.rows[(rows,)](
            logits, target, logits if weight is None else weight, out, rows, classes,
            *logits.stride(), target.stride(0), target.stride(1) if soft else 0,
            alpha, limit, ignore_index, smoothing,
            EXACT=_is_exact(logits), SOFT=soft, WEIGHTED=weight is not None,
            SPREAD=soft or smoothing > 0, BLOCKS=-(-classes // block), BLOCK=block, num_warps=warps,
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
        mean: whether to divide.
    """
    value, numbers = sums.new_empty(()), sums.new_empty(2)
    rows = sums.shape[1]
    block = power(rows)
    blocks = 1 << (-(-rows // block) - 1).bit_length()  # few kernels for any number of tokens
    with torch.cuda.device_of(sums):  # type: ignore[no-untyped-call]
        triton.finish[(1,)](
            sums, rho, value, numbers, rows, alpha, ema, rho_min, rho_max, fixed,
            FIXED=fixed > 0, TRAINING=training, LISTING=listing, MEAN=mean,
            BLOCKS=blocks, BLOCK=block, num_warps=4,
        )  # fmt: skip
    return value, numbers


def gradient(
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
        triton.gradient[(rows, -(-classes // block))](
            logits, target, logits if weight is None else weight, sums,
            numbers if grad is None else grad, numbers, out,
            rows, classes, *logits.stride(), target.stride(0), target.stride(1) if soft else 0,
            0 if grad is None or not grad.dim() else grad.stride(0), *out.stride(),
            alpha, limit, smoothing, UNIT=grad is None, EXACT=_is_exact(logits),
            SOFT=soft, WEIGHTED=weight is not None, SPREAD=soft or smoothing > 0, BLOCK=block,
            num_warps=warps,
        )  # fmt: skip
