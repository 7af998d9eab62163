"""A 3x3 convolution, 2x2 max-pooling and ReLU of many models, in one Triton kernel.

Images are (M, C, B, H, W) with any strides; results have their channels last in memory. A program
computes the four pixels under a tile of pooled ones, for some channels of one model, as matrix
products over the nine taps, and keeps the largest: neither the shifted copies of the input nor the
image before pooling ever reaches memory. What backward needs besides the input is a byte for each
pooled pixel: which of the four it was, or 4 where ReLU closed. The gradient at full size, mostly
zero, is made from it where it is used.

Every sum has a fixed order that depends on a model's own size: a model gets the same bits in a
pack of any number. Addresses are 64-bit where a tile begins and 32-bit inside it.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_PIXELS = 64  # pooled pixels a program of `_forward`, pixels one of `_input_gradient`
_SUMMED = 32  # pooled pixels at a time in `_weight_gradient`
_CHUNK = 256  # pooled pixels a program of it
_ADDED = 1024  # sums a program of `_add_up`


@triton.jit
def _tap(s, CIN: tl.constexpr, BLOCK_K: tl.constexpr, NARROW: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of the s-th rows of the weights: channel, shift down, shift right, whether they are there.

    They are one tap with all channels, or all taps if the channels are few.
    """
    k = tl.arange(0, BLOCK_K)[None, :]
    if NARROW:
        return k % CIN, k // (3 * CIN) - 1, k // CIN % 3 - 1, k < 9 * CIN
    else:
        return k, s // 3 - 1, s % 3 - 1, k < CIN


@triton.jit
def _shifted(x, b, y, z, c, down, right, there, sb, sc, sh, sw, H: tl.constexpr, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """The input at some pixels' neighbours, 0 beyond the edge."""
    y += down
    z += right
    inside = there & (y >= 0) & (y < H) & (z >= 0) & (z < W)
    return tl.load(x + b * sb + y * sh + z * sw + c * sc, mask=inside, other=0.0)


@triton.jit
def _pixels(start, AREA: tl.constexpr, WIDTH: tl.constexpr, BLOCK_P: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of a tile: the image it begins in, and from there each one's number, image, row, column."""
    image = start // AREA
    p = (start - image * AREA).to(tl.int32) + tl.arange(0, BLOCK_P)[:, None]
    return image, p, p // AREA, p % AREA // WIDTH, p % WIDTH


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    x, weight, bias, out, code, pixels, sm, sc, sb, sh, sw,
    H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    NARROW: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    area: tl.constexpr = (H // 2) * (W // 2)
    m = tl.program_id(2).to(tl.int64)
    start = tl.program_id(0).to(tl.int64) * BLOCK_P
    image, p, b, y, z = _pixels(start, area, W // 2, BLOCK_P)
    y, z = 2 * y, 2 * z
    n = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    real = p < pixels - image * area
    x += m * sm + image * sb
    weight += m * 9 * CIN * COUT
    a00 = tl.zeros((BLOCK_P, BLOCK_N), tl.float32)
    a01, a10, a11 = a00, a00, a00
    for s in range(1 if NARROW else 9):
        c, down, right, there = _tap(s, CIN, BLOCK_K, NARROW)
        k = tl.arange(0, BLOCK_K)[:, None]
        rows = k < (9 * CIN if NARROW else CIN)
        w = tl.load(weight + (s * CIN + k) * COUT + n, mask=rows, other=0.0)
        there = there & real
        x00 = _shifted(x, b, y, z, c, down, right, there, sb, sc, sh, sw, H, W)
        x01 = _shifted(x, b, y, z + 1, c, down, right, there, sb, sc, sh, sw, H, W)
        x10 = _shifted(x, b, y + 1, z, c, down, right, there, sb, sc, sh, sw, H, W)
        x11 = _shifted(x, b, y + 1, z + 1, c, down, right, there, sb, sc, sh, sw, H, W)
        a00 = tl.dot(x00, w, a00, input_precision="ieee")
        a01 = tl.dot(x01, w, a01, input_precision="ieee")
        a10 = tl.dot(x10, w, a10, input_precision="ieee")
        a11 = tl.dot(x11, w, a11, input_precision="ieee")
    best, which = a00, tl.zeros((BLOCK_P, BLOCK_N), tl.int32)
    best, which = _larger(best, which, a01, 1)
    best, which = _larger(best, which, a10, 2)
    best, which = _larger(best, which, a11, 3)
    value = best + tl.load(bias + m * COUT + n).to(tl.float32)
    closed = value <= 0
    first = (m * pixels + image * area) * COUT
    at = p * COUT + n
    value = tl.where(closed, 0.0, value).to(out.dtype.element_ty)
    tl.store(out + first + at, value, mask=real)
    tl.store(code + first + at, tl.where(closed, 4, which).to(tl.uint8), mask=real)


@triton.jit
def _larger(best, which, other, number: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first of the largest; a NaN wins, so that it is seen."""
    wins = (other > best) | (other != other)
    return tl.where(wins, other, best), tl.where(wins, number, which)


@triton.jit
def _input_gradient(  # type: ignore[no-untyped-def]
    grad, code, weight, out, pixels,
    H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    area: tl.constexpr = H * W
    pooled_h: tl.constexpr = H // 2
    pooled_w: tl.constexpr = W // 2
    m = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0).to(tl.int64) * BLOCK_P
    image, p, b, y, z = _pixels(start, area, W, BLOCK_P)
    real = p < pixels - image * area
    n, c = tl.arange(0, COUT), tl.arange(0, BLOCK_C)[None, :]
    first = (m * (pixels // area) + image) * pooled_h * pooled_w * COUT
    grad += first
    code += first
    weight += m * 9 * CIN * COUT
    total = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    for s in range(9):
        oy, oz = y + 1 - s // 3, z + 1 - s % 3  # whose tap s looked at this pixel
        inside = real & (oy >= 0) & (oy < 2 * pooled_h) & (oz >= 0) & (oz < 2 * pooled_w)
        at = ((b * pooled_h + oy // 2) * pooled_w + oz // 2) * COUT + n[None, :]
        which = tl.load(code + at, mask=inside, other=4)
        g = tl.load(grad + at, mask=inside, other=0.0)
        g = tl.where(which == oy % 2 * 2 + oz % 2, g, 0.0)
        w = tl.load(weight + (s * CIN + c) * COUT + n[:, None], mask=c < CIN, other=0.0)
        total = tl.dot(g.to(w.dtype), w, total, input_precision="ieee")
    out += (m * pixels + image * area) * CIN
    tl.store(out + p * CIN + c, total.to(out.dtype.element_ty), mask=real & (c < CIN))


@triton.jit
def _weight_gradient(  # type: ignore[no-untyped-def]
    x, grad, code, part, pixels, models, sm, sc, sb, sh, sw,
    H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    NARROW: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    area: tl.constexpr = (H // 2) * (W // 2)
    steps: tl.constexpr = 1 if NARROW else 9
    s, chunk, m = tl.program_id(0) % steps, tl.program_id(0) // steps, tl.program_id(1)
    image = chunk.to(tl.int64) * CHUNK // area
    x += m.to(tl.int64) * sm + image * sb
    first = (m.to(tl.int64) * pixels + image * area) * COUT
    grad += first
    code += first
    begin = (chunk.to(tl.int64) * CHUNK - image * area).to(tl.int32)
    n = tl.arange(0, COUT)[None, :]
    c, down, right, there = _tap(s, CIN, BLOCK_K, NARROW)
    total = tl.zeros((COUT, BLOCK_K), tl.float32)
    total_bias = tl.zeros((COUT,), tl.float32)
    for start in range(0, CHUNK, BLOCK_P):
        p = begin + start + tl.arange(0, BLOCK_P)[:, None]
        b, y, z = p // area, p % area // (W // 2) * 2, p % (W // 2) * 2
        real = p < pixels - image * area
        g = tl.load(grad + p * COUT + n, mask=real, other=0.0)
        which = tl.load(code + p * COUT + n, mask=real, other=4)
        here = there & real
        for q in tl.static_range(4):
            xq = _shifted(x, b, y + q // 2, z + q % 2, c, down, right, here, sb, sc, sh, sw, H, W)
            gq = tl.where(which == q, g, 0.0).to(xq.dtype)
            total = tl.dot(tl.trans(gq), xq, total, input_precision="ieee")
        if s == 0:
            total_bias += tl.sum(tl.where(which < 4, g, 0.0).to(tl.float32), axis=0)
    k = tl.arange(0, BLOCK_K)[None, :]
    part += (chunk.to(tl.int64) * models + m) * (9 * CIN + 1) * COUT
    rows = k < (9 * CIN if NARROW else CIN)
    tl.store(part + (s * CIN + k) * COUT + tl.trans(n), total, mask=rows)
    if s == 0:
        tl.store(part + 9 * CIN * COUT + tl.arange(0, COUT), total_bias)


@triton.jit
def _add_up(part, out, size, PARTS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(PARTS):
        total += tl.load(part + at, mask=at < size, other=0.0)
        part += size
    tl.store(out + at, total, mask=at < size)


def fits(channels: int, filters: int) -> bool:
    """Whether the kernels take a convolution with so many channels and filters.

    >>> fits(3, 32), fits(64, 128), fits(128, 128)
    (True, True, False)
    """
    return (channels <= 7 or channels in (16, 32, 64)) and filters in (16, 32, 64, 128)


def _rows(channels: int) -> tuple[bool, int]:
    """Whether all nine taps fit one matrix product, and how many rows of weights one has."""
    narrow = channels <= 7
    return narrow, max(16, triton.next_power_of_2(9 * channels if narrow else channels))


@torch.library.custom_op("penex::packed_conv", mutates_args=())
def _conv_op(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    models, channels, batch, height, width = x.shape
    filters = weight.shape[2]
    pooled = models, batch, height // 2, width // 2, filters
    out, code = x.new_empty(pooled), x.new_empty(pooled, dtype=torch.uint8)
    narrow, block_k = _rows(channels)
    block_n = min(filters, 64)
    pixels = batch * (height // 2) * (width // 2)
    grid = triton.cdiv(pixels, _PIXELS), filters // block_n, models
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        _forward[grid](
            x, weight.contiguous(), bias.contiguous(), out, code, pixels, *x.stride(),
            height, width, channels, filters, narrow, _PIXELS, block_k, block_n,
            num_warps=4, num_stages=1,
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
    pixels = batch * height * width
    with torch.cuda.device_of(grad):  # type: ignore[no-untyped-call]
        _input_gradient[(triton.cdiv(pixels, _PIXELS), models)](
            grad.contiguous(), code.contiguous(), weight.contiguous(), out, pixels,
            height, width, channels, filters, _PIXELS,
            max(16, triton.next_power_of_2(channels)), num_warps=4, num_stages=1,
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
    narrow, block_k = _rows(channels)
    pixels = batch * (height // 2) * (width // 2)
    chunks = triton.cdiv(pixels, _CHUNK)
    part = x.new_empty(chunks, models, 9 * channels + 1, filters, dtype=torch.float32)
    out = torch.empty_like(part[0])
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        _weight_gradient[(chunks * (1 if narrow else 9), models)](
            x, grad.contiguous(), code.contiguous(), part, pixels, models, *x.stride(),
            height, width, channels, filters, narrow, _SUMMED, block_k, _CHUNK,
            num_warps=4, num_stages=2,
        )  # fmt: skip
        _add_up[(triton.cdiv(out.numel(), _ADDED),)](part, out, out.numel(), chunks, _ADDED)
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
    rows = weight.permute(0, 3, 4, 2, 1).flatten(1, 3).to(x.dtype)
    out: Tensor = _conv_op(x, rows.contiguous(), bias.float().contiguous())[0]
    return out.permute(0, 4, 1, 2, 3)
