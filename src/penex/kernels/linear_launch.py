"""How the kernels of `linear_triton` are launched; `linear_plain` has their plain twins."""

import functools
from typing import Any

import torch
from torch import Tensor

from penex.kernels import linear_triton as kernels
from penex.kernels.launch import INTERPRETED as INTERPRETED
from penex.kernels.launch import _aligned, _is_exact, _launch, block_of

_ROWS, _BLOCK = 8, 512  # of a tile of hidden states: a frequent class has hundreds of positions
_LARGEST = 4096  # numbers that a program reads at once


def powers(logits: Tensor, bias: Tensor | None, mass: Tensor, se: Tensor, limit: float) -> None:
    """Add sum_j exp f_ij to se_i and write mass_i exp(min(f_ij, limit)) over the logits.

    Args:
        logits: f without its bias, (N, C) in one of `DTYPES`; the columns lie side by side.
        bias: (C) in float32, or None.
        mass: (N) in float32.
        se: (N) in float32.
        limit: up to where exp is exact.
    """
    rows, classes = logits.shape
    # One program has a whole row, so that its sum needs no other and has a fixed order.
    block = min(_LARGEST, 1 << max(4, (classes - 1).bit_length()))
    tensors = logits, logits if bias is None else bias, mass, se
    key = logits.dtype, logits.shape, logits.stride(0), bias is None, _aligned(*tensors)
    _launch(
        kernels.powers, key, logits.device, rows, *tensors, classes, logits.stride(0), float(limit),
        _is_exact(logits), bias is not None, -(-classes // block), block, max(1, block // 512),
    )  # fmt: skip


def product(
    hidden: Tensor, weight: Tensor, mass: Tensor, se: Tensor, limit: float, out: Tensor
) -> bool:
    """What `powers` makes of the logits h W^T, without them, if that is known to be faster.

    Args:
        hidden: h, (T, H), dense.
        weight: W, (C, H).
        mass: (T) in float32.
        se: (T) in float32.
        limit: up to where exp is exact.
        out: (T, C), where the exponentials go.
    """
    found = _product()
    if found is None or not found.can(hidden, weight, out):
        return False
    found.powers(hidden, weight, mass, se, limit, out)
    return True


@functools.cache
def _product() -> Any:
    """The module, unless this Triton knows no descriptors of tensors."""
    try:
        from penex.kernels import linear_product
    except ImportError:
        return None
    return linear_product


def kept_rows(hidden: Tensor, mass: Tensor, dtype: torch.dtype) -> Tensor:
    """A dense copy of the hidden states, 0 at positions without mass, whatever stands there.

    Args:
        hidden: (T, H); the features lie side by side.
        mass: (T) in float32.
        dtype: of the copy.
    """
    rows, width = hidden.shape
    out = torch.empty(rows, width, dtype=dtype, device=hidden.device)
    block, warps = block_of(width)
    tensors = hidden, mass, out
    key = hidden.dtype, dtype, hidden.shape, hidden.stride(0), _aligned(*tensors)
    _launch(
        kernels.kept_rows, key, hidden.device, rows, *tensors, width, hidden.stride(0),
        -(-width // block), block, warps,
    )  # fmt: skip
    return out


def own_logits(hidden: Tensor, weight: Tensor, label: Tensor) -> Tensor:
    """H W_y of each position, in float32.

    Args:
        hidden: (T, H), dense.
        weight: (K, H); the features lie side by side.
        label: int64 class indices, (T).
    """
    (rows, width), classes = hidden.shape, len(weight)
    out = torch.empty(rows, dtype=torch.float32, device=hidden.device)
    block, warps = block_of(width)
    tensors = hidden, weight, label, out
    key = hidden.dtype, weight.dtype, hidden.shape, classes, weight.stride(0), _aligned(*tensors)
    _launch(
        kernels.own_logits, key, hidden.device, rows, *tensors, classes, width, weight.stride(0),
        -(-width // block), block, warps,
    )  # fmt: skip
    return out


def finish_hidden(
    total: Tensor, weight: Tensor, label: Tensor, pull: Tensor, factor: Tensor, dtype: torch.dtype
) -> Tensor:
    """Factor total + pull_i W_y, in a dtype.

    Args:
        total: (T, H) in float32, dense.
        weight: (K, H); the features lie side by side.
        label: int64 class indices, (T).
        pull: (T) in float32.
        factor: a number in float32.
        dtype: of the result.
    """
    (rows, width), classes = total.shape, len(weight)
    out = torch.empty_like(total, dtype=dtype)
    block, warps = block_of(width)
    tensors = total, weight, label, pull, factor, out
    key = weight.dtype, dtype, total.shape, classes, weight.stride(0), _aligned(*tensors)
    _launch(
        kernels.finish_hidden, key, total.device, rows, *tensors, classes, width, weight.stride(0),
        -(-width // block), block, warps,
    )  # fmt: skip
    return out


def finish_weight(
    total: Tensor, label: Tensor, pull: Tensor, factor: Tensor, hidden: Tensor
) -> None:
    """Factor total, in place, and pull_i h_i in row label_i, each row's sum in float32 and at once.

    Args:
        total: (K, H), dense.
        label: int64 class indices, (T).
        pull: (T) in float32.
        factor: a number in float32.
        hidden: (T, H).
    """
    (classes, width), hidden = total.shape, hidden.contiguous()
    label, order = label.int().sort(stable=True)  # half as long as that of int64
    # Where each class begins in that order; what is no class is before or after all of them.
    border = torch.arange(classes + 1, dtype=torch.int32, device=total.device)
    border = torch.searchsorted(label, border, out_int32=True)
    block = min(_LARGEST, 1 << max(4, (width - 1).bit_length()))
    parts = -(-width // block)
    tensors = total, factor, hidden, order, border, pull
    key = total.dtype, hidden.dtype, hidden.shape, classes, _aligned(*tensors)
    _launch(
        kernels.finish_weight, key, total.device, classes * parts, *tensors, width,
        parts, block, _ROWS, min(_BLOCK, block), max(1, block // 1024),
    )  # fmt: skip
