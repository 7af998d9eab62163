"""The paper's theorems as properties, and Proposition A.1 by solving its constrained problem."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from penex import functional as F
from penex import theory
from penex.boosting import SAMMEClassifier

alphas = st.floats(0.01, 5.0)
rhos = st.floats(1e-6, 100.0)
gammas = st.floats(-5.0, 10.0)
scales = st.sampled_from([0.1, 1.0, 10.0, 200.0])


def sample(seed: int, scale: float = 1.0, n: int = 40, classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, (n,), generator=generator)


def test_margins_by_hand() -> None:
    logits, target = sample(0)
    for row, y, margin in zip(logits.tolist(), target, theory.margins(logits, target), strict=True):
        rival = max(value for j, value in enumerate(row) if j != y)
        assert margin.item() == row[y] - rival
    positive = theory.margins(logits, target) > 0
    assert torch.equal(positive, logits.argmax(1) == target)


@given(seed=st.integers(0, 10**6), scale=scales, alpha=alphas, rho=rhos, gamma=gammas)
def test_thm_2_1_the_tail_is_below_the_sharp_form_below_the_bound(
    seed: int, scale: float, alpha: float, rho: float, gamma: float
) -> None:
    logits, target = sample(seed, scale)
    tail = (theory.margins(logits, target) <= gamma).double().mean()
    sharp = theory.sharp_margin_tail_bound(logits, target, gamma, alpha)
    bound = theory.margin_tail_bound(logits, target, gamma, alpha, rho)
    assert tail <= sharp * (1 + 1e-9)
    assert sharp <= bound * (1 + 1e-9)


@given(seed=st.integers(0, 10**6), alpha=alphas, rho=rhos, gamma=gammas)
def test_thm_2_1_the_bound_is_the_loss_rescaled(
    seed: int, alpha: float, rho: float, gamma: float
) -> None:
    logits, target = sample(seed)
    b = alpha / (1 + alpha)
    expected = math.exp(b * gamma) * rho**-b * F.penex(logits, target, alpha, rho)
    torch.testing.assert_close(
        theory.margin_tail_bound(logits, target, gamma, alpha, rho), expected
    )


@given(seed=st.integers(0, 10**6), alpha=alphas, factor=st.floats(0.01, 100))
def test_prop_2_2_optimal_rho_is_optimal(seed: int, alpha: float, factor: float) -> None:
    logits, target = sample(seed)
    best = theory.optimal_rho(logits, target, alpha).item()
    ex, se = F.exponential(logits, target, alpha).mean(), F.sum_exp(logits).mean()
    assert best == pytest.approx(F.optimal_penalty(ex, se, alpha).item())
    at_best = theory.margin_tail_bound(logits, target, 1.0, alpha, best)
    elsewhere = theory.margin_tail_bound(logits, target, 1.0, alpha, best * factor)
    assert at_best <= elsewhere * (1 + 1e-12)
    b = alpha / (1 + alpha)
    sharp = theory.sharp_margin_tail_bound(logits, target, 1.0, alpha)
    torch.testing.assert_close(sharp, at_best * b**b * (1 - b) ** (1 - b))


@given(seed=st.integers(0, 10**6), scale=scales, alpha=alphas, rho=rhos, gamma=st.floats(0.0, 10.0))
def test_thm_2_1_the_bound_is_never_below_one(
    seed: int, scale: float, alpha: float, rho: float, gamma: float
) -> None:
    """The own logit is in SE: by Hölder EX^(1-b) SE^b >= E[(SE / e^(f_y))^b] >= 1.

    True as the theorem is, for gamma > 0 it never bounds the share by less than 1, not even where
    no margin is small. What falls with the loss is its distance from e^(b gamma).
    """
    logits, target = sample(seed, scale)
    b = alpha / (1 + alpha)
    least = math.exp(b * gamma)
    assert theory.sharp_margin_tail_bound(logits, target, gamma, alpha) >= least * (1 - 1e-9)
    assert theory.margin_tail_bound(logits, target, gamma, alpha, rho) >= least * (1 - 1e-9)
    good = torch.zeros(6, 3, dtype=torch.float64)
    good[:, 0] = 30.0  # every margin is 30
    near = theory.sharp_margin_tail_bound(good, torch.zeros(6).long(), gamma, alpha).item()
    assert near == pytest.approx(least, rel=1e-9)


@given(seed=st.integers(0, 10**6), alpha=alphas, rho=rhos)
def test_prop_2_1_the_minimiser_is_unique(seed: int, alpha: float, rho: float) -> None:
    """The conditional risk is strictly convex: above its tangent plane at the known minimiser."""
    other, _ = sample(seed, 3.0)
    p = other.softmax(1)
    least = (p.log() + math.log(alpha / rho)) / (1 + alpha)

    def risk(f: Tensor) -> Tensor:
        return (p * torch.exp(-alpha * f)).sum(1) + rho * f.exp().sum(1)

    best = risk(least)
    torch.testing.assert_close(F.penex(least, p, alpha, rho), best.mean())
    step = torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)).double()
    for size in (1e-2, 1.0):
        assert (risk(least + size * step) > best).all()
        assert (risk(least - size * step) > best).all()


@given(seed=st.integers(0, 10**6), alpha=alphas, rho=rhos)
def test_cor_2_1_fisher_consistency(seed: int, alpha: float, rho: float) -> None:
    """What the minimiser names is what is most probable; found by descent, not by the formula."""
    p = sample(seed, 2.0, n=8)[0].softmax(1)
    f = torch.zeros_like(p)
    for _ in range(400):  # Newton's method; the Hessian is diagonal and positive
        slope = rho * f.exp() - alpha * p * torch.exp(-alpha * f)
        curvature = rho * f.exp() + alpha**2 * p * torch.exp(-alpha * f)
        f = f - (slope / curvature).clamp(-1, 1)
    torch.testing.assert_close(F.probabilities(f, alpha), p)
    assert torch.equal(f.argmax(1), p.argmax(1))


@given(seed=st.integers(0, 10**6), alpha=alphas)
def test_prop_2_2_the_bound_falls_to_rho_and_rises_after(seed: int, alpha: float) -> None:
    """One minimum, and convex in log rho; the paper's "convex in rho" is not so far out."""
    logits, target = sample(seed)
    best = theory.optimal_rho(logits, target, alpha).item()
    grid = best * np.geomspace(1e-3, 1e3, 61)
    bound = [theory.margin_tail_bound(logits, target, 1.0, alpha, rho).item() for rho in grid]
    assert int(np.argmin(bound)) == 30
    assert (np.diff(bound)[:30] < 0).all()
    assert (np.diff(bound)[30:] > 0).all()
    assert (np.diff(bound, 2) > 0).all()  # evenly spaced in log rho
    far = best * np.linspace(1e4, 2e4, 5)
    late = [theory.margin_tail_bound(logits, target, 1.0, alpha, rho).item() for rho in far]
    assert (np.diff(late, 2) < 0).all()  # it grows as rho^(1 - b)


@given(seed=st.integers(0, 10**6), alpha=alphas, rademacher=st.floats(1e-3, 1.0))
def test_cor_2_2_a_smaller_loss_moves_gamma_up_and_the_capacity_down(
    seed: int, alpha: float, rademacher: float
) -> None:
    """As the paper reads its bound: worse and better logits, each at its own rho*."""
    logits, target = sample(seed)
    better = logits + 2.0 * torch.nn.functional.one_hot(target, 4)
    found = []
    for f in (logits, better):
        rho = theory.optimal_rho(f, target, alpha).item()
        bound = theory.margin_tail_bound(f, target, 0.0, alpha, rho).item()
        gamma = theory.optimal_gamma(f, target, alpha, rho, rademacher=rademacher).item()
        found.append((bound, gamma))
    (worse, small), (low, large) = found
    assert low < worse
    assert small < large
    assert 4 * 4 / large * rademacher < 4 * 4 / small * rademacher


def test_sharp_form_ignores_a_common_shift() -> None:
    logits, target = sample(1)
    sharp = theory.sharp_margin_tail_bound(logits, target, 1.0, 0.3)
    torch.testing.assert_close(
        theory.sharp_margin_tail_bound(logits + 7.0, target, 1.0, 0.3), sharp
    )


def test_bounds_of_huge_logits_are_numbers() -> None:
    logits = torch.tensor([[400.0, -400.0]])
    assert theory.margin_tail_bound(logits, torch.tensor([1]), 1.0, 1.0, 1.0).isfinite()


@given(
    seed=st.integers(0, 10**6), alpha=alphas, rho=rhos, rademacher=st.floats(1e-4, 10.0),
    factor=st.floats(0.2, 5.0),
)  # fmt: skip
def test_cor_2_2_optimal_gamma_is_optimal(
    seed: int, alpha: float, rho: float, rademacher: float, factor: float
) -> None:
    logits, target = sample(seed)
    best = theory.optimal_gamma(logits, target, alpha, rho, rademacher=rademacher).item()

    def bound(gamma: float) -> float:
        return theory.generalization_bound(
            logits, target, gamma, alpha, rho, rademacher=rademacher, delta=0.05
        ).item()

    assert best > 0
    assert bound(best) <= bound(best * factor) * (1 + 1e-9)


def test_cor_2_2_the_generalization_bound_is_the_sum_of_its_parts() -> None:
    logits, target = sample(2)
    bound = theory.generalization_bound(
        logits, target, 0.5, 0.2, 0.1, rademacher=0.03, delta=0.1
    ).item()
    tail = theory.margin_tail_bound(logits, target, 0.5, 0.2, 0.1).item()
    expected = tail + 4 * 4 / 0.5 * 0.03 + math.sqrt(math.log(10) / (2 * 40))
    assert bound == pytest.approx(expected)


@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.3])
def test_thm_c_1_adaboosts_own_bound_holds_for_its_margins(gamma: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5))
    y = (x.sum(1) + rng.normal(size=300) > 0).astype(int)
    model = SAMMEClassifier(n_estimators=30, random_state=0).fit(x, y)
    # Two classes: the decision function is the difference of the columns, twice the margin.
    margins = np.where(y == 1, 1, -1) * model.decision_function(x) / 2
    assert abs(margins).max() <= 1 + 1e-12
    errors = model.estimator_errors_[: len(model.estimators_)]
    assert (margins <= gamma).mean() <= theory.adaboost_margin_bound(errors, gamma)


def test_bad_input_gets_a_sentence() -> None:
    logits, target = sample(3)
    with pytest.raises(ValueError, match="two classes; got"):
        theory.margins(logits[:, :1], target)
    with pytest.raises(ValueError, match=r"indices of shape \(40,\); got \(3,\)"):
        theory.margins(logits, target[:3])
    with pytest.raises(ValueError, match="alpha must be a finite number above 0; got 0"):
        theory.sharp_margin_tail_bound(logits, target, 1.0, 0.0)
    for bound in (theory.sharp_margin_tail_bound, theory.optimal_rho):
        arguments = (1.0, -0.5) if bound is theory.sharp_margin_tail_bound else (-0.5,)
        with pytest.raises(ValueError, match=r"hold for alpha above 0 only.*got alpha=-0\.5"):
            bound(logits, target, *arguments)
    with pytest.raises(ValueError, match="above 0 only"):
        theory.optimal_gamma(logits, target, -1.0, 0.1, rademacher=0.1)
    with pytest.raises(ValueError, match="rho must be"):
        theory.margin_tail_bound(logits, target, 1.0, 0.1, -1.0)
    for options in ({"delta": 1.5, "rademacher": 0.1}, {"delta": 0.1, "rademacher": -1.0}):
        with pytest.raises(ValueError, match="must be"):
            theory.generalization_bound(logits, target, 1.0, 0.1, 0.1, **options)
    with pytest.raises(ValueError, match="gamma must be"):
        theory.generalization_bound(logits, target, 0.0, 0.1, 0.1, delta=0.1, rademacher=0.1)
    with pytest.raises(ValueError, match=r"below 1/2; got 0\.7"):
        theory.adaboost_margin_bound([0.1, 0.7], 0.0)
    with pytest.raises(IndexError, match=r"Target -100 is out of bounds.*Leave ignored examples"):
        theory.margins(logits, torch.full_like(target, -100))
    with pytest.raises(ValueError, match=r"int64 class indices; got torch\.float32"):
        theory.margins(logits, target.float())


def test_adaboosts_bound_at_its_edges() -> None:
    assert theory.adaboost_margin_bound([], 0.5) == 1
    assert theory.adaboost_margin_bound([0.3, 0.0], 0.5) == 0
    assert theory.adaboost_margin_bound([1e-10] * 500, 5.0) == math.inf
    assert theory.adaboost_margin_bound([0.25], 0.0) == pytest.approx(2 * math.sqrt(0.25 * 0.75))


def test_optimal_gamma_of_huge_logits_is_a_number() -> None:
    for size in (800.0, -2000.0):
        logits = torch.zeros(3, 4)
        logits[:, 0] = size
        target = torch.zeros(3).long()
        assert theory.optimal_gamma(logits, target, 0.1, 0.1, rademacher=0.1).isfinite()


@pytest.mark.parametrize("positive", [False, True])
def test_prop_a_1_a_small_gradient_step_is_a_weak_learner(positive: bool) -> None:
    """Proposition A.1 for a linear model, with the multiplier that makes it true.

    The unit step that lowers EX most without raising SE tends to -(grad EX + rho_bar grad SE),
    rho_bar = max(0, -<grad EX, grad SE> / |grad SE|^2). The multiplier is positive where descent
    on EX raises SE (any good model) and 0 where it lowers SE by itself (one that is all wrong).
    """
    alpha, eta = 0.5, 1e-4
    torch.manual_seed(0)
    x = torch.randn(30, 2, dtype=torch.float64)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    means = torch.stack([x[y == k].mean(0) for k in range(3)], dim=1)
    theta = (means if positive else -2 * means).flatten()

    def logits(step: Tensor) -> Tensor:
        return x @ (theta + step).view(2, 3)

    def gradients(step: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        step = step.clone().requires_grad_()
        ex = F.exponential(logits(step), y, alpha).mean()
        se = F.sum_exp(logits(step)).mean()
        (grad_ex,) = torch.autograd.grad(ex, step)
        (grad_se,) = torch.autograd.grad(se, step)
        return ex.detach(), se.detach(), grad_ex, grad_se

    _, se_start, grad_ex, grad_se = gradients(torch.zeros(6, dtype=torch.float64))
    multiplier = max(0.0, -(grad_ex @ grad_se / (grad_se @ grad_se)).item())
    assert (multiplier > 0) == positive, "the two cases were meant to be covered"
    predicted = -(grad_ex + multiplier * grad_se)
    predicted = predicted / predicted.norm()

    def parts(step: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return gradients(eta * torch.tensor(step))

    start = torch.randn(6, dtype=torch.float64)
    found = minimize(
        # EX and SE change by about eta: dividing by eta gives the solver numbers of size one.
        fun=lambda d: parts(d)[0].item() / eta,
        jac=lambda d: parts(d)[2].numpy(),
        x0=(start / start.norm()).numpy(),
        constraints=[
            {
                "type": "ineq",
                "fun": lambda d: (se_start - parts(d)[1]).item() / eta,
                "jac": lambda d: -parts(d)[3].numpy(),
            },
            {"type": "eq", "fun": lambda d: d @ d - 1, "jac": lambda d: 2 * d},
        ],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert found.success, found.message
    torch.testing.assert_close(torch.tensor(found.x), predicted, rtol=0, atol=5e-3)
