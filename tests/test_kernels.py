"""The fast path against its slow twin, the plain formula: values, gradients, state, and when."""

import copy
import math
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

import penex
from penex import functional as F
from penex.kernels import eager

SHAPES = [(1, 2), (1, 1), (64, 10), (7, 1000), (3, 5, 4), (2, 3, 2, 2)]


def batch(seed: int, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = (2 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
    return logits, torch.randint(shape[1], shape[:1] + shape[2:], generator=generator)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the fast path took each batch, in order."""
    seen: list[bool] = []
    real = eager.sums

    def watched(*arguments: Any) -> eager.Sums | None:
        found = real(*arguments)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(eager, "sums", watched)
    return seen


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order": "listing", "reduction": "sum", "ema": 0.5},
        {"rho": 0.3},
        {"rho_min": 0.02, "rho_max": 0.03},
        {"weight": True},
        {"weight": True, "reduction": "sum", "ignored": True},
        {"ignored": True},
        {"alpha": -0.05},
        {"alpha": -0.95, "weight": True, "ignored": True},
        {"alpha": -0.3, "scale": "cross_entropy", "weight": True},
        {"scale": "cross_entropy", "reduction": "sum", "ignored": True},
    ],
)
def test_equals_the_plain_formula(
    shape: tuple[int, ...], dtype: torch.dtype, options: dict[str, Any], taken: list[bool]
) -> None:
    options = dict(options)
    ignored = options.pop("ignored", False)
    if options.pop("weight", False):
        options["weight"] = torch.linspace(0.25, 2, shape[1]).to(dtype)
    alpha = options.pop("alpha", 0.1)
    options.setdefault("scale", "paper")
    fast, slow = penex.PENEX(alpha, **options), penex.PENEX(alpha, impl="reference", **options)
    exact = 1e-12 if dtype == torch.float64 else 2e-6
    for seed in range(20):
        logits, target = batch(seed, shape, dtype)
        if ignored and target.numel() > 1:
            target.view(-1)[:: seed + 2] = -100
        ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        value, expected = fast(ours, target), slow(theirs, target)
        (3 * value).backward()
        (3 * expected).backward()
        assert value.dtype == expected.dtype
        assert value.shape == ()
        # With a sign the two terms of the value cancel as well: rounding is to their size.
        size = expected.abs().item()
        if alpha < 0:
            size += 4 * (fast.rho * F.sum_exp(logits).mean()).item()
        if options["scale"] == "cross_entropy":
            size = 1 / abs(alpha) if options.get("reduction") != "sum" else target.numel() / alpha
        torch.testing.assert_close(value, expected, rtol=0, atol=exact * size)
        assert fast.rho.dtype == slow.rho.dtype
        assert fast.rho.item() == pytest.approx(slow.rho.item(), rel=exact)
        assert ours.grad is not None
        assert theirs.grad is not None
        rounding = max(exact, torch.finfo(dtype).eps)
        # With one class the two terms of the gradient cancel.
        scale = max(theirs.grad.abs().max().item(), size)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=rounding, atol=exact * scale)
    assert taken == [True] * 20


def test_eval_uses_and_leaves_the_state(taken: list[bool]) -> None:
    fast, slow = penex.PENEX(0.1).eval(), penex.PENEX(0.1, impl="reference").eval()
    for step in range(2):
        logits, target = batch(step, (16, 4), torch.float64)
        before = copy.deepcopy(fast.state_dict())
        assert fast(logits, target).item() == pytest.approx(slow(logits, target).item(), rel=1e-12)
        assert torch.equal(fast.rho, before["rho"])
        assert fast.rho.dtype == before["rho"].dtype
        fast.train()(logits.float(), target)
        slow.train()(logits.float(), target)
        fast.eval()
        slow.eval()
    assert taken == [True] * 4


@pytest.mark.parametrize("alpha", [0.3, -0.3])
def test_backward_twice_and_of_itself(alpha: float, taken: list[bool]) -> None:
    loss = penex.PENEX(alpha, scale="paper").double()
    logits, target = batch(0, (4, 3), torch.float64)
    loss(logits, target)
    loss.eval()
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda f: loss(f, target), logits)
    assert torch.autograd.gradgradcheck(lambda f: loss(f, target), logits)
    value = loss(logits, target)
    (first,) = torch.autograd.grad(value, logits, retain_graph=True)
    (second,) = torch.autograd.grad(value, logits)
    assert torch.equal(first, second)
    assert all(taken)


def test_a_change_of_the_target_before_the_backward_pass_is_an_error() -> None:
    """Never a wrong gradient: autograd says so, as under cross-entropy."""
    leaf, target = batch(3, (4, 3), torch.float64)
    value = penex.PENEX(0.1)(1 * leaf.requires_grad_(), target)
    target.mul_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


@pytest.mark.parametrize("derived", [False, True])
def test_logits_that_were_changed_are_never_read_again(derived: bool) -> None:
    """The first pass does without them; a second one, or a derivative, is an error, never wrong."""
    leaf, target = batch(3, (4, 3), torch.float64)
    leaf.requires_grad_()
    logits = 1 * leaf
    value = penex.PENEX(0.1)(logits, target)
    (expected,) = torch.autograd.grad(penex.PENEX(0.1)(1 * leaf, target), leaf)
    with torch.no_grad():
        logits.mul_(0)
    if not derived:
        (found,) = torch.autograd.grad(value, leaf, retain_graph=True)
        assert torch.equal(found, expected)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(value, leaf, create_graph=derived)


def test_a_packed_target_may_be_changed(taken: list[bool]) -> None:
    """Whoever has autograd keep copies of what it saves gets the right gradient from them."""
    leaf, target = batch(3, (4, 3), torch.float64)
    leaf.requires_grad_()
    (expected,) = torch.autograd.grad(penex.PENEX(0.1)(leaf, target), leaf)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda kept: kept):
        value = penex.PENEX(0.1)(leaf, target)
    target.zero_()
    (found,) = torch.autograd.grad(value, leaf)
    assert torch.equal(found, expected)
    assert all(taken)


@pytest.mark.parametrize("options", [{"rho_max": 1e30}, {"rho_max": math.inf}, {"rho": 1e36}])
@pytest.mark.parametrize("weight", [1.0, 1e-40])
def test_what_overflows_is_infinite_as_in_the_plain_formula(
    options: dict[str, Any], weight: float, taken: list[bool]
) -> None:
    given: dict[str, Any] = {**options, "weight": torch.full((3,), weight), "scale": "paper"}
    fast, slow = penex.PENEX(0.1, **given), penex.PENEX(0.1, impl="reference", **given)
    target = torch.tensor([0, 1])
    first = torch.tensor([[-85.0, -85.0, -85.0], [-85.0, -85.0, -85.0]])
    for logits in (first, torch.full((2, 3), 10.0)):
        ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        value, expected = fast(ours, target), slow(theirs, target)
        value.backward()
        expected.backward()
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=0)
        torch.testing.assert_close(fast.rho, slow.rho, rtol=1e-4, atol=0)
        assert fast.rho.isfinite()
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.equal(ours.grad.isfinite(), theirs.grad.isfinite())


def test_nothing_is_kept_after_the_backward_pass() -> None:
    """Whoever adds up losses keeps no logits alive, and a second pass without them is an error."""
    leaf, target = batch(3, (4, 3), torch.float64)
    leaf.requires_grad_()
    loss, total, kept = penex.PENEX(0.1), torch.zeros(()), []
    for _ in range(3):
        logits = 1 * leaf
        kept.append(weakref.ref(logits))
        value = loss(logits, target)
        value.backward()
        total = total + value
    del logits, value
    assert [reference() for reference in kept] == [None] * 3
    value = loss(1 * leaf, target)
    value.backward()
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()


@pytest.mark.parametrize("weight", [None, torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)])
def test_gradcheck_with_the_state_of_one_batch(weight: Tensor | None) -> None:
    """torch.autograd.gradcheck also asks for the same bits from a second backward pass."""
    leaf, target = batch(3, (4, 3), torch.float64)
    leaf.requires_grad_()
    loss = penex.PENEX(0.3, rho=0.3, weight=weight, scale="paper")
    assert torch.autograd.gradcheck(lambda f: loss(f, target), leaf)
    assert torch.autograd.gradgradcheck(lambda f: loss(f, target).square(), leaf)


def test_nothing_of_another_mode_stays_behind() -> None:
    """A default device, a transform or a trace must not reach the constants that are kept."""
    logits, target = batch(3, (4, 3), torch.float32)
    expected = penex.PENEX(0.123, rho=0.3, impl="reference")(logits, target)
    loss = penex.PENEX(0.123, rho=0.3)
    with torch.device("meta"):
        torch.testing.assert_close(loss(logits, target), expected)
    functionalized: Any = torch.func.functionalize(lambda: loss(logits, target))
    torch.testing.assert_close(functionalized(), expected)
    torch.testing.assert_close(loss(logits, target), expected)


def test_a_trace_follows_its_inputs() -> None:
    logits, target = batch(3, (4, 3), torch.float32)
    loss = penex.PENEX(0.1, rho=0.3, scale="paper").eval()
    expected = loss(2 * logits, target)
    from torch.fx.experimental.proxy_tensor import make_fx

    traced = make_fx(loss)(logits, target)
    torch.testing.assert_close(traced(2 * logits, target), expected)


def test_many_gradients_at_once() -> None:
    logits, target = batch(3, (4, 3), torch.float64)
    leaf = logits.requires_grad_()
    value = penex.PENEX(0.1, rho=0.3)(leaf, target)
    (one,) = torch.autograd.grad(value, leaf, retain_graph=True)
    factors = torch.tensor([1.0, -2.0], dtype=torch.float64)
    (both,) = torch.autograd.grad(value, leaf, factors, is_grads_batched=True)
    torch.testing.assert_close(both, factors.view(2, 1, 1) * one)


@pytest.mark.parametrize("large", [3e38, math.inf])
def test_weights_that_overflow_leave_rho_alone(large: float) -> None:
    logits, target = batch(3, (6, 3), torch.float32)
    loss = penex.PENEX(0.1, weight=torch.tensor([1.0, 1.0, large]))
    target[0], target[1] = 2, 2
    loss(logits, target)
    assert loss.rho.item() == 0


def test_a_target_without_a_batch_is_torchs_error() -> None:
    logits = torch.zeros(1, 4)
    with pytest.raises(ValueError):  # noqa: PT011  (torch's sentence, not ours)
        torch.nn.CrossEntropyLoss()(logits, torch.tensor(1))
    with pytest.raises(ValueError, match="target"):
        penex.PENEX()(logits, torch.tensor(1))


def test_a_view_of_a_larger_tensor_is_read_right(taken: list[bool]) -> None:
    whole = torch.randn(10, 20, dtype=torch.float64)
    target = torch.randint(5, (20,))[::2]
    strided = whole.t()[::2, :5]
    fast, slow = penex.PENEX(0.1), penex.PENEX(0.1, impl="reference")
    assert fast(strided, target).item() == pytest.approx(slow(strided, target).item(), rel=1e-12)
    assert taken == [True]


def case(name: str) -> tuple[penex.PENEX, penex.PENEX, Tensor, Tensor]:
    """Batches that are not the common case, under two losses that must agree all the same."""
    logits, target = batch(1, (6, 4), torch.float32)
    options: dict[str, Any] = {}
    if name == "all ignored":
        target[:] = -100
    elif name == "saturated and hidden":
        logits[0, 1] = 90.0
        target[0] = 2
        options["weight"] = torch.tensor([1.0, 1.0, 1e-30, 1.0])
    elif name == "ignored nan":
        logits[2, 0] = math.nan
        target[2] = -100
    elif name == "learned weights":
        options["weight"] = torch.rand(4, requires_grad=True)
    elif name == "no weight":
        options["weight"] = torch.zeros(4)
    elif name == "saturated":
        logits[0, 1] = 5000.0
    elif name == "far below":
        logits[0, target[0]] = -5000.0
    elif name == "nan":
        logits[0, 0] = math.nan
    elif name == "masked away":
        logits[:] = -math.inf
    elif name == "smoothed":
        options["label_smoothing"] = 0.1
    elif name == "unreduced":
        options["reduction"] = "none"
    elif name == "accumulated":
        options["accumulate"] = 2
    elif name == "ignoring a class":
        options["ignore_index"] = 1
    elif name == "probabilities":
        target = logits.softmax(1)
    elif name == "unbatched":
        logits, target = logits[0], target[0]
    elif name == "bytes":
        target = target.byte()
    elif name == "empty":
        logits, target = logits[:0], target[:0]
    return (
        penex.PENEX(0.1, **options),
        penex.PENEX(0.1, impl="reference", **options),
        logits,
        target,
    )


@pytest.mark.parametrize(
    "name",
    ["all ignored", "saturated", "saturated and hidden", "far below", "nan", "ignored nan",
     "masked away", "learned weights", "no weight", "smoothed", "unreduced", "accumulated",
     "ignoring a class", "probabilities", "unbatched", "bytes", "empty"],
)  # fmt: skip
def test_anything_else_takes_the_plain_formula(name: str, taken: list[bool]) -> None:
    fast, slow, logits, target = case(name)
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    value, expected = fast(ours, target), slow(theirs, target)
    value.sum().backward()
    expected.sum().backward()
    assert not any(taken)
    assert torch.equal(value, expected) or (value.isnan() & expected.isnan()).all()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(fast.rho, slow.rho)


def test_a_masked_class_stays_in_the_fast_path(taken: list[bool]) -> None:
    logits = torch.tensor([[1.0, -math.inf, -1.0], [0.0, -math.inf, 1.0]], requires_grad=True)
    value = penex.PENEX(0.5)(logits, torch.tensor([0, 2]))
    value.backward()
    expected = penex.PENEX(0.5, impl="reference")(logits.detach(), torch.tensor([0, 2]))
    torch.testing.assert_close(value, expected)
    assert logits.grad is not None
    assert (logits.grad[:, 1] == 0).all()
    assert logits.grad.isfinite().all()
    assert taken == [True]


def test_transforms_take_the_plain_formula(taken: list[bool]) -> None:
    loss = penex.PENEX(0.1, rho=0.2)
    logits, target = batch(2, (5, 4), torch.float64)
    expected = penex.PENEX(0.1, rho=0.2, impl="reference")(logits, target)
    gradient = torch.func.grad(lambda f: loss(f, target))(logits)
    assert gradient.shape == logits.shape
    value, tangent, *_ = torch.func.jvp(lambda f: loss(f, target), (logits,), (logits,))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(tangent, (gradient * logits).sum())
    forward_ad: Any = torch.autograd.forward_ad
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(logits, logits)
        found = forward_ad.unpack_dual(loss(dual, target)).tangent
    torch.testing.assert_close(found, tangent)
    stacked = torch.func.vmap(loss, in_dims=(0, 0))(logits.expand(3, 5, 4), target.expand(3, 5))
    torch.testing.assert_close(stacked, expected.expand(3))
    assert taken == []
