"""A 3x3 convolution, 2x2 max-pooling and ReLU of many models, in one Triton kernel each way.

Images are (M, C, B, H, W) with any strides; results have their channels last in memory. The sizes
of the kernels' tiles are those that were fastest on an H200.
"""

from typing import Any

import torch
import triton
from torch import Tensor

from penex.lab.engine import conv_kernels as kernels

_POOLED = 64  # pooled pixels a program of `forward`, 2x2 pixels one of `input_gradient`
_ADDED = 1024  # sums a program of `add_up`
_FILTERS = 64  # that a program takes at most


def fits(channels: int, filters: int) -> bool:
    """Whether the kernels take a convolution with so many channels and filters.

    >>> fits(3, 32), fits(64, 128), fits(128, 128)
    (True, True, False)
    """
    return (channels <= 7 or channels in (16, 32, 64)) and filters in (16, 32, 64, 128)


def _is_narrow(channels: int) -> bool:
    """Whether all nine taps, and a one, fit a row."""
    return channels <= 7


def _row(channels: int) -> int:
    """The length of a row of factors: all taps and a one, or the channels of one tap."""
    needed = 9 * channels + 1 if _is_narrow(channels) else channels
    return max(16, 1 << (needed - 1).bit_length())


@torch.library.custom_op("penex::packed_conv", mutates_args=())
def _conv_op(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    models, channels, batch, height, width = x.shape
    filters = weight.shape[2]
    pooled = models, batch, height // 2, width // 2, filters
    out, code = x.new_empty(pooled), x.new_empty(pooled, dtype=torch.uint8)
    narrow = _is_narrow(channels)
    block_p, block_n = 2 * _POOLED if narrow else _POOLED, min(filters, _FILTERS)
    pixels = batch * (height // 2) * (width // 2)
    grid = triton.cdiv(pixels, block_p), filters // block_n, models
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        kernels.forward[grid](
            x, weight.contiguous(), bias.contiguous(), out, code, pixels, *x.stride(),
            height, width, channels, filters, narrow, block_p, _row(channels), block_n,
            num_warps=4, num_stages=2 if channels <= 32 else 1,
        )  # fmt: skip
    return out, code


@_conv_op.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    models, _, batch, height, width = x.shape
    pooled = models, batch, height // 2, width // 2, weight.shape[2]
    return x.new_empty(pooled), x.new_empty(pooled, dtype=torch.uint8)


@torch.library.custom_op("penex::packed_conv_input", mutates_args=())
def _input_op(grad: Tensor, code: Tensor, weight: Tensor, height: int, width: int) -> Tensor:
    models, batch, _, _, filters = grad.shape
    channels = weight.shape[1] // 9
    out = grad.new_empty(models, batch, height, width, channels)
    blocks = batch * ((height + 1) // 2) * ((width + 1) // 2)
    with torch.cuda.device_of(grad):  # type: ignore[no-untyped-call]
        kernels.input_gradient[(triton.cdiv(blocks, _POOLED), models)](
            grad.contiguous(), code.contiguous(), weight.contiguous(), out, blocks,
            height, width, channels, filters, _POOLED,
            max(16, triton.next_power_of_2(channels)), min(filters, _FILTERS),
            num_warps=4, num_stages=1,
        )  # fmt: skip
    return out


@_input_op.register_fake
def _(grad: Tensor, code: Tensor, weight: Tensor, height: int, width: int) -> Tensor:
    return grad.new_empty(*grad.shape[:2], height, width, weight.shape[1] // 9)


@torch.library.custom_op("penex::packed_conv_weight", mutates_args=())
def _weight_op(x: Tensor, grad: Tensor, code: Tensor) -> Tensor:
    """The gradients of the weights, and in a last row that of the bias: (M, 9 C + 1, F)."""
    models, channels, batch, height, width = x.shape
    filters = grad.shape[4]
    pixels = batch * (height // 2) * (width // 2)
    block_p, chunk = (128, 1024) if _is_narrow(channels) else (32, 256)
    chunks = triton.cdiv(pixels, chunk)
    part = x.new_empty(chunks, models, 9 * channels + 1, filters, dtype=torch.float32)
    out = torch.empty_like(part[0])
    grad, code = grad.contiguous(), code.contiguous()
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        if _is_narrow(channels):
            kernels.narrow_gradient[(chunks, models)](
                x, grad, code, part, pixels, models, *x.stride(),
                height, width, channels, filters, block_p, _row(channels), chunk,
                num_warps=4, num_stages=2,
            )  # fmt: skip
        else:
            block_n = min(filters, _FILTERS)
            kernels.weight_gradient[(3 * chunks * (filters // block_n), models)](
                x, grad, code, part, pixels, models, *x.stride(),
                height, width, channels, filters, block_p, block_n, chunk,
                num_warps=4, num_stages=3 if x.itemsize == 2 else 1,
            )  # fmt: skip
        kernels.add_up[(triton.cdiv(out.numel(), _ADDED),)](part, out, out.numel(), chunks, _ADDED)
    return out


@_weight_op.register_fake
def _(x: Tensor, grad: Tensor, code: Tensor) -> Tensor:
    return x.new_empty(len(x), 9 * x.shape[1] + 1, grad.shape[4], dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, code = ctx.saved_tensors
    grad_x = None
    if ctx.needs_input_grad[0]:
        grad_x = _input_op(grad, code, weight, *x.shape[3:]).permute(0, 4, 1, 2, 3)
    rows = _weight_op(x, grad, code)
    return grad_x, rows[:, :-1].to(weight.dtype), rows[:, -1]


_conv_op.register_autograd(_backward, setup_context=_save)


def conv_pool_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """ReLU of the 2x2 maximum of a 3x3 convolution with a border of zeros, for M models.

    Args:
        x: (M, C, B, H, W); its dtype is that of the products, which are summed in float32.
        weight: (M, F, C, 3, 3).
        bias: (M, F).

    Returns:
        (M, F, B, H // 2, W // 2), channels last in memory.
    """
    rows = weight.permute(0, 3, 4, 2, 1).flatten(1, 3).to(x.dtype).contiguous()
    out: Tensor = _conv_op(x, rows, bias.float().contiguous())[0]
    return out.permute(0, 4, 1, 2, 3)
