"""PENEX with its last layer: what stands between the matrix products, in Triton.

`powers` makes exponentials of a chunk of logits, in their place. The rest is the targets' part, one
entry a position, and the factor that is known at the end. Every sum is float32 and has a fixed
order. A target that is no class makes its position NaN; no address is ever computed from it.
"""

import triton
import triton.language as tl

from penex.kernels.triton import _slope


@triton.jit
def powers(  # type: ignore[no-untyped-def]
    logits, bias, mass, se, limit, classes, row_step,
    EXACT: tl.constexpr, BIASED: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row of a chunk of logits: its exponentials in their place, and their sum."""
    row = tl.program_id(0).to(tl.int64)
    x = logits + row * row_step
    own = tl.load(mass + row)
    sums = tl.zeros((BLOCK,), tl.float32)
    for k in tl.range(0, BLOCKS, num_stages=2):
        columns = k * BLOCK + tl.arange(0, BLOCK)
        mask = columns < classes
        f = tl.load(x + columns, mask=mask, other=-float("inf")).to(tl.float32)
        if BIASED:
            f += tl.load(bias + columns, mask=mask, other=0.0)
        slope = _slope(f, limit, EXACT)
        sums += slope * (1.0 + tl.where(f > limit, f - limit, 0.0))
        tl.store(x + columns, (own * slope).to(logits.dtype.element_ty), mask=mask)
    tl.store(se + row, tl.load(se + row) + tl.sum(sums))


@triton.jit
def scale(values, factor, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A stretch of values times a number, which is not rounded to their dtype first."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    scaled = tl.load(values + place, mask=mask).to(tl.float32) * tl.load(factor)
    tl.store(values + place, scaled.to(values.dtype.element_ty), mask=mask)


@triton.jit
def own_logits(  # type: ignore[no-untyped-def]
    hidden, weight, label, out, classes, width, row_step,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The logit of one position's own class, without its bias."""
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(label + row)
    legal = (y >= 0) & (y < classes)
    x = hidden + row * width
    w = weight + tl.where(legal, y, 0) * row_step
    sums = tl.zeros((BLOCK,), tl.float32)
    for k in range(BLOCKS):
        columns = k * BLOCK + tl.arange(0, BLOCK)
        mask = columns < width
        left = tl.load(x + columns, mask=mask, other=0.0).to(tl.float32)
        sums += left * tl.load(w + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row, tl.where(legal, tl.sum(sums), float("nan")))


@triton.jit
def finish_hidden(  # type: ignore[no-untyped-def]
    total, weight, label, pull, factor, out, classes, width, row_step,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One position's gradient: factor total + pull W_y."""
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(label + row)
    w = weight + tl.where((y >= 0) & (y < classes), y, 0) * row_step
    outer, scale = tl.load(pull + row), tl.load(factor)
    for k in range(BLOCKS):
        columns = k * BLOCK + tl.arange(0, BLOCK)
        mask = columns < width
        found = scale * tl.load(total + row * width + columns, mask=mask, other=0.0)
        found += outer * tl.load(w + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(out + row * width + columns, found.to(out.dtype.element_ty), mask=mask)


@triton.jit
def add_rows(  # type: ignore[no-untyped-def]
    total, hidden, label, order, pull, count, classes, width,
    PARTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A stretch of the row of one class: what its positions, sorted by class, add to it."""
    first = tl.program_id(0) // PARTS
    columns = (tl.program_id(0) % PARTS) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    y = tl.load(label + first)
    begins = (first == 0) | (y != tl.load(label + tl.maximum(first - 1, 0)))
    if begins & (y >= 0) & (y < classes):
        sums = tl.zeros((BLOCK,), tl.float32)
        start = first
        found = tl.full((), ROWS, tl.int32)
        while found == ROWS:  # as long as all of them were of this class
            place = start + tl.arange(0, ROWS)
            same = (place < count) & (tl.load(label + place, mask=place < count, other=-1) == y)
            row = tl.load(order + place, mask=same, other=0)
            outer = tl.load(pull + row, mask=same, other=0.0)
            # What weighs nothing may be no number, and 0 times that is to be 0.
            mask = (outer != 0)[:, None] & inside[None, :]
            h = tl.load(hidden + row[:, None] * width + columns[None, :], mask=mask, other=0.0)
            sums += tl.sum(outer[:, None] * h.to(tl.float32), axis=0)
            found = tl.sum(same.to(tl.int32))
            start += ROWS
        place = total + y * width + columns
        sums += tl.load(place, mask=inside, other=0.0).to(tl.float32)
        tl.store(place, sums.to(total.dtype.element_ty), mask=inside)
