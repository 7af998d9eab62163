"""The Triton kernels of `packed_conv`: a 3x3 convolution, 2x2 max-pooling and ReLU, each way.

A program computes the four pixels under a tile of pooled ones, for some channels of one model, as
matrix products over the nine taps, and keeps the largest: neither the shifted copies of the input
nor the image before pooling ever reaches memory. What backward needs besides the input is a byte
for each pooled pixel: which of the four it was, or 4 where ReLU closed. The gradient at full size,
mostly zero, is made from it where it is used.

Every sum has a fixed order that depends on a model's own size: a model gets the same bits in a
pack of any number. Addresses are 64-bit where a tile begins and 32-bit inside it.
"""

import triton
import triton.language as tl


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
def forward(  # type: ignore[no-untyped-def]
    x, weight, bias, out, code, pixels, sm, sc, sb, sh, sw,
    H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    NARROW: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """For a tile of pooled pixels and some filters."""
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
def input_gradient(  # type: ignore[no-untyped-def]
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
def weight_gradient(  # type: ignore[no-untyped-def]
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
def narrow_gradient(  # type: ignore[no-untyped-def]
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
def add_up(part, out, size, PARTS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of the parts of a gradient, always in the same order."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(PARTS):
        total += tl.load(part + at, mask=at < size, other=0.0)
        part += size
    tl.store(out + at, total, mask=at < size)
