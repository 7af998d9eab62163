"""How the kernels of `linear_triton` are launched; `linear_plain` has their plain twins."""

import torch
from torch import Tensor

from penex.kernels import linear_triton as kernels
from penex.kernels.kept import INTERPRETED as INTERPRETED
from penex.kernels.kept import Plan, launch
from penex.kernels.launch import _is_exact, block_of

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
    tensors = logits, logits if bias is None else bias, mass, se
    key = logits.dtype, *logits.shape, logits.stride(0), bias is not None
    launch(kernels.powers, _powers_plan, key, logits.device, tensors, (float(limit),))


def _powers_plan(dtype: torch.dtype, rows: int, classes: int, step: int, biased: bool) -> Plan:
    # One program has a whole row, so that its sum needs no other and has a fixed order.
    block = min(4096, 1 << max(4, (classes - 1).bit_length()))
    rest = classes, step, _is_exact(dtype), biased, -(-classes // block), block
    return rows, max(1, block // 512), rest


def scale(values: Tensor, factor: Tensor) -> None:
    """Multiply dense values of one of `DTYPES` by a float32 number, in place."""
    key = values.dtype, values.numel()
    launch(kernels.scale, _scale_plan, key, values.device, (values, factor))


def _scale_plan(_: torch.dtype, count: int) -> Plan:
    return -(-count // 4096), 8, (count, 4096)


def own_logits(hidden: Tensor, weight: Tensor, label: Tensor) -> Tensor:
    """H W_y of each position, in float32.

    Args:
        hidden: (T, H), dense.
        weight: (K, H); the features lie side by side.
        label: int64 class indices, (T).
    """
    out = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
    key = hidden.dtype, weight.dtype, hidden.shape, len(weight), weight.stride(0)
    tensors = hidden, weight, label, out
    launch(kernels.own_logits, _positions_plan, key, hidden.device, tensors)
    return out


def _positions_plan(
    _given: torch.dtype, _other: torch.dtype, shape: tuple[int, int], classes: int, step: int
) -> Plan:
    rows, width = shape
    block, warps = block_of(width)
    return rows, warps, (classes, width, step, -(-width // block), block)


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
    out = torch.empty_like(total, dtype=dtype)
    key = weight.dtype, dtype, total.shape, len(weight), weight.stride(0)
    tensors = total, weight, label, pull, factor, out
    launch(kernels.finish_hidden, _positions_plan, key, total.device, tensors)
    return out


def add_rows(total: Tensor, label: Tensor, pull: Tensor, hidden: Tensor) -> None:
    """Add pull_i h_i to row label_i of total, each row's sum in float32 and at once.

    Args:
        total: (K, H), dense.
        label: int64 class indices, (T).
        pull: (T) in float32.
        hidden: (T, H).
    """
    hidden = hidden.contiguous()
    label, order = label.sort(stable=True)
    key = total.dtype, hidden.dtype, hidden.shape, len(total)
    tensors = total, hidden, label, order, pull
    launch(kernels.add_rows, _add_plan, key, total.device, tensors)


def _add_plan(
    _total: torch.dtype, _hidden: torch.dtype, shape: tuple[int, int], classes: int
) -> Plan:
    rows, width = shape
    parts = -(-width // _BLOCK)
    return rows * parts, 4, (rows, classes, width, parts, _ROWS, _BLOCK)
