"""The mathematics against the oracle, gradcheck, and the paper's statements on the loss."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from penex import _reference
from penex import functional as F

OPTIONS: list[dict[str, Any]] = [
    {},
    {"weight": [0.5, 2.0, 0.0, 1.5]},
    {"label_smoothing": 0.2},
    {"weight": [0.5, 2.0, 1.0, 1.5], "label_smoothing": 0.2},
]
NEGATIVE = [-0.05, -0.3, -0.7, -0.95]
positive = st.floats(0.01, 3.0)
alphas = positive | st.floats(-0.95, -0.01)
rhos = st.floats(1e-6, 100.0)


def batch(seed: int, soft: bool, rows: int = 7, classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, classes, dtype=torch.float64, generator=generator)
    if soft:
        target = torch.rand(rows, classes, dtype=torch.float64, generator=generator)
        return logits, target / target.sum(1, keepdim=True)
    target = torch.randint(classes, (rows,), generator=generator)
    target[1] = -100
    return logits, target


def tensor_options(options: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    weight = options.get("weight")
    return {**options, "weight": None if weight is None else torch.tensor(weight, dtype=dtype)}


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 1e-6), (torch.float16, 1e-6)],
)
@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0, *NEGATIVE])
def test_value_and_gradient_equal_the_oracle(
    dtype: torch.dtype, rtol: float, options: dict[str, Any], soft: bool, alpha: float
) -> None:
    """The oracle works in float64 on the rounded logits: half precision adds no error."""
    logits, target = batch(0, soft)
    logits = logits.to(dtype)
    ours = logits.clone().requires_grad_()
    theirs = logits.double().requires_grad_()
    if soft:
        target = target.to(dtype)
    loss = F.penex(ours, target, alpha, 0.3, **tensor_options(options, dtype))
    wide = target.double() if soft else target
    oracle = _reference.penex(theirs, wide, alpha, 0.3, **options)
    ex, _, total = _reference.loss_terms(theirs.detach(), wide, alpha, **options)
    (grad,) = torch.autograd.grad(loss, ours)
    (oracle_grad,) = torch.autograd.grad(oracle, theirs)

    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert grad.dtype == dtype
    # With a sign the terms may cancel: rounding is to their size.
    torch.testing.assert_close(loss.double(), oracle, rtol=rtol, atol=rtol * float(sum(ex) / total))
    rounding = max(rtol, torch.finfo(dtype).eps if dtype.itemsize == 2 else 0)
    scale = oracle_grad.abs().max().item()
    torch.testing.assert_close(grad.double(), oracle_grad, rtol=rounding, atol=rtol * scale)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("alpha", [0.3, -0.3, -0.95])
def test_gradcheck(alpha: float, options: dict[str, Any], soft: bool, reduction: str) -> None:
    logits, target = batch(1, soft, rows=3)
    inputs = (logits.requires_grad_(), target.requires_grad_() if soft else target)

    def loss(f: Tensor, y: Tensor) -> Tensor:
        return F.penex(
            f, y, alpha, 0.7, reduction=reduction, **tensor_options(options, torch.float64)
        )

    assert torch.autograd.gradcheck(loss, inputs)
    assert torch.autograd.gradgradcheck(loss, inputs)


@pytest.mark.parametrize("soft", [False, True])
def test_reductions_agree(soft: bool) -> None:
    logits, target = batch(2, soft)
    weight = torch.tensor([0.5, 2.0, 1.0, 1.5], dtype=torch.float64)

    def loss(reduction: str) -> Tensor:
        return F.penex(logits, target, 0.1, 0.2, weight=weight, reduction=reduction)

    kept = target >= 0
    total = torch.tensor(7.0) if soft else weight[target[kept]].sum()
    torch.testing.assert_close(loss("none").sum(), loss("sum"))
    torch.testing.assert_close(loss("sum") / total, loss("mean"), check_dtype=False)


def test_terms_are_the_public_parts() -> None:
    logits, target = batch(3, soft=False)
    parts = F.exponential(logits, target, 0.1) + 0.2 * F.sum_exp(logits) * (target >= 0)
    torch.testing.assert_close(parts, F.penex(logits, target, 0.1, 0.2, reduction="none"))


def test_spatial_positions_are_rows() -> None:
    logits, target = torch.randn(2, 5, 3, 4), torch.randint(5, (2, 3, 4))
    rows = logits.movedim(1, -1).reshape(-1, 5)
    cases: list[dict[str, Any]] = [{}, {"label_smoothing": 0.1, "weight": torch.rand(5)}]
    for options in cases:
        torch.testing.assert_close(
            F.penex(logits, target, 0.1, 0.2, **options),
            F.penex(rows, target.flatten(), 0.1, 0.2, **options),
        )


def test_functional_loss_works_under_vmap() -> None:
    logits, target = torch.randn(3, 6, 4), torch.randint(4, (3, 6))
    alpha, rho = torch.tensor([0.1, -0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
    logits[1] *= 100  # beyond the limit
    mapped = torch.func.vmap(F.penex)(logits, target, alpha, rho)
    numbers = alpha.double().tolist()
    each = [F.penex(*case) for case in zip(logits, target, numbers, rho, strict=True)]
    torch.testing.assert_close(mapped, torch.stack(each))


@given(seed=st.integers(0, 999), alpha=alphas)
def test_loss_at_the_optimal_penalty_is_one_plus_alpha_times_ex(seed: int, alpha: float) -> None:
    """With the sign of alpha: sign EX + |alpha| EX = sign (1 + alpha) EX."""
    logits, target = batch(seed, soft=True)
    ex, se = F.exponential(logits, target, alpha).mean(), F.sum_exp(logits).mean()
    rho = F.optimal_penalty(ex, se, alpha, eps=0.0)
    expected = math.copysign(1 + alpha, alpha) * ex
    torch.testing.assert_close(F.penex(logits, target, alpha, rho), expected)


@given(seed=st.integers(0, 999), alpha=alphas, shift=st.floats(-5, 5))
def test_level_identity(seed: int, alpha: float, shift: float) -> None:
    """L(f + c; rho) = e^(-alpha c) L(f; rho e^((1 + alpha) c)): a shift is another rho."""
    logits, target = batch(seed, soft=False)
    rho = torch.tensor(0.3, dtype=torch.float64)
    shifted = F.penex(logits + shift, target, alpha, rho)
    other = F.penex(logits, target, alpha, rho * math.exp((1 + alpha) * shift))
    torch.testing.assert_close(shifted, math.exp(-alpha * shift) * other)


@given(seed=st.integers(0, 999), alpha=alphas, factor=st.floats(1e-2, 1e2))
def test_at_the_optimal_penalty_no_common_shift_helps(
    seed: int, alpha: float, factor: float
) -> None:
    logits, target = batch(seed, soft=True)
    shift = torch.zeros((), dtype=torch.float64, requires_grad=True)
    ex, se = F.exponential(logits, target, alpha).mean(), F.sum_exp(logits).mean()
    best = F.optimal_penalty(ex, se, alpha, eps=0.0)
    (slope,) = torch.autograd.grad(F.penex(logits + shift, target, alpha, best), shift)
    assert slope.abs() <= 1e-12 * (abs(alpha) * ex)
    (slope,) = torch.autograd.grad(F.penex(logits + shift, target, alpha, factor * best), shift)
    torch.testing.assert_close(slope, (factor - 1) * abs(alpha) * ex, rtol=1e-6, atol=1e-9)


@given(seed=st.integers(0, 999), alpha=positive, factor=st.floats(1e-3, 1e3))
def test_prop_2_2_the_optimal_penalty_minimises_the_bound(
    seed: int, alpha: float, factor: float
) -> None:
    logits, target = batch(seed, soft=True)
    ex, se = F.exponential(logits, target, alpha).mean(), F.sum_exp(logits).mean()
    best = F.optimal_penalty(ex, se, alpha, eps=0.0)

    def log_bound(rho: Tensor) -> Tensor:
        return F.penex(logits, target, alpha, rho).log() - alpha / (1 + alpha) * rho.log()

    assert log_bound(best) <= log_bound(best * factor) + 1e-12


@given(seed=st.integers(0, 999), alpha=positive | st.sampled_from([-0.7, -0.3, 0.1, 1.0]), rho=rhos)
def test_prop_2_1_the_population_minimiser_recovers_the_distribution(
    seed: int, alpha: float, rho: float
) -> None:
    """Newton's method on the conditional risk, whose Hessian is diagonal.

    For alpha below 0 it is not convex far below the minimum: there a step is 1.
    """
    size = abs(alpha)
    _, p = batch(seed, soft=True)
    p = p.clamp(min=1e-3) / p.clamp(min=1e-3).sum(1, keepdim=True)
    f = torch.full_like(p, math.log(size / rho) / (1 + alpha)).requires_grad_()
    for _ in range(200):
        loss = F.penex(f, p, alpha, rho, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, f, create_graph=True)
        (curvature,) = torch.autograd.grad(gradient.sum(), f)
        step = (gradient / torch.maximum(curvature, gradient.abs())).detach()
        f = (f.detach() - step).requires_grad_()
        if step.abs().max() < 1e-12:
            break
    f = f.detach()
    torch.testing.assert_close(F.probabilities(f, alpha), p, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(rho / size * torch.exp((1 + alpha) * f), p, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("alpha", NEGATIVE)
@pytest.mark.parametrize("rho", [1e-3, 1.0, 50.0])
def test_prop_2_1_below_0_each_logit_has_one_stationary_point(alpha: float, rho: float) -> None:
    """Its slope, of a share p of the targets, is below 0 before and above 0 after: a minimum.

    So the minimiser is unique, though the loss is not convex. Beyond the limit it rises on.
    """
    rho = max(rho, F.lowest_penalty(alpha))
    p = torch.tensor([0.999, 0.5, 1e-3], dtype=torch.float64)
    f = torch.linspace(-300, 900, 5001, dtype=torch.float64)
    grid = f.unsqueeze(1).repeat(1, 3).requires_grad_()
    loss = F.penex(grid, p.expand(5001, 3), alpha, rho, reduction="sum")
    (slope,) = torch.autograd.grad(loss, grid)
    least = (math.log(abs(alpha) / rho) + p.log()) / (1 + alpha)
    # p need not add up to 1: the penalty is rho times their sum.
    least = least - p.sum().log() / (1 + alpha)
    assert torch.equal(slope > 0, grid > least)


@given(seed=st.integers(0, 999), alpha=alphas, shift=st.floats(-5, 5))
def test_holder_product_ignores_a_common_shift(seed: int, alpha: float, shift: float) -> None:
    logits, target = batch(seed, soft=True)
    b = alpha / (1 + alpha)

    def product(f: Tensor) -> Tensor:
        ex, se = F.exponential(f, target, alpha).mean(), F.sum_exp(f).mean()
        return (1 - b) * ex.log() + b * se.log()

    torch.testing.assert_close(product(logits + shift), product(logits))


@given(seed=st.integers(0, 999), alpha=alphas)
def test_gradient_at_the_optimal_penalty(seed: int, alpha: float) -> None:
    """It is |alpha| EX times the gradient of log EX / alpha + log SE."""
    logits, target = batch(seed, soft=True)
    logits.requires_grad_()
    ex, se = F.exponential(logits, target, alpha).mean(), F.sum_exp(logits).mean()
    rho = F.optimal_penalty(ex, se, alpha, eps=0.0).detach()
    (ours,) = torch.autograd.grad(F.penex(logits, target, alpha, rho), logits, retain_graph=True)
    (log_gradient,) = torch.autograd.grad(ex.log() / alpha + se.log(), logits)
    size = abs(alpha) * ex.detach()
    torch.testing.assert_close(ours, size * log_gradient, rtol=1e-7, atol=1e-12 * size.item())


@pytest.mark.parametrize("alpha", [1e-7, -1e-7])
def test_small_alpha_is_a_likelihood_without_normaliser(alpha: float) -> None:
    """The gradient of L / |alpha| tends to that of E[-f_y] + E[SE] / E[SE] held constant."""
    logits, target = batch(4, soft=True)
    logits.requires_grad_()
    ex, se = F.exponential(logits, target, alpha).mean(), F.sum_exp(logits).mean()
    rho = F.optimal_penalty(ex, se, alpha).detach()
    (ours,) = torch.autograd.grad(F.penex(logits, target, alpha, rho) / abs(alpha), logits)
    likelihood = -(target * logits).sum(1).mean()
    limit = likelihood + F.sum_exp(logits).mean() / F.sum_exp(logits).mean().detach()
    (expected,) = torch.autograd.grad(limit, logits)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-7)


def test_update_penalty_by_hand() -> None:
    def step(rho: float, estimate: float, order: str) -> float:
        return F.update_penalty(rho, estimate, 0.25, 1.0, 2.0, order).item()

    assert step(0.0, 1.5, "algorithm") == step(0.0, 1.5, "listing") == 1.5
    assert step(0.0, 9.0, "algorithm") == step(0.0, 9.0, "listing") == 2.0
    assert step(1.0, 9.0, "algorithm") == 2.0  # 0.75 + 2.25 = 3, clipped to 2
    assert step(1.0, 9.0, "listing") == 1.25  # 9 clipped to 2; 0.75 + 0.5
    assert step(1.0, 0.0, "algorithm") == 1.0  # 0.75, clipped to 1
    with pytest.raises(ValueError, match="'sideways'"):
        step(1.0, 1.0, "sideways")


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 5, 4)])
def test_probabilities_are_a_scaled_softmax_over_the_classes(shape: tuple[int, ...]) -> None:
    logits = torch.randn(shape)
    dim = min(1, len(shape) - 1)
    expected = torch.softmax(1.25 * logits, dim=dim)
    torch.testing.assert_close(F.probabilities(logits, 0.25), expected)


@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("rows", [1, 64])
def test_saturation_is_the_tangent_of_exp(dtype: torch.dtype, rel: float, rows: int) -> None:
    """Exact while rows x 2 exponentials of logits up to 1e4 fit under rho = 100, then a line."""
    limit = math.log(torch.finfo(dtype).max) - math.log(rows * 2 * 1e4 * 100)
    room = 74.2 if dtype == torch.float32 else 695.3
    assert limit == pytest.approx(room - math.log(rows), abs=0.1)
    target = torch.zeros(rows).long()
    for f in (limit - 5, limit - 0.1, limit + 0.1, limit + 5, 1e4):
        logits = torch.zeros(rows, 2, dtype=dtype)
        logits[:, 1] = f
        logits.requires_grad_()
        loss = F.penex(logits, target, 0.1, 1.0, reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]
        f = logits[0, 1].item()
        exact = math.exp(f) if f <= limit else math.exp(limit) * (1 + f - limit)
        assert logits.grad is not None
        assert loss.item() == pytest.approx(rows * (2 + exact), rel=rel)
        assert logits.grad[0, 1].item() == pytest.approx(math.exp(min(f, limit)), rel=rel)


@pytest.mark.parametrize("alpha", NEGATIVE)
@pytest.mark.parametrize("shape", [(1, 2), (64, 10)])
def test_a_negative_alphas_loss_is_bounded_below(alpha: float, shape: tuple[int, int]) -> None:
    """By its minimum, -(1 + alpha) (|alpha| / rho)^(|alpha| / (1 + alpha)), and rising beyond."""
    rows, classes = shape
    size, lowest = -alpha, F.lowest_penalty(alpha)
    limit = F.exp_limit(rows * classes, torch.float32)
    target = torch.zeros(rows).long()
    for rho in (lowest, 2 * lowest, 1.0):
        bound = -(1 + alpha) * (size / rho) ** (size / (1 + alpha))
        for f in (-1e4, 0.0, 40.0, limit - 1e-3, limit + 1, limit + 100, 1e4):
            logits = torch.full(shape, -1e4)
            logits[:, 0] = f
            logits.requires_grad_()
            value = F.penex(logits, target, alpha, rho, reduction="sum")
            (slope,) = torch.autograd.grad(value, logits)
            assert value >= rows * bound * (1 + 1e-5)
            assert slope.isfinite().all()
            assert f < limit or (slope[:, 0] > 0).all()
            ex = math.exp(size * min(f, limit)) * (1 + size * max(f - limit, 0))
            se = math.exp(min(f, limit)) * (1 + max(f - limit, 0))
            assert value.item() == pytest.approx(rows * (rho * se - ex), rel=1e-3, abs=1e-6)
    with pytest.raises(ValueError, match="rho must be at least"):
        F.penex(logits, target, alpha, 0.99 * lowest)


def test_a_bad_reduction_is_named() -> None:
    target = torch.tensor([0])
    with pytest.raises(ValueError, match="reduction must be one of mean, sum, none; got 'avg'"):
        F.penex(torch.zeros(1, 2), target, 0.1, 1.0, reduction="avg")


@pytest.mark.parametrize("alpha", [-0.3, 0.5])
def test_a_logit_of_no_weight_may_be_of_any_size(alpha: float) -> None:
    """However large: 0 times what overflows is 0."""
    logits = torch.tensor([[0.0, 400.0, -400.0]])
    found = F.exponential(logits, torch.tensor([[1.0, 0.0, 0.0]]), alpha)
    assert found.tolist() == [1.0]
