"""PENEX on a GPU in Triton kernels: one read of the logits forward, one and a write backward.

`rows` sums each row: ex_i, se_i, its share of D and the mass sum_j u_ij (u: see `penex.targets`).
`finish` sums the rows and moves rho, on the device; for a small batch, where a launch costs more
than what it launches, `rows_and_finish` is both. `gradient` reads the logits again:

    dL / df_ij = g_i / D (rho mass_i e(f_ij) - |alpha| u_ij e(-alpha f_ij)),

with e(x) = exp(min(x, limit)), the slope of the saturated exponential (for alpha below 0 that of
-alpha f ends at the same logit as that of f). Every sum has a fixed order, so that the same batch
gives the same bits. A target that is no class (and not ignored) makes its row NaN, which reaches
the loss; no address is ever computed from it.
"""

import triton
import triton.language as tl


@triton.jit
def _exp(x, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """exp(x). A GPU's own is 2^(x log2 e) with the product rounded: exactly, that is added back."""
    if EXACT:
        # exp(-128) is 0 in float32, and -inf itself would make the rest -inf + inf, which is NaN.
        x = tl.maximum(x, -128.0, propagate_nan=tl.PropagateNan.ALL)
        power = x * 1.44269502162933349609375
        rest = tl.fma(x, 1.44269502162933349609375, -power) + x * 1.9259629911266175e-08
        return tl.exp2(power) * (1.0 + 0.6931471805599453 * rest)
    else:
        return tl.exp(x)


@triton.jit
def _saturated(x, limit, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """exp(x) up to the limit, then its tangent."""
    above = tl.where(x > limit, x - limit, 0.0)  # x - min(x, limit) would be NaN at x = -inf
    return _slope(x, limit, EXACT) * (1.0 + above)


@triton.jit
def _slope(x, limit, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    return _exp(tl.minimum(x, limit, propagate_nan=tl.PropagateNan.ALL), EXACT)


@triton.jit
def _own_limit(alpha, limit):  # type: ignore[no-untyped-def]
    """The limit of -alpha f: for alpha below 0 where f is at its own."""
    return tl.where(alpha < 0, -alpha * limit, limit)


@triton.jit
def _class(y, classes):  # type: ignore[no-untyped-def]
    """A target as a column, -1 if there is no such one; in 32 bits, as every element meets it."""
    return tl.where((y >= 0) & (y < classes), y, -1).to(tl.int32)


@triton.jit
def _spread(  # type: ignore[no-untyped-def]
    columns,
    mask,
    y,
    q,
    step,
    weight,
    smoothing,
    classes,
    SOFT: tl.constexpr,
    WEIGHTED: tl.constexpr,
):
    """U of a stretch of columns: w ((1 - e) q + e / K)."""
    if SOFT:
        share = tl.load(q + columns.to(tl.int64) * step, mask=mask, other=0.0).to(tl.float32)
    else:
        share = tl.where(columns == y, 1.0, 0.0)
    u = (1.0 - smoothing) * share + smoothing / classes
    if WEIGHTED:
        u *= tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    return tl.where(mask, u, 0.0)


@triton.jit
def rows(  # type: ignore[no-untyped-def]
    logits, target, weight, out, alpha, smoothing,
    limit, rows, classes, row_step, step, target_row_step, target_step, ignored,
    EXACT: tl.constexpr, SOFT: tl.constexpr, WEIGHTED: tl.constexpr, SPREAD: tl.constexpr,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of one row."""
    row = tl.program_id(0).to(tl.int64)
    own_limit = _own_limit(alpha, limit)
    x = logits + row * row_step
    q = target + row * target_row_step
    y = tl.full((), -1, tl.int32)
    kept = True
    legal = True
    if not SOFT:
        given = tl.load(q)
        kept = given != ignored
        y = _class(given, classes)
        legal = y >= 0
    # Plain exp first, as a test for the limit would cost instructions for each logit: if the sum is
    # at most exp(limit), no term is past it and the sum is right; else the row is summed again.
    sums = tl.zeros((BLOCK,), tl.float32)
    for k in tl.range(0, 0 if SPREAD else BLOCKS, num_stages=3):
        columns = k * BLOCK + tl.arange(0, BLOCK)
        mask = (columns < classes) & kept
        f = tl.load(x + columns.to(tl.int64) * step, mask=mask, other=-float("inf"))
        sums += _exp(f.to(tl.float32), EXACT)
    se = tl.sum(sums)
    ex = 0.0
    mass = 0.0
    if SPREAD or not (se <= _exp(limit, EXACT)):
        sums = tl.zeros((BLOCK,), tl.float32)
        sum_ex = tl.zeros((BLOCK,), tl.float32)
        sum_u = tl.zeros((BLOCK,), tl.float32)
        for k in range(BLOCKS):
            columns = k * BLOCK + tl.arange(0, BLOCK)
            mask = columns < classes
            f = tl.load(x + columns.to(tl.int64) * step, mask=mask, other=-float("inf"))
            f = f.to(tl.float32)
            sums += _saturated(f, limit, EXACT)
            if SPREAD:
                u = _spread(
                    columns, mask, y, q, target_step, weight, smoothing, classes, SOFT, WEIGHTED
                )
                sum_ex += tl.where(u != 0, u * _saturated(-alpha * f, own_limit, EXACT), 0.0)
                sum_u += u
        se, ex, mass = tl.sum(sums), tl.sum(sum_ex), tl.sum(sum_u)
    share = 1.0
    if not SOFT:
        safe = tl.where(legal, y, 0).to(tl.int64)
        if WEIGHTED:
            share = tl.load(weight + safe).to(tl.float32)
        share = tl.where(kept, share, 0.0)
    if SPREAD:
        if not SOFT:
            mass = tl.where(kept, mass, 0.0)
    else:
        own = tl.load(x + safe * step).to(tl.float32)
        mass = share
        ex = mass * _saturated(-alpha * own, own_limit, EXACT)
    se = tl.where(mass == 0, 0.0, mass * se)
    ex = tl.where(mass == 0, 0.0, ex)
    if not SOFT:
        wrong = kept & (legal == 0)
        ex = tl.where(wrong, float("nan"), ex)
        mass = tl.where(wrong, float("nan"), mass)
    tl.store(out + row, ex)
    tl.store(out + rows + row, se)
    tl.store(out + 2 * rows + row, share)
    tl.store(out + 3 * rows + row, mass)


@triton.jit
def finish(  # type: ignore[no-untyped-def]
    sums, rho, value, alpha, ema, rho_min, rho_max, fixed, rows,
    FIXED: tl.constexpr, TRAINING: tl.constexpr, LISTING: tl.constexpr, MEAN: tl.constexpr,
    SCALED: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The loss from the rows' sums, and the step of rho."""
    sum_ex = tl.zeros((BLOCK,), tl.float32)
    sum_se = tl.zeros((BLOCK,), tl.float32)
    sum_share = tl.zeros((BLOCK,), tl.float32)
    sum_mass = tl.zeros((BLOCK,), tl.float32)
    for k in range(BLOCKS):
        row = k * BLOCK + tl.arange(0, BLOCK)
        mask = row < rows
        sum_ex += tl.load(sums + row, mask=mask, other=0.0)
        sum_se += tl.load(sums + rows + row, mask=mask, other=0.0)
        sum_share += tl.load(sums + 2 * rows + row, mask=mask, other=0.0)
        if SCALED:
            sum_mass += tl.load(sums + 3 * rows + row, mask=mask, other=0.0)
    ex, se, total = tl.sum(sum_ex), tl.sum(sum_se), tl.sum(sum_share)
    left = ex + se
    if FIXED:
        now = fixed
    else:
        before = tl.load(rho)
        # 0 says that no batch has set rho yet; what is not a positive number counts as that.
        before = tl.where((before > 0) & (before < float("inf")), before, 0.0)
        estimate = tl.abs(alpha) * ex / (se + 1e-12 * total)
        if LISTING:
            estimate = tl.minimum(tl.maximum(estimate, rho_min), rho_max)
        average = (1.0 - ema) * tl.where(before == 0, estimate, before) + ema * estimate
        # With ema = 1 a first batch adds 0 * estimate above, which is NaN if that is infinite.
        average = tl.where(ema == 1, estimate, average)
        if not LISTING:
            average = tl.minimum(tl.maximum(average, rho_min), rho_max)
        usable = (left > 0) & (left < float("inf"))
        moved = tl.where(usable, average, before)
        if TRAINING:
            tl.store(rho, moved)
            now = moved
        else:
            now = tl.where(before == 0, moved, before)
    divisor = 1.0
    if MEAN:
        divisor = tl.where(left == 0, 1.0, total)
    if SCALED:
        smallest = 1.1754943508222875e-34  # `functional.smallest_size`: a kernel cannot call it
        size = tl.maximum(tl.abs(alpha) * ex, now * se, propagate_nan=tl.PropagateNan.ALL)
        size = tl.maximum(size, smallest, propagate_nan=tl.PropagateNan.ALL)
        mass = tl.sum(sum_mass)
        own = tl.where(mass == 0, 1.0, mass)
        share = tl.where(mass == 0, 0.0, mass / total)  # 1, but for probabilities with weights
        divisor = size * tl.where(mass == 0, 1.0, total / own) if MEAN else size / own
        mean_ex = tl.maximum(ex / mass, smallest, propagate_nan=tl.PropagateNan.ALL)
        mean_se = tl.maximum(se / mass, smallest, propagate_nan=tl.PropagateNan.ALL)
        level = tl.where(mass == 0, 0.0, tl.log(mean_ex) / alpha + tl.log(mean_se))
        level *= share
        tl.store(value, level if MEAN else level * total)
    else:
        tl.store(value, (tl.where(alpha < 0, -ex, ex) + now * se) / divisor)
    tl.store(sums + 4 * rows, now)
    tl.store(sums + 4 * rows + 1, divisor)


@triton.jit
def rows_and_finish(  # type: ignore[no-untyped-def]
    logits, target, weight, sums, rho, value, arrived,
    alpha, smoothing, ema, rho_min, rho_max, fixed,
    limit, count, classes, row_step, step, target_row_step, target_step, ignored,
    EXACT: tl.constexpr, SOFT: tl.constexpr, WEIGHTED: tl.constexpr, SPREAD: tl.constexpr,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
    FIXED: tl.constexpr, TRAINING: tl.constexpr, LISTING: tl.constexpr, MEAN: tl.constexpr,
    SCALED: tl.constexpr, ROW_BLOCKS: tl.constexpr, ROW_BLOCK: tl.constexpr,
):  # fmt: skip
    """Both in one launch: the last program to arrive finishes, and sets the counter back."""
    rows(
        logits, target, weight, sums, alpha, smoothing,
        limit, count, classes, row_step, step, target_row_step, target_step, ignored,
        EXACT, SOFT, WEIGHTED, SPREAD, BLOCKS, BLOCK,
    )  # fmt: skip
    # Every thread's sums are written before one of them counts the program, and whoever finds the
    # count full sees what was written before all the others were counted.
    tl.debug_barrier()
    before = tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu")
    if before == count - 1:
        tl.debug_barrier()
        tl.store(arrived, 0)
        finish(
            sums, rho, value, alpha, ema, rho_min, rho_max, fixed, count,
            FIXED, TRAINING, LISTING, MEAN, SCALED, ROW_BLOCKS, ROW_BLOCK,
        )  # fmt: skip


@triton.jit
def gradient(  # type: ignore[no-untyped-def]
    logits, target, weight, sums, grad, out, alpha, smoothing, limit, rows, classes, blocks,
    row_step, step, target_row_step, target_step, grad_step, out_row_step, out_step,
    EXACT: tl.constexpr,
    SOFT: tl.constexpr, WEIGHTED: tl.constexpr, SPREAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of some logits of one row."""
    # Programs that run side by side take neighbouring blocks of a row, so memory is read in order.
    row = (tl.program_id(0) // blocks).to(tl.int64)
    start = (tl.program_id(0) % blocks) * BLOCK
    columns = start + tl.arange(0, BLOCK)
    mask = columns < classes
    q = target + row * target_row_step
    y = tl.full((), -1, tl.int32)
    if not SOFT:
        y = _class(tl.load(q), classes)
    mass = tl.load(sums + 3 * rows + row)
    scale = tl.load(grad + row * grad_step) / tl.load(sums + 4 * rows + 1)
    own_limit = _own_limit(alpha, limit)
    x = logits + row * row_step + columns.to(tl.int64) * step
    f = tl.load(x, mask=mask, other=0.0).to(tl.float32)
    slope = (scale * tl.load(sums + 4 * rows) * mass) * _slope(f, limit, EXACT)
    if SPREAD:
        u = _spread(columns, mask, y, q, target_step, weight, smoothing, classes, SOFT, WEIGHTED)
        own = scale * tl.abs(alpha) * u * _slope(-alpha * f, own_limit, EXACT)
        slope -= tl.where(u != 0, own, 0.0)
    elif (start <= y) & (y < start + BLOCK):
        own = scale * tl.abs(alpha) * mass * _slope(-alpha * f, own_limit, EXACT)
        slope = tl.where(columns == y, slope - own, slope)
    if mass == 0:  # an ignored row has gradient 0, even where its logits are NaN or infinite
        slope = tl.zeros((BLOCK,), tl.float32)
    place = out + row * out_row_step + columns.to(tl.int64) * out_step
    tl.store(place, slope.to(out.dtype.element_ty), mask=mask)
