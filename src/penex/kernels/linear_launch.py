"""How the kernels of `linear_triton` are launched; `linear_plain` has their plain twins."""

import functools
import warnings
from typing import Any

import torch
from torch import Tensor

from penex.kernels import linear_triton as kernels
from penex.kernels.kept import INTERPRETED as INTERPRETED
from penex.kernels.kept import Plan, launch
from penex.kernels.launch import _is_exact, block_of

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
    tensors = logits, logits if bias is None else bias, mass, se
    key = logits.dtype, *logits.shape, logits.stride(0), bias is not None
    launch(kernels.powers, _powers_plan, key, logits.device, tensors, (float(limit),))


def _powers_plan(dtype: torch.dtype, rows: int, classes: int, step: int, biased: bool) -> Plan:
    # One program has a whole row, so that its sum needs no other and has a fixed order.
    block = min(_LARGEST, 1 << max(4, (classes - 1).bit_length()))
    rest = classes, step, _is_exact(dtype), biased, -(-classes // block), block
    return rows, max(1, block // 512), rest


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
    found, device = _product(), hidden.device
    if found is None or device in _WITHOUT_PRODUCT or not found.can(hidden, weight, out):
        return False
    try:
        found.powers(hidden, weight, mass, se, limit, out)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a compiler fails in all kinds of ways, and there is another way
        _WITHOUT_PRODUCT.add(device)
        first = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(
            f"Linear PENEX is slower than it could be: its product does not compile ({first}).",
            stacklevel=2,
        )
        return False
    return True


_WITHOUT_PRODUCT: set[torch.device] = set()


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
    out = torch.empty(hidden.shape, dtype=dtype, device=hidden.device)
    key = hidden.dtype, dtype, hidden.shape, hidden.stride(0)
    launch(kernels.kept_rows, _kept_plan, key, hidden.device, (hidden, mass, out))
    return out


def _kept_plan(_given: torch.dtype, _made: torch.dtype, shape: tuple[int, int], step: int) -> Plan:
    rows, width = shape
    block, warps = block_of(width)
    return rows, warps, (width, step, -(-width // block), block)


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
    hidden = hidden.contiguous()
    # Ignored positions have class 0, and one program would look at them all: they have none here.
    label = torch.where(pull == 0, -1, label).int()  # half as long as int64 to sort
    label, order = label.sort(stable=True)
    # Where each class begins in that order; what is no class is before or after all of them.
    border = torch.arange(len(total) + 1, dtype=torch.int32, device=total.device)
    border = torch.searchsorted(label, border, out_int32=True)
    key = total.dtype, hidden.dtype, hidden.shape, len(total)
    tensors = total, factor, hidden, order, border, pull
    launch(kernels.finish_weight, _finish_plan, key, total.device, tensors)


def _finish_plan(
    _total: torch.dtype, _hidden: torch.dtype, shape: tuple[int, int], classes: int
) -> Plan:
    width = shape[1]
    block = min(_LARGEST, 1 << max(4, (width - 1).bit_length()))
    parts = -(-width // block)
    rest = width, parts, block, _ROWS, min(_BLOCK, block)
    return classes * parts, max(1, block // 1024), rest
