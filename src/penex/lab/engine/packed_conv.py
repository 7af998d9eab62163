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

_POOLED = 64  # pooled pixels a program of `_forward`, 2x2 pixels one of `_input_gradient`
_ADDED = 1024  # sums a program of `_add_up`
_FILTERS = 64  # that a program takes at most


@triton.jit
def _pixels(start, AREA: tl.constexpr, WIDTH: tl.constexpr, BLOCK_P: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of a tile: the image it begins in, and from there each one's number, image, row, column."""
    image = start // AREA
    p = (start - image * AREA).to(tl.int32) + tl.arange(0, BLOCK_P)[:, None]
    return image, p, p // AREA, p % AREA // WIDTH, p % WIDTH


@triton.jit
def _shifted(x, b, y, z, c, down, right, there, sb, sc, sh, sw, H: tl.constexpr, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """The input at some pixels' neighbours, 0 beyond the edge."""
    y += down
    z += right
    inside = there & (y >= 0) & (y < H) & (z >= 0) & (z < W)
    return tl.load(x + b * sb + y * sh + z * sw + c * sc, mask=inside, other=0.0)


@triton.jit
def _taps(  # type: ignore[no-untyped-def]
    x, b, y, z, k, there, sb, sc, sh, sw, H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr
):
    """Of an image of few channels: all taps and channels around some pixels, a row for each."""
    k = k[None, :]
    there = there & (k < 9 * CIN)
    down, right = k // (3 * CIN) - 1, k // CIN % 3 - 1
    return _shifted(x, b, y, z, k % CIN, down, right, there, sb, sc, sh, sw, H, W)


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
    k = tl.arange(0, BLOCK_K)
    real = p < pixels - image * area
    x += m * sm + image * sb
    weight += m * 9 * CIN * COUT
    a00 = tl.zeros((BLOCK_P, BLOCK_N), tl.float32)
    a01, a10, a11 = a00, a00, a00
    if NARROW:
        w = tl.load(weight + k[:, None] * COUT + n, mask=k[:, None] < 9 * CIN, other=0.0)
        x00 = _taps(x, b, y, z, k, real, sb, sc, sh, sw, H, W, CIN)
        x01 = _taps(x, b, y, z + 1, k, real, sb, sc, sh, sw, H, W, CIN)
        x10 = _taps(x, b, y + 1, z, k, real, sb, sc, sh, sw, H, W, CIN)
        x11 = _taps(x, b, y + 1, z + 1, k, real, sb, sc, sh, sw, H, W, CIN)
        a00 = tl.dot(x00, w, a00, input_precision="tf32x3")
        a01 = tl.dot(x01, w, a01, input_precision="tf32x3")
        a10 = tl.dot(x10, w, a10, input_precision="tf32x3")
        a11 = tl.dot(x11, w, a11, input_precision="tf32x3")
    else:
        c = k[None, :]
        for s in range(9):
            w = tl.load(weight + (s * CIN + k[:, None]) * COUT + n)
            i, j = s // 3 - 1, s % 3 - 1
            x00 = _shifted(x, b, y, z, c, i, j, real, sb, sc, sh, sw, H, W)
            x01 = _shifted(x, b, y, z, c, i, j + 1, real, sb, sc, sh, sw, H, W)
            x10 = _shifted(x, b, y, z, c, i + 1, j, real, sb, sc, sh, sw, H, W)
            x11 = _shifted(x, b, y, z, c, i + 1, j + 1, real, sb, sc, sh, sw, H, W)
            a00 = tl.dot(x00, w, a00, input_precision="tf32x3")
            a01 = tl.dot(x01, w, a01, input_precision="tf32x3")
            a10 = tl.dot(x10, w, a10, input_precision="tf32x3")
            a11 = tl.dot(x11, w, a11, input_precision="tf32x3")
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
    grad, code, weight, out, blocks,
    H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """For 2x2 pixels at a time, which see the same nine pooled pixels."""
    pooled_h: tl.constexpr = H // 2
    pooled_w: tl.constexpr = W // 2
    area: tl.constexpr = ((H + 1) // 2) * ((W + 1) // 2)
    size: tl.constexpr = CIN * COUT
    m = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0).to(tl.int64) * BLOCK_P
    image, p, b, y, z = _pixels(start, area, (W + 1) // 2, BLOCK_P)
    real = p < blocks - image * area
    c = tl.arange(0, BLOCK_C)[None, :]
    images = m * (blocks // area) + image
    grad += images * pooled_h * pooled_w * COUT
    code += images * pooled_h * pooled_w * COUT
    weight += m * 9 * CIN * COUT
    a00 = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    a01, a10, a11 = a00, a00, a00
    for begin in range(0, COUT, BLOCK_K):
        n = begin + tl.arange(0, BLOCK_K)
        tap = weight + c * COUT + n[:, None]
        w = (
            tl.load(tap, mask=c < CIN, other=0.0),
            tl.load(tap + size, mask=c < CIN, other=0.0),
            tl.load(tap + 2 * size, mask=c < CIN, other=0.0),
            tl.load(tap + 3 * size, mask=c < CIN, other=0.0),
            tl.load(tap + 4 * size, mask=c < CIN, other=0.0),
            tl.load(tap + 5 * size, mask=c < CIN, other=0.0),
            tl.load(tap + 6 * size, mask=c < CIN, other=0.0),
            tl.load(tap + 7 * size, mask=c < CIN, other=0.0),
            tl.load(tap + 8 * size, mask=c < CIN, other=0.0),
        )
        for cell in tl.static_range(9):
            oy, oz = y + (cell // 3 - 1), z + (cell % 3 - 1)
            inside = real & (oy >= 0) & (oy < pooled_h) & (oz >= 0) & (oz < pooled_w)
            at = ((b * pooled_h + oy) * pooled_w + oz) * COUT + n[None, :]
            which = tl.load(code + at, mask=inside, other=4)
            g = tl.load(grad + at, mask=inside, other=0.0)
            for q in tl.static_range(4):  # the pixels under it that these four touch
                if _near(2 * (cell // 3) + q // 2) and _near(2 * (cell % 3) + q % 2):
                    own = tl.where(which == q, g, 0.0).to(g.dtype)
                    a00 = _through(a00, own, w, cell, q, 0, 0)
                    a01 = _through(a01, own, w, cell, q, 0, 1)
                    a10 = _through(a10, own, w, cell, q, 1, 0)
                    a11 = _through(a11, own, w, cell, q, 1, 1)
    out += images * H * W * CIN
    at = ((b * H + 2 * y) * W + 2 * z) * CIN + c
    here = real & (c < CIN)
    below, beside = 2 * y + 1 < H, 2 * z + 1 < W
    kind = out.dtype.element_ty
    tl.store(out + at, a00.to(kind), mask=here)
    tl.store(out + at + CIN, a01.to(kind), mask=here & beside)
    tl.store(out + at + W * CIN, a10.to(kind), mask=here & below)
    tl.store(out + at + (W + 1) * CIN, a11.to(kind), mask=here & below & beside)


@triton.constexpr_function
def _near(place: int) -> bool:
    """Whether a row of the six under three pooled ones is beside or in the middle two."""
    return 1 <= place <= 4


@triton.jit
def _through(  # type: ignore[no-untyped-def]
    total, g, w,
    cell: tl.constexpr, q: tl.constexpr, down: tl.constexpr, right: tl.constexpr,
):  # fmt: skip
    """What pixel q under a pooled one gives to one of the 2x2, if it looked at it."""
    i: tl.constexpr = 3 + down - 2 * (cell // 3) - q // 2
    j: tl.constexpr = 3 + right - 2 * (cell % 3) - q % 2
    if i >= 0 and i <= 2 and j >= 0 and j <= 2:
        return tl.dot(g, w[i * 3 + j], total, input_precision="tf32x3")
    else:
        return total


@triton.jit
def _weight_gradient(  # type: ignore[no-untyped-def]
    x, grad, code, part, pixels, models, sm, sc, sb, sh, sw,
    H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """For a row of three taps, which see the same pixels."""
    area: tl.constexpr = (H // 2) * (W // 2)
    parts: tl.constexpr = COUT // BLOCK_N
    s, m = tl.program_id(0) % 3, tl.program_id(1)
    chunk = tl.program_id(0) // (3 * parts)
    image = chunk.to(tl.int64) * CHUNK // area
    first = (m.to(tl.int64) * pixels + image * area) * COUT
    x += m.to(tl.int64) * sm + image * sb
    grad += first
    code += first
    begin = (chunk.to(tl.int64) * CHUNK - image * area).to(tl.int32)
    n = (tl.program_id(0) // 3 % parts * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    c = tl.arange(0, CIN)[None, :]
    t0 = tl.zeros((BLOCK_N, CIN), tl.float32)
    t1, t2 = t0, t0
    total_bias = tl.zeros((BLOCK_P, BLOCK_N), tl.float32)
    for start in range(0, CHUNK, BLOCK_P):
        p = begin + start + tl.arange(0, BLOCK_P)[:, None]
        b, y, z = p // area, p % area // (W // 2) * 2 + s - 1, p % (W // 2) * 2
        real = p < pixels - image * area
        g = tl.load(grad + p * COUT + n, mask=real, other=0.0)
        which = tl.load(code + p * COUT + n, mask=real, other=4)
        if s == 0:
            total_bias += tl.where(which < 4, g, 0.0).to(tl.float32)
        for q in tl.static_range(2):  # the upper and the lower two of the four pixels
            left = tl.trans(tl.where(which == 2 * q, g, 0.0).to(g.dtype))
            right = tl.trans(tl.where(which == 2 * q + 1, g, 0.0).to(g.dtype))
            x0 = _shifted(x, b, y, z, c, q, -1, real, sb, sc, sh, sw, H, W)
            t0 = tl.dot(left, x0, t0, input_precision="tf32x3")
            x1 = _shifted(x, b, y, z, c, q, 0, real, sb, sc, sh, sw, H, W)
            t1 = tl.dot(left, x1, t1, input_precision="tf32x3")
            t0 = tl.dot(right, x1, t0, input_precision="tf32x3")
            x2 = _shifted(x, b, y, z, c, q, 1, real, sb, sc, sh, sw, H, W)
            t2 = tl.dot(left, x2, t2, input_precision="tf32x3")
            t1 = tl.dot(right, x2, t1, input_precision="tf32x3")
            x3 = _shifted(x, b, y, z, c, q, 2, real, sb, sc, sh, sw, H, W)
            t2 = tl.dot(right, x3, t2, input_precision="tf32x3")
    part += (chunk.to(tl.int64) * models + m) * (9 * CIN + 1) * COUT
    at = (s * 3 * CIN + c) * COUT + tl.trans(n)
    tl.store(part + at, t0)
    tl.store(part + at + CIN * COUT, t1)
    tl.store(part + at + 2 * CIN * COUT, t2)
    if s == 0:
        tl.store(part + 9 * CIN * COUT + n, tl.sum(total_bias, axis=0, keep_dims=True))


@triton.jit
def _narrow_gradient(  # type: ignore[no-untyped-def]
    x, grad, code, part, pixels, models, sm, sc, sb, sh, sw,
    H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """For all taps of an image of few channels."""
    area: tl.constexpr = (H // 2) * (W // 2)
    chunk, m = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    image = chunk * CHUNK // area
    x += m * sm + image * sb
    first = (m * pixels + image * area) * COUT
    grad += first
    code += first
    begin = (chunk * CHUNK - image * area).to(tl.int32)
    n, k = tl.arange(0, COUT)[None, :], tl.arange(0, BLOCK_K)
    total = tl.zeros((COUT, BLOCK_K), tl.float32)
    for start in range(0, CHUNK, BLOCK_P):
        p = begin + start + tl.arange(0, BLOCK_P)[:, None]
        b, y, z = p // area, p % area // (W // 2) * 2, p % (W // 2) * 2
        real = p < pixels - image * area
        g = tl.load(grad + p * COUT + n, mask=real, other=0.0)
        which = tl.load(code + p * COUT + n, mask=real, other=4)
        for q in tl.static_range(4):
            xq = _taps(x, b, y + q // 2, z + q % 2, k, real, sb, sc, sh, sw, H, W, CIN)
            # After the taps a column of ones: its product is the gradient of the bias.
            xq = tl.where(k[None, :] == 9 * CIN, 1.0, xq).to(xq.dtype)
            own = tl.trans(tl.where(which == q, g, 0.0).to(xq.dtype))
            total = tl.dot(own, xq, total, input_precision="tf32x3")
    part += (chunk * models + m) * (9 * CIN + 1) * COUT
    k = k[None, :]
    tl.store(part + k * COUT + tl.trans(n), total, mask=k <= 9 * CIN)


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
        _forward[grid](
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
        _input_gradient[(triton.cdiv(blocks, _POOLED), models)](
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
            _narrow_gradient[(chunks, models)](
                x, grad, code, part, pixels, models, *x.stride(),
                height, width, channels, filters, block_p, _row(channels), chunk,
                num_warps=4, num_stages=2,
            )  # fmt: skip
        else:
            block_n = min(filters, _FILTERS)
            _weight_gradient[(3 * chunks * (filters // block_n), models)](
                x, grad, code, part, pixels, models, *x.stride(),
                height, width, channels, filters, block_p, block_n, chunk,
                num_warps=4, num_stages=3 if x.itemsize == 2 else 1,
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
    rows = weight.permute(0, 3, 4, 2, 1).flatten(1, 3).to(x.dtype).contiguous()
    out: Tensor = _conv_op(x, rows, bias.float().contiguous())[0]
    return out.permute(0, 4, 1, 2, 3)
