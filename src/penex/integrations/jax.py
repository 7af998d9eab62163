"""PENEX in JAX: a pure function, with rho going in and coming out."""

import math
from typing import Any, NamedTuple

import numpy as np

try:
    import jax
    import jax.numpy as jnp
    from jax import Array
except ImportError as error:
    raise ImportError("penex.integrations.jax needs jax: pip install jax.") from error

import torch

from penex import functional, penalty, targets
from penex.loss import PENEX, SCALES


class Window(NamedTuple):
    """rho where several batches make a step, as with optax.MultiSteps: their sums are pooled.

    It stands where rho does, begins as ``Window()``, and is what `penex` gives back. rho moves with
    the batch that ``ends`` a step and serves from the next one on, as with PENEX's `accumulate`.

    Attributes:
        rho: the penalty so far.
        sums: of EX, SE and D, over the batches since the last step.
    """

    rho: Array | np.floating[Any] = np.float32(0)
    sums: Array | np.ndarray = np.zeros(3, np.float32)


def penex(
    logits: Array,
    labels: Array,
    rho: Array | float | Window,
    *,
    alpha: float = 0.1,
    train: bool = True,
    ends: Array | bool = True,
    scale: str = "cross_entropy",
    ema: float = 0.1,
    rho_min: float = 1e-6,
    rho_max: float = 100.0,
    order: str = "algorithm",
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    axis_name: str | None = None,
) -> tuple[Array, Any]:
    """The loss of a batch and the new rho, the numbers of `penex.PENEX`.

    Begin with rho = 0 and keep what comes back with the parameters; it is all the state there is.
    No gradient goes through rho. Everything but the arrays is static under jit.

        def loss(parameters, rho, x, y):
            return penex(model(parameters, x), y, rho, alpha=0.1)

        (value, rho), gradients = jax.value_and_grad(loss, has_aux=True)(parameters, rho, x, y)

    Args:
        logits: (..., C), classes last.
        labels: class indices (...), or probabilities (..., C). One that is no class makes the loss
            NaN and leaves rho as it was.
        rho: the penalty so far, 0 before the first batch; or a `Window`, to accumulate gradients.
        alpha: the sensitivity, above 0 or between -1 and 0.
        train: whether rho moves; False for evaluation.
        ends: of a `Window`, whether the optimiser makes its step after this batch; it may be
            computed, as ``state.mini_step == n - 1`` of optax.MultiSteps.
        scale: ``cross_entropy`` or ``paper``.
        ema: the weight of a new batch in rho.
        rho_min: the lower bound of rho; with K above 1000 classes 1000 / K of it.
        rho_max: the upper bound of rho.
        order: ``algorithm`` or ``listing``.
        weight: a weight for each class.
        ignore_index: the class index that takes an example out.
        label_smoothing: between 0 and 1.
        reduction: ``mean``, ``sum`` or ``none``.
        axis_name: of pmap or shard_map, if devices share a batch: their sums are added before they
            are divided, so that the mean of the devices' gradients is that of the whole batch.

    Returns:
        The loss, and rho after this batch (as it was, where train is False).
    """
    PENEX.settings["alpha"].checked("alpha", alpha)
    penalty.check_order(order)
    targets.check_reduction(reduction)
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}; got {scale!r}.")
    wide = logits.dtype == jnp.float64
    dtype, theirs = (jnp.float64, torch.float64) if wide else (jnp.float32, torch.float32)
    u, total = _weights(logits, labels, weight, ignore_index, label_smoothing, dtype)
    mass = u.sum(-1)
    f = jnp.where((mass != 0)[..., None], logits.astype(dtype), 0)

    limit = functional.exp_limit(f.size, theirs)
    kept = jnp.where(u == 0, 0, f)  # a class without weight may be masked with -inf
    ex = (u * _saturated_exp(-alpha * kept, limit if alpha > 0 else -alpha * limit)).sum(-1)
    se = mass * _saturated_exp(f, limit).sum(-1)

    sums = jax.lax.stop_gradient(jnp.stack([ex.sum(), se.sum(), total, mass.sum()]))
    ranks: Any = 1
    if axis_name is not None:
        sums, ranks = jax.lax.psum(sums, axis_name), jax.lax.psum(1, axis_name)
    window = rho if isinstance(rho, Window) and train else None
    given = rho.rho if isinstance(rho, Window) else rho
    before = jax.lax.stop_gradient(jnp.asarray(given, dtype))
    lowest = penalty.lowest_penalty(alpha, penalty.bound_for(logits.shape[-1], rho_min))
    pooled = sums[:3]
    if window is not None:
        pooled = jnp.where(_is_usable(pooled), pooled, 0) + jnp.asarray(window.sums, dtype)
    moved = _moved(before, pooled, alpha, (ema, lowest, rho_max, order))
    at_once = train and window is None
    used = moved if at_once else jnp.where(_is_set(before), before, moved)
    after: Any = moved if at_once else rho if isinstance(rho, Window) else before
    if window is not None:
        after = Window(jnp.where(ends, moved, before), jnp.where(ends, 0, pooled))

    values = math.copysign(1.0, alpha) * ex + used * se
    values = values if reduction == "none" else values.sum()
    if scale == "paper":
        left = jnp.where(sums[0] + sums[1] == 0, 1, sums[2] / ranks)
        return values / left if reduction == "mean" else values, after
    smallest = functional.smallest_size(theirs)
    size = jnp.maximum(jnp.maximum(abs(alpha) * sums[0], used * sums[1]), smallest)
    values = values / (size / ranks if reduction == "mean" else size / sums[2])
    level = _level(sums, alpha, smallest)
    return _shown(values, level, total, mass, reduction), after


def probabilities(logits: Array, alpha: float) -> Array:
    """softmax((1 + alpha) logits) over the last axis: how a model trained with PENEX predicts."""
    return jax.nn.softmax((1 + alpha) * logits.astype(jnp.promote_types(logits.dtype, jnp.float32)))


def _weights(
    logits: Array, labels: Array, weight: Array | None, ignored: int, smoothing: float, dtype: Any
) -> tuple[Array, Array]:
    """The weights u_ij of `penex.targets`, and what a mean divides by."""
    classes = logits.shape[-1]
    w = jnp.ones(classes, dtype) if weight is None else jnp.asarray(weight, dtype)
    if labels.shape == logits.shape:
        q, kept = labels.astype(dtype), jnp.ones(labels.shape[:-1], dtype)
        total = kept.sum()
    else:
        counts = labels != ignored
        kept = counts.astype(dtype)
        index = jnp.where(counts, labels, 0)
        strange = (index < 0) | (index >= classes)
        q = jax.nn.one_hot(index, classes, dtype=dtype)
        q = jnp.where(strange[..., None], jnp.nan, q)
        total = (kept * (q * w).sum(-1)).sum()
    u = w * ((1 - smoothing) * q + smoothing / classes) * kept[..., None]
    return u, total


def _moved(rho: Array, sums: Array, alpha: float, how: tuple[float, float, float, str]) -> Array:
    """One step of rho, as `penex.penalty.update_penalty` does it; none if a sum is unusable."""
    ema, lowest, highest, order = how
    estimate = abs(alpha) * sums[0] / (sums[1] + 1e-12 * sums[2])
    if order == "listing":
        estimate = jnp.clip(estimate, lowest, highest)
    previous = jnp.where(_is_set(rho), rho, estimate)
    average = estimate if ema == 1 else (1 - ema) * previous + ema * estimate
    moved = average if order == "listing" else jnp.clip(average, lowest, highest)
    return jnp.where(_is_usable(sums), moved, jnp.where(_is_set(rho), rho, 0))


def _is_usable(sums: Array) -> Array:
    left = sums[0] + sums[1]
    return jnp.isfinite(left) & (left > 0)


def _level(sums: Array, alpha: float, smallest: float) -> Array:
    """How far a model is, as `penex.PENEX.level` has it: what the loss reads as."""
    ex, se, mass = sums[0], sums[1], sums[3]
    found = jnp.log(jnp.maximum(ex / mass, smallest)) / alpha
    found = found + jnp.log(jnp.maximum(se / mass, smallest))
    return jnp.where(mass == 0, 0, found)


def _shown(values: Array, level: Array, total: Array, mass: Array, reduction: str) -> Array:
    """The loss with the level for a value; what is added has no gradient."""
    held, mass = jax.lax.stop_gradient(values), jax.lax.stop_gradient(mass)
    if reduction == "none":
        short = level * total - held.sum()
        return values + mass * (short / jnp.where(mass == 0, 1, mass.sum()))
    return values - held + (level if reduction == "mean" else level * total)


def _is_set(rho: Array) -> Array:
    return (rho > 0) & (rho < jnp.inf)


def _saturated_exp(x: Array, limit: float) -> Array:
    """exp(x) up to the limit, then the tangent there, with one of the two slopes at the limit."""
    below = x <= limit
    return jnp.exp(jnp.where(below, x, limit)) * jnp.where(below, 1, 1 + x - limit)
