"""How the kernels of `linear_triton` are launched; `linear_plain` has their plain twins."""

import torch
from torch import Tensor

from penex.kernels import linear_triton as kernels
from penex.kernels.launch import INTERPRETED as INTERPRETED
from penex.kernels.launch import _aligned, _is_exact, _launch, block_of

_ROWS, _BLOCK = 8, 512  # of a tile of hidden states: a frequent class has hundreds of positions


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
    block = min(4096, 1 << max(4, (classes - 1).bit_length()))
    tensors = logits, logits if bias is None else bias, mass, se
    key = logits.dtype, logits.shape, logits.stride(0), bias is None, _aligned(*tensors)
    _launch(
        kernels.powers, key, logits.device, rows, *tensors, classes, logits.stride(0), float(limit),
        _is_exact(logits), bias is not None, -(-classes // block), block, max(1, block // 512),
    )  # fmt: skip


def scale(values: Tensor, factor: Tensor) -> None:
    """Multiply dense values of one of `DTYPES` by a float32 number, in place."""
    count, block = values.numel(), 4096
    key = values.dtype, count, _aligned(values, factor)
    programs = -(-count // block)
    _launch(kernels.scale, key, values.device, programs, values, factor, count, block, 8)


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


def add_rows(total: Tensor, label: Tensor, pull: Tensor, hidden: Tensor) -> None:
    """Add pull_i h_i to row label_i of total, each row's sum in float32 and at once.

    Args:
        total: (K, H), dense.
        label: int64 class indices, (T).
        pull: (T) in float32.
        hidden: (T, H).
    """
    rows, width = hidden.shape
    hidden = hidden.contiguous()
    label, order = label.sort(stable=True)
    parts = -(-width // _BLOCK)
    tensors = total, hidden, label, order, pull
    key = total.dtype, hidden.dtype, hidden.shape, len(total), _aligned(*tensors)
    _launch(
        kernels.add_rows, key, total.device, rows * parts, *tensors, rows, len(total), width,
        parts, _ROWS, _BLOCK, 4,
    )  # fmt: skip
