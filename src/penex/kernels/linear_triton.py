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
def kept_rows(  # type: ignore[no-untyped-def]
    hidden, mass, out, width, row_step, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One position's hidden states, or zeros if it has no mass."""
    row = tl.program_id(0).to(tl.int64)
    own = tl.load(mass + row)
    for k in range(BLOCKS):
        columns = k * BLOCK + tl.arange(0, BLOCK)
        inside = columns < width
        h = tl.load(hidden + row * row_step + columns, mask=inside, other=0.0)
        h = tl.where(own != 0, h.to(out.dtype.element_ty), 0.0)
        tl.store(out + row * width + columns, h, mask=inside)


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
def finish_weight(  # type: ignore[no-untyped-def]
    total, factor, hidden, order, border, pull, width,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """A stretch of the row of one class: a number times it, and what its positions add to it."""
    y = (tl.program_id(0) // PARTS).to(tl.int64)
    first = (tl.program_id(0) % PARTS) * BLOCK
    place = total + y * width
    whole = first + tl.arange(0, BLOCK)
    scaled = tl.load(place + whole, mask=whole < width).to(tl.float32) * tl.load(factor)
    tl.store(place + whole, scaled.to(total.dtype.element_ty), mask=whole < width)
    begin, end = tl.load(border + y), tl.load(border + y + 1)
    if begin < end:  # few classes have any
        tl.debug_barrier()  # other threads than those that wrote a number may read it
        for k in range(0, BLOCK, STEP):
            columns = first + k + tl.arange(0, STEP)
            inside = columns < width
            sums = tl.load(place + columns, mask=inside, other=0.0).to(tl.float32)
            start = begin
            while start < end:
                of_class = start + tl.arange(0, ROWS)
                row = tl.load(order + of_class, mask=of_class < end, other=0)
                outer = tl.load(pull + row, mask=of_class < end, other=0.0)
                # What weighs nothing may be no number, and 0 times that is to be 0.
                some = (outer != 0)[:, None] & inside[None, :]
                h = tl.load(hidden + row[:, None] * width + columns[None, :], mask=some, other=0.0)
                sums += tl.sum(outer[:, None] * h.to(tl.float32), axis=0)
                start += ROWS
            tl.store(place + columns, sums.to(total.dtype.element_ty), mask=inside)
