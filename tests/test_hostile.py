"""Hostile batches: infinities, NaN, huge numbers, masks, nothing at all."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import penex
from penex import _reference
from penex import functional as F

FP16_MAX = torch.finfo(torch.float16).max
MASKS = [-math.inf, torch.finfo(torch.float32).min, torch.finfo(torch.float16).min, -1e9]
hostile = st.sampled_from([math.inf, -math.inf, math.nan, 1e30, -1e30, FP16_MAX, -FP16_MAX])
scales = st.sampled_from(["paper", "cross_entropy"])
signs = st.sampled_from([0.1, -0.05, -0.3, -0.7, -0.95])
ordinary = st.floats(-20, 20, width=16)
dtypes = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])
GOOD = (torch.tensor([[1.0, 0.0, -1.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 2]))


def tables(cell: st.SearchStrategy[float]) -> st.SearchStrategy[Tensor]:
    row = st.lists(cell, min_size=3, max_size=3)
    return st.lists(row, min_size=1, max_size=5).map(torch.tensor)


def seasoned(alpha: float = 0.1, scale: str = "paper") -> penex.PENEX:
    """A loss that has seen a good batch."""
    loss = penex.PENEX(alpha, scale=scale)
    loss(*GOOD)
    return loss


@settings(max_examples=400)
@given(
    logits=tables(hostile | ordinary),
    dtype=dtypes,
    fresh=st.booleans(),
    soft=st.booleans(),
    alpha=signs,
    scale=scales,
)
def test_rho_survives_any_batch(
    logits: Tensor, dtype: torch.dtype, fresh: bool, soft: bool, alpha: float, scale: str
) -> None:
    loss = penex.PENEX(alpha, scale=scale) if fresh else seasoned(alpha, scale)
    logits = logits.to(dtype)
    target = torch.zeros(len(logits)).long()
    labels = torch.nn.functional.one_hot(target, 3).to(dtype) if soft else target
    before = loss.rho.item()
    value = loss(logits, labels)
    after = loss.rho.item()

    legal = not (logits.isnan() | (logits == math.inf)).any()
    if alpha > 0:  # below 0 the loss at -inf is its limit, and as good as any
        legal = legal and bool(logits[:, 0].isfinite().all())
    if not legal:
        assert not value.isfinite(), "a broken logit must show in the loss"
        assert after == before, "an unusable batch leaves rho alone"
    elif logits.max() < -80 and alpha < 0:
        assert value.isfinite()  # all may underflow, so that rho has nothing to follow
        assert after == before or 1e-6 * (1 - 1e-6) <= after <= 100
    elif logits[logits.isfinite()].abs().max() <= 1e4:
        assert value.isfinite()
        assert 1e-6 * (1 - 1e-6) <= after <= 100
    assert loss(*GOOD).isfinite()
    assert F.lowest_penalty(alpha) * (1 - 1e-6) < loss.rho.item() <= 100


@settings(max_examples=300)
@given(
    logits=tables(st.floats(-1e4, 1e4, width=16) | st.sampled_from([1e4, -1e4])),
    dtype=dtypes,
    alpha=st.floats(0.01, 1.0) | st.floats(-0.99, -0.01),
    reduction=st.sampled_from(["mean", "sum", "none"]),
    smoothing=st.sampled_from([0.0, 0.1]),
    rho=st.none() | st.sampled_from([1e-6, 100.0]),
    scale=scales,
)
def test_finite_up_to_ten_thousand(
    logits: Tensor,
    dtype: torch.dtype,
    alpha: float,
    reduction: str,
    smoothing: float,
    rho: float | None,
    scale: str,
) -> None:
    if rho is not None:
        rho = max(rho, F.lowest_penalty(alpha))
    loss = penex.PENEX(alpha, rho=rho, reduction=reduction, label_smoothing=smoothing, scale=scale)
    leaf = logits.to(dtype).float().requires_grad_()
    value = loss(leaf, torch.zeros(len(logits)).long())
    value.sum().backward()
    assert value.isfinite().all()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    assert loss.rho.isfinite()


@pytest.mark.parametrize("size", [90.0, 1e3, 1e4, -1e4])
@pytest.mark.parametrize("weighted", [False, True])
def test_wide_targets_leave_the_promise(size: float, weighted: bool) -> None:
    """Finite, and downhill, for float32 logits with probabilities as numpy makes them."""
    weight = torch.ones(3, dtype=torch.float64) if weighted else None
    logits = torch.tensor([[size, 0.0, 1.0], [0.0, 0.0, 0.0]], requires_grad=True)
    target = torch.tensor([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]], dtype=torch.float64)
    value = penex.PENEX(0.5, rho=1.0, weight=weight)(logits, target)
    value.backward()
    assert value.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[0, 0].sign() == math.copysign(1, size)


def test_a_large_batch_of_ten_thousands_is_finite() -> None:
    logits = torch.full((4096, 1000), 1e4, requires_grad=True)
    value = penex.PENEX(1.0, rho=100.0, reduction="sum")(logits, torch.zeros(4096).long())
    value.backward()
    assert value.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_the_fp16_logit_of_twelve() -> None:
    logits, target = torch.tensor([[12.0, 0.0]]), torch.tensor([0])
    half, single = penex.PENEX(0.1), penex.PENEX(0.1)
    assert half(logits.half(), target).item() == single(logits, target).item()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [0.5, -0.5])
def test_a_masked_class_is_as_good_as_absent(
    alpha: float, mask: float, soft: bool, weighted: bool
) -> None:
    """-inf, or any number that low, at a class that is not a target takes the class out."""
    full = torch.tensor([[1.0, mask, -1.0], [0.0, mask, 1.0]], requires_grad=True)
    slim = torch.tensor([[1.0, -1.0], [0.0, 1.0]], requires_grad=True)
    full_y: Tensor = torch.tensor([0, 2])
    slim_y: Tensor = torch.tensor([0, 1])
    if soft:
        full_y = torch.tensor([[0.7, 0.0, 0.3], [0.2, 0.0, 0.8]], requires_grad=True)
        slim_y = torch.tensor([[0.7, 0.3], [0.2, 0.8]])
    weight = torch.tensor([1.0, 5.0, 2.0]) if weighted else None
    one = penex.PENEX(alpha, weight=weight)
    two = penex.PENEX(alpha, weight=None if weight is None else weight[[0, 2]])
    value, expected = one(full, full_y), two(slim, slim_y)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(one.rho, two.rho)
    assert full.grad is not None
    torch.testing.assert_close(full.grad[:, [0, 2]], slim.grad)
    assert (full.grad[:, 1] == 0).all()
    if soft:
        assert full_y.grad is not None
        assert full_y.grad.isfinite().all()


def test_a_masked_class_may_be_weighted_zero_under_smoothing() -> None:
    logits = torch.tensor([[1.0, -math.inf, -1.0]], requires_grad=True)
    loss = penex.PENEX(0.1, label_smoothing=0.1, weight=torch.tensor([1.0, 0.0, 1.0]))
    value = loss(logits, torch.tensor([0]))
    value.backward()
    assert value.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@settings(max_examples=200)
@given(logits=tables(hostile | ordinary), smoothing=st.sampled_from([0.0, 0.1]), alpha=signs)
def test_what_stands_at_an_ignored_position_does_not_matter(
    logits: Tensor, smoothing: float, alpha: float
) -> None:
    good, labels = GOOD
    both = torch.cat([logits, good]).requires_grad_()
    target = torch.cat([torch.full((len(logits),), -100), labels])
    one = penex.PENEX(alpha, label_smoothing=smoothing)
    two = penex.PENEX(alpha, label_smoothing=smoothing)
    value = one(both, target)
    value.backward()
    assert value.item() == pytest.approx(two(good, labels).item())
    assert one.rho.item() == pytest.approx(two.rho.item())
    assert both.grad is not None
    assert (both.grad[: len(logits)] == 0).all()
    assert both.grad.isfinite().all()


@settings(max_examples=100)
@given(
    logits=tables(hostile | ordinary),
    reduction=st.sampled_from(["mean", "sum", "none"]),
    fresh=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1]),
    alpha=signs,
    scale=scales,
)
def test_all_ignored_is_zero_with_zero_gradient(
    logits: Tensor, reduction: str, fresh: bool, smoothing: float, alpha: float, scale: str
) -> None:
    loss = penex.PENEX(alpha, reduction=reduction, label_smoothing=smoothing, scale=scale)
    if not fresh:
        loss(*GOOD)
    before = loss.rho.item()
    logits.requires_grad_()
    value = loss(logits, torch.full((len(logits),), -100))
    value.sum().backward()
    assert (value == 0).all()
    assert logits.grad is not None
    assert (logits.grad == 0).all()
    assert loss.rho.item() == before


@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0), (0, 3, 2, 2)])
@pytest.mark.parametrize("soft", [False, True])
def test_an_empty_batch_is_zero(shape: tuple[int, ...], soft: bool) -> None:
    loss = seasoned()
    before = loss.rho.item()
    logits = torch.zeros(shape, requires_grad=True)
    target = torch.zeros(shape) if soft else torch.zeros(shape[:1] + shape[2:]).long()
    value = loss(logits, target)
    value.backward()
    assert value.item() == 0
    assert loss.rho.item() == before


def test_probability_rows_of_zeros_leave_nothing() -> None:
    loss = seasoned()
    before = loss.rho.item()
    assert loss(torch.randn(2, 3), torch.zeros(2, 3)).item() == 0
    assert loss.rho.item() == before


@pytest.mark.parametrize("accumulate", [1, 2])
def test_targets_without_weight_leave_something_under_smoothing(accumulate: int) -> None:
    """D is 0 but the other classes weigh: rho is alpha sum ex / sum se, and not NaN for good."""
    weight = torch.tensor([0.0, 1.0])
    loss = penex.PENEX(0.1, weight=weight, label_smoothing=0.1, accumulate=accumulate)
    for _ in range(accumulate):
        loss(torch.zeros(4, 2), torch.zeros(4).long())
    assert loss.rho.item() == pytest.approx(0.1 / 2)


def test_a_row_without_weight_may_hold_anything() -> None:
    logits = torch.tensor([[-math.inf, math.nan], [0.0, 0.0]], requires_grad=True)
    loss = penex.PENEX(0.1, weight=torch.tensor([0.0, 1.0]), scale="paper")
    value = loss(logits, torch.tensor([0, 1]))
    value.backward()
    assert value.item() == pytest.approx(1.1)
    soft = penex.PENEX(0.1, scale="paper")(logits, torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    soft.backward()
    assert soft.item() == pytest.approx(1.1 / 2)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert (logits.grad[0] == 0).all()


def test_no_classes_and_no_targets_is_nothing() -> None:
    for smoothing in (0.0, 0.1):
        loss = penex.PENEX(0.1, label_smoothing=smoothing)
        assert loss(torch.zeros(2, 0), torch.full((2,), -100)) == 0
        assert loss(torch.zeros(2, 0), torch.zeros(2, 0)) == 0
        with pytest.raises(IndexError, match="Target 3 is out of bounds: with 0 classes"):
            loss(torch.zeros(2, 0), torch.tensor([3, -100]))


def test_underflow_is_not_nothing() -> None:
    """At logits of -200, SE is 0 in float32 and the estimate runs into the upper bound."""
    loss = penex.PENEX(0.1)
    assert loss(torch.full((2, 3), -200.0), torch.tensor([0, 1])).isfinite()
    assert loss.rho.item() == 100


@pytest.mark.parametrize("scale", ["paper", "cross_entropy"])
def test_a_negative_alpha_may_underflow_to_nothing(scale: str) -> None:
    """At logits of -200 both terms are 0 in float32, and so are gradient and step of rho."""
    loss = seasoned(-0.9, scale)
    before = loss.rho.item()
    logits = torch.full((2, 3), -200.0, requires_grad=True)
    value = loss(logits, torch.tensor([0, 1]))
    value.backward()
    assert value == 0 if scale == "paper" else value.isfinite()
    assert logits.grad is not None
    assert (logits.grad == 0).all()
    assert loss.rho.item() == before


def test_a_masked_target_is_the_limit_of_a_negative_alpha() -> None:
    target = torch.tensor([0, 2])
    values = []
    for low in (-60.0, -math.inf):
        logits = torch.tensor([[low, 0.0, 1.0], [0.0, 2.0, 1.0]], requires_grad=True)
        value = penex.PENEX(-0.5, rho=0.1)(logits, target)
        value.backward()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()
        values.append(value.item())
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def test_ex_and_se_alone_are_never_saturated() -> None:
    logits = torch.tensor([[1000.0, -1000.0]])
    assert F.sum_exp(logits).isinf().all()
    assert F.exponential(logits, torch.tensor([1]), 1.0).isinf().all()


def test_the_papers_listing_breaks_where_the_readme_says() -> None:
    empty, nothing = torch.zeros(0, 3), torch.zeros(0).long()
    for logits, target in ((empty, nothing), (torch.full((1, 3), math.nan), torch.tensor([0]))):
        listing = _reference.Listing()
        listing(*GOOD)
        listing(logits, target)
        assert listing(*GOOD).isnan()
    twelve = torch.tensor([[12.0, 0.0]])
    assert not _reference.Listing()(twelve.half(), torch.tensor([1])).isfinite()
    assert not _reference.Listing()(torch.tensor([[1e4, 0.0]]), torch.tensor([1])).isfinite()
