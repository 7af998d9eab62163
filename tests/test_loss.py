"""The stateful shell: rho over time, accumulation, saving and loading, dtypes, compilation."""

import copy
import io
import math
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import penex
from penex import _reference, targets
from penex import functional as F
from penex.base import _lasting

NEGATIVE = [-0.05, -0.3, -0.7, -0.95]


def batches(steps: int, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> Iterator[Any]:
    """Logits whose size drifts, so that rho moves."""
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        logits = torch.randn(16, 5, generator=generator, dtype=torch.float64)
        logits = scale * logits * (0.5 + step / steps) + step / steps
        yield logits.to(dtype), torch.randint(5, (16,), generator=generator)


@pytest.mark.parametrize(
    ("bounds", "scale"), [((1e-6, 100.0), 1.0), ((0.015, 0.02), 1.0), ((1e-5, 2.2e-5), 8.0)]
)
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("alpha", [0.1, *NEGATIVE])
def test_hundred_steps_equal_the_oracle(
    alpha: float, dtype: torch.dtype, rtol: float, bounds: tuple[float, float], scale: float
) -> None:
    low, high = bounds
    if alpha < 0:  # bounds that are crossed, and are legal
        if scale != 1:
            return
        factor = 1 if high == 100 else -alpha / 0.1
        low, high = max(factor * low, F.lowest_penalty(alpha)), factor * high
    seen = list(batches(100, dtype, scale))
    exact = [(logits.double(), target) for logits, target in seen]
    algorithm = penex.PENEX(alpha, rho_min=low, rho_max=high, scale="paper")
    oracle = _reference.algorithm(exact, alpha, rho_min=low, rho_max=high)
    listing = penex.PENEX(alpha, rho_min=low, rho_max=high, order="listing", scale="paper")
    listing_oracle = _reference.Listing(alpha, rho_min=low, rho_max=high)
    touched = set()
    atol = 0.0 if alpha > 0 else 20 * rtol  # with a sign the terms cancel
    for (logits, target), (rho, loss) in zip(seen, oracle, strict=True):
        assert algorithm(logits, target).item() == pytest.approx(loss.item(), rel=rtol, abs=atol)
        assert algorithm.rho.item() == pytest.approx(rho, rel=rtol)
        touched.add("low" if rho == low else "high" if rho == high else "between")
        expected = listing_oracle(logits.double(), target)
        found = listing(logits, target).item()
        assert found == pytest.approx(expected.item(), rel=rtol, abs=atol)
        assert listing_oracle.rho is not None
        assert listing.rho.item() == pytest.approx(listing_oracle.rho.item(), rel=rtol)
    if bounds != (1e-6, 100.0):
        assert len(touched) > 1, "the bounds were meant to be crossed"


@pytest.mark.parametrize("alpha", [0.1, *NEGATIVE])
def test_gradient_treats_rho_as_a_constant(alpha: float) -> None:
    logits, target = next(batches(1))
    loss = penex.PENEX(alpha, scale="paper")
    ours, plain = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss(ours, target).backward()
    F.penex(plain, target, alpha, loss.rho.item()).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ours.grad, plain.grad)


def test_a_forward_pass_may_come_before_the_last_ones_backward() -> None:
    loss = penex.PENEX(0.1, scale="paper")
    x = torch.randn(4, 3, requires_grad=True)
    y = torch.tensor([0, 1, 2, 0])
    first = loss(x, y)
    loss(x.detach(), y)
    first.backward()
    assert x.grad is not None


def test_a_fixed_rho_stays() -> None:
    loss = penex.PENEX(0.1, rho=0.3, scale="paper")
    for logits, target in batches(3):
        expected = F.penex(logits, target, 0.1, 0.3).item()
        assert loss(logits, target).item() == pytest.approx(expected, rel=1e-12)
    assert loss.rho.item() == pytest.approx(0.3)


def test_eval_never_changes_state() -> None:
    (logits, target), *later = batches(4, torch.float32)
    loss = penex.PENEX(0.1, scale="paper").eval()
    expected = F.exponential(logits, target, 0.1).mean() * 1.1
    torch.testing.assert_close(loss(logits, target), expected)
    assert loss.rho.item() == 0
    loss.train()(logits, target)
    before = copy.deepcopy(loss.state_dict())
    loss.eval()
    for logits, target in later:
        expected = F.penex(logits, target, 0.1, loss.rho)
        assert loss(logits, target).item() == pytest.approx(expected.item())
        loss(logits.double(), target)
    assert_same_state(loss.state_dict(), before)


def assert_same_state(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for key in one:
        assert one[key].dtype == other[key].dtype, key
        assert torch.equal(one[key], other[key]), key


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [0.123456789, -0.723456789])
def test_state_round_trip_continues_bit_for_bit(
    alpha: float, steps: int, accumulate: int, dtype: torch.dtype
) -> None:
    saved = penex.PENEX(alpha, accumulate=accumulate)
    *past, last = batches(steps + 1, dtype)
    for batch in past:
        saved(*batch)
    fresh = penex.PENEX(accumulate=accumulate)
    with pytest.warns(UserWarning, match=f"alpha is {alpha}, not 0.1"):
        fresh.load_state_dict(through_a_file(saved.state_dict()), strict=True)
    assert fresh.alpha == alpha
    assert_same_state(fresh.state_dict(), saved.state_dict())
    assert torch.equal(fresh(*last), saved(*last))
    assert_same_state(fresh.state_dict(), saved.state_dict())


def test_a_loaded_loss_is_fixed_or_estimated_as_the_saved_one() -> None:
    batch = next(batches(1))
    fixed, free = penex.PENEX(0.1, rho=0.3), penex.PENEX(0.2)
    loaded = penex.PENEX()
    with pytest.warns(UserWarning, match="rho is 0.3, not None"):
        loaded.load_state_dict(fixed.state_dict())
    assert loaded(*batch).item() == fixed(*batch).item()
    with pytest.warns(UserWarning, match="alpha is 0.2, not 0.1, rho is None, not 0.3"):
        loaded.load_state_dict(free.state_dict())
    assert loaded(*batch).item() == free(*batch).item()


def test_weight_is_saved_like_cross_entropys() -> None:
    loss = nn.ModuleDict({"loss": penex.PENEX(weight=torch.tensor([1.0, 2.0]))})
    assert torch.equal(loss.state_dict()["loss.weight"], torch.tensor([1.0, 2.0]))
    loss.load_state_dict(loss.state_dict(), strict=True)


def test_deepcopy_is_independent() -> None:
    first, second = batches(2)
    loss = penex.PENEX(0.1)
    loss(*first)
    twin = copy.deepcopy(loss)
    loss(*second)
    assert twin.rho.item() != loss.rho.item()
    twin(*second)
    assert twin.rho.item() == loss.rho.item()


@pytest.mark.parametrize(
    ("move", "dtype"),
    [
        (nn.Module.half, torch.float32),
        (nn.Module.bfloat16, torch.float32),
        (nn.Module.float, torch.float32),
        (nn.Module.double, torch.float64),
        (lambda loss: loss.to(torch.float16), torch.float32),
        (lambda loss: loss.double().half(), torch.float64),
        (lambda loss: loss.double().float(), torch.float32),
    ],
)
def test_rho_never_goes_to_half_precision(
    move: Callable[[nn.Module], nn.Module], dtype: torch.dtype
) -> None:
    loss = penex.PENEX(0.1)
    loss(torch.randn(4, 3), torch.tensor([0, 1, 2, 0]))
    value = loss.rho.item()
    move(nn.Sequential(loss))
    assert loss.rho.dtype == loss.window.dtype == dtype
    assert loss.rho.item() == value
    loss(torch.randn(4, 3).half(), torch.tensor([0, 1, 2, 0]))
    assert loss.rho.dtype == dtype


def test_to_moves_the_state() -> None:
    assert penex.PENEX().to("meta").rho.device.type == "meta"
    halved = penex.PENEX().to("meta", torch.float16)
    assert halved.rho.device.type == "meta"
    assert halved.rho.dtype == torch.float32


def test_a_half_precision_default_or_checkpoint_does_not_reach_rho() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        loss = penex.PENEX(accumulate=2)
    finally:
        torch.set_default_dtype(torch.float32)
    assert loss.rho.dtype == loss.window.dtype == torch.float32
    halved = {k: v.half() if k in ("rho", "window") else v for k, v in loss.state_dict().items()}
    loss.load_state_dict(halved, assign=True)
    assert loss.rho.dtype == loss.window.dtype == torch.float32


def test_the_logits_decide_the_precision() -> None:
    loss = penex.PENEX(0.1)
    value = loss(torch.randn(4, 3), torch.rand(4, 3).double())
    assert value.dtype == torch.float32
    assert loss.rho.dtype == torch.float32
    loss(torch.randn(4, 3).double(), torch.tensor([0, 1, 2, 0]))
    assert loss.rho.dtype == torch.float64


def test_training_goes_on_after_inference_mode() -> None:
    loss = penex.PENEX(0.1)
    logits, target = next(batches(1))
    with pytest.warns(UserWarning, match="without gradients"), torch.inference_mode():
        loss(logits, target)
    loss(logits.clone().requires_grad_(), target.clone()).backward()


@pytest.mark.parametrize("name", ["rho", "window"])
def test_what_inference_mode_moved_can_be_trained(name: str) -> None:
    """A buffer that follows its logits there is one that training may write to."""
    with torch.inference_mode():
        moved = _lasting(getattr(penex.PENEX(0.1), name).clone)
    assert not moved.is_inference()


def test_a_state_that_is_not_legal_is_refused_and_changes_nothing() -> None:
    loss = penex.PENEX(0.1)
    state = {**loss.state_dict(), "_extra_state": torch.tensor([-1.0, -1.0])}
    with pytest.raises(ValueError, match="not one of PENEX"):
        loss.load_state_dict(state)
    assert loss.alpha == 0.1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("alpha", [0.1, -0.7])
def test_autocast_keeps_float32(alpha: float, dtype: torch.dtype) -> None:
    model, loss = nn.Linear(6, 4), penex.PENEX(alpha, weight=torch.rand(4))
    x, y = torch.randn(8, 6), torch.randint(4, (8,))
    with torch.autocast("cpu", dtype=dtype):
        logits = model(x)
        value = loss(logits, y)
    assert logits.dtype == dtype
    assert value.dtype == loss.rho.dtype == torch.float32
    twin = penex.PENEX(alpha, weight=loss.weight)
    assert value.item() == pytest.approx(twin(logits.float(), y).item(), rel=1e-6)
    assert loss.rho.item() == pytest.approx(twin.rho.item(), rel=1e-6)


@pytest.mark.parametrize("kept", [16, 5])
@pytest.mark.parametrize("alpha", [0.1, -0.7])
def test_micro_batches_end_with_the_rho_of_the_big_batch(alpha: float, kept: int) -> None:
    micro, whole = (
        penex.PENEX(alpha, accumulate=4, scale="paper"),
        penex.PENEX(alpha, scale="paper"),
    )
    for logits, target in batches(5):
        target[kept:] = -100
        before = micro.rho.item()
        for k in range(4):
            part = slice(4 * k, 4 * k + 4)
            assert micro.rho.item() == before, "rho moves after the last micro-batch only"
            value = micro(logits[part], target[part]).item()
            if before > 0 and (target[part] >= 0).any():
                expected = F.penex(logits[part], target[part], alpha, before).item()
                assert value == pytest.approx(expected)
        whole(logits, target)
        assert micro.rho.item() == pytest.approx(whole.rho.item(), rel=1e-12)


def test_first_window_uses_its_running_estimate() -> None:
    loss = penex.PENEX(0.1, accumulate=2, scale="paper")
    (logits, target), *_ = batches(1)
    first, second = loss(logits[:8], target[:8]), loss(logits[8:], target[8:])
    alone, both = penex.PENEX(0.1, scale="paper"), penex.PENEX(0.1, scale="paper")
    assert first.item() == alone(logits[:8], target[:8]).item()
    both(logits, target)
    expected = F.penex(logits[8:], target[8:], 0.1, both.rho.item())
    assert second.item() == pytest.approx(expected.item(), rel=1e-12)


def test_an_unusable_micro_batch_does_not_spoil_the_window() -> None:
    loss, whole = penex.PENEX(0.1, accumulate=3, scale="paper"), penex.PENEX(0.1, scale="paper")
    (logits, target), *_ = batches(1)
    loss(logits[:8], target[:8])
    loss(torch.full((8, 5), torch.nan, dtype=torch.float64), target[:8])
    loss(logits[8:], target[8:])
    whole(logits, target)
    assert loss.rho.item() == pytest.approx(whole.rho.item(), rel=1e-12)


def test_the_end_of_a_step_closes_a_partial_window() -> None:
    loss, whole = penex.PENEX(0.1, accumulate=4, scale="paper"), penex.PENEX(0.1, scale="paper")
    for logits, target in batches(3):
        for part in (slice(0, 6), slice(6, 16)):  # two of four
            loss(logits[part], target[part])
        loss.end_step()
        whole(logits, target)
        assert loss.rho.item() == pytest.approx(whole.rho.item(), rel=1e-12)
        assert (loss.window == 0).all()


@pytest.mark.parametrize("options", [{"accumulate": 4}, {}, {"accumulate": 4, "rho": 0.3}])
def test_the_end_of_a_step_is_nothing_without_a_partial_window(options: dict[str, Any]) -> None:
    loss = penex.PENEX(0.1, **options)
    loss.end_step()
    assert_same_state(loss.state_dict(), penex.PENEX(0.1, **options).state_dict())
    for logits, target in batches(4):  # a whole window
        loss(logits, target)
    before = copy.deepcopy(loss.state_dict())
    loss.end_step()
    assert_same_state(loss.state_dict(), before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("seen", [0, 1, 3])
def test_a_micro_batch_without_gradients_does_not_count(mode: Callable[[], Any], seen: int) -> None:
    """Who evaluates in train() mode fills no window with it, and is told once."""
    loss = penex.PENEX(0.1, accumulate=2)
    *past, (logits, target) = batches(seen + 1)
    for batch in past:
        loss(*batch)
    before = copy.deepcopy(loss.state_dict())
    twin = copy.deepcopy(loss)
    with pytest.warns(UserWarning, match="in train.. mode without gradients"), mode():
        value = loss(logits, target)
    with mode():
        loss(logits, target)  # a second warning is an error here
    assert_same_state(loss.state_dict(), before)
    assert value.item() == twin(logits, target).item()
    with mode():
        loss.eval()(logits, target)
        penex.PENEX(0.1, accumulate=2, rho=0.3)(logits, target)


@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_without_accumulation_rho_moves_with_or_without_gradients(impl: str) -> None:
    """Who evaluates in train() mode is told so, once."""
    loss, twin = penex.PENEX(0.1, impl=impl), penex.PENEX(0.1, impl=impl)
    first, *others = batches(3)
    with pytest.warns(UserWarning, match="rho moves with the batch.*eval.*frozen"), torch.no_grad():
        loss(*first)
    twin(*first)
    for logits, target in others:
        with torch.no_grad():
            loss(logits, target)  # a second warning is an error here
        twin(logits, target)
    assert torch.equal(loss.rho, twin.rho)
    with torch.no_grad():
        loss.frozen()(*first)
        twin.eval()(*first)
        penex.PENEX(0.1, rho=0.3, impl=impl)(*first)


@pytest.mark.parametrize("order", ["algorithm", "listing"])
@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_a_weight_of_one_forgets_all_but_the_last_batch(order: str, impl: str) -> None:
    """Also if the first estimate overflows, which it does where SE underflows."""
    loss = penex.PENEX(0.1, ema=1.0, order=order, impl=impl)
    target = torch.tensor([0, 1])
    for logits in (torch.full((2, 3), -900.0), torch.tensor([[0.0, 1.0, 2.0], [1.0, 1.0, 0.0]])):
        ((expected, _),) = _reference.algorithm([(logits.double(), target)], 0.1, beta=1.0)
        loss(logits, target)
        assert loss.rho.item() == pytest.approx(expected, rel=1e-6)


def compiled_equals_eager(backend: str, alpha: float = 0.1, **options: Any) -> None:
    torch.compiler.reset()
    eager, shadow = penex.PENEX(alpha, **options), penex.PENEX(alpha, **options)
    compiled = torch.compile(shadow, fullgraph=True, backend=backend)
    for logits, target in batches(5, torch.float32):
        target[0] = -100
        ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        loss, expected = compiled(ours, target), eager(theirs, target)
        loss.backward()
        expected.backward()
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(ours.grad, theirs.grad)
        torch.testing.assert_close(shadow.rho, eager.rho)
    shadow.eval()
    eager.eval()
    torch.testing.assert_close(compiled(logits, target), eager(logits, target))
    torch.testing.assert_close(shadow.rho, eager.rho)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rho": 0.2},
        {"order": "listing", "accumulate": 2},
        {"weight": torch.rand(5), "label_smoothing": 0.1, "reduction": "sum"},
        {"alpha": -0.7, "scale": "cross_entropy"},
    ],
)
def test_compiled_graph_is_whole_and_equal(options: dict[str, Any]) -> None:
    compiled_equals_eager("aot_eager", **options)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
def test_compiled_code_is_equal() -> None:
    compiled_equals_eager("inductor")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"alpha": 0}, "alpha must be a finite number above -1 and not 0; got 0.*`unnormalised`"),
        ({"alpha": -1}, "alpha must be a finite number above -1 and not 0; got -1.$"),
        (
            {"alpha": -0.9, "rho": 1e-6},
            "With alpha=-0.9 rho must be at least 0.01.* = 137, above 45",
        ),
        ({"alpha": -0.9, "rho_max": 0.005}, "With alpha=-0.9 rho_max must be above 0.01"),
        ({"alpha": float("nan")}, "alpha must be"),
        ({"alpha": float("inf")}, "alpha must be"),
        ({"alpha": "much"}, "alpha must be a finite number above -1 and not 0; got 'much'"),
        ({"rho": 0.0}, "^rho must be a finite number above 0"),
        ({"ema": 0.0}, "ema must be above 0 and at most 1; got 0.0"),
        ({"ema": 1.1}, "ema must be"),
        ({"ema": float("nan")}, "ema must be"),
        ({"rho_min": 0.0}, "0 < rho_min < rho_max"),
        ({"rho_min": 2.0, "rho_max": 1.0}, "got rho_min=2.0 and rho_max=1.0"),
        ({"rho_min": 1.0, "rho_max": 1.0}, "0 < rho_min < rho_max"),
        ({"order": "paper"}, "order must be one of algorithm, listing; got 'paper'"),
        ({"reduction": "avg"}, "reduction must be one of mean, sum, none; got 'avg'"),
        ({"impl": "cobol"}, "got 'cobol'"),
        ({"scale": "large"}, "scale must be one of paper, cross_entropy; got 'large'"),
        ({"accumulate": 0}, "accumulate must be a whole number from 1 on; got 0"),
        ({"accumulate": 1.5}, "accumulate must be"),
        ({"accumulate": float("nan")}, "accumulate must be"),
    ],
)
def test_bad_arguments_get_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
        penex.PENEX(**arguments)


def test_settings_that_do_not_go_together_change_nothing() -> None:
    loss = penex.PENEX(-0.9, rho=0.5)
    state = {**loss.state_dict(), "_extra_state": torch.tensor([-0.95, 1e-3], dtype=torch.float64)}
    with pytest.raises(ValueError, match=r"not one of PENEX: With alpha=-0\.95 rho must be"):
        loss.load_state_dict(state)
    assert (loss.alpha, loss.fixed_rho) == (-0.9, 0.5)


@pytest.mark.parametrize("alpha", NEGATIVE)
@pytest.mark.parametrize("order", ["algorithm", "listing"])
@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_an_estimated_rho_stays_where_the_loss_is_bounded(
    alpha: float, order: str, impl: str
) -> None:
    """However the logits rise; and their gradient then points down, at any level."""
    loss = penex.PENEX(alpha, order=order, impl=impl, ema=0.5)
    target = torch.tensor([0, 1])
    for level in (0.0, 40.0, 60.0, 200.0, 1e4):
        logits = level * torch.eye(3)[:2]
        logits.requires_grad_()
        for _ in range(40):
            value = loss(logits, target)
        value.backward()
        lowest = max(1e-6, F.lowest_penalty(alpha))
        assert loss.rho.item() >= lowest * (1 - 1e-6)
        assert logits.grad is not None
        assert level < 60 or (logits.grad.diagonal() > 0).all()


def test_inference_helpers() -> None:
    loss, logits = penex.PENEX(0.25), torch.randn(3, 4)
    assert loss.temperature == 0.8
    torch.testing.assert_close(loss.rescale(logits), 1.25 * logits)
    expected = torch.softmax(logits / loss.temperature, dim=1)
    torch.testing.assert_close(loss.probabilities(logits), expected)
    assert "alpha=0.25" in repr(loss)
    assert "rho=0.5" in repr(penex.PENEX(rho=0.5))


@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0, *NEGATIVE])
@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_scaled_gradient_of_alike_logits_is_cross_entropys(
    alpha: float, impl: str, reduction: str
) -> None:
    """At any level; and no shift changes it anywhere, nor does it exceed cross-entropy's bound."""
    target = torch.arange(16) % 5
    found = []
    for level in (-3.0, 0.0, 20.0):
        logits = torch.full((16, 5), level, dtype=torch.float64, requires_grad=True)
        options: dict[str, Any] = {"rho_min": 1e-300, "rho_max": 1e30, "reduction": reduction}
        if F.lowest_penalty(alpha) < abs(alpha) * math.exp(-(1 + alpha) * 20) / 5:
            scaled = penex.PENEX(alpha, impl=impl, scale="cross_entropy", **options)
            (ours,) = torch.autograd.grad(scaled(logits, target), logits)
            value = nn.CrossEntropyLoss(reduction=reduction)(logits, target)
            (theirs,) = torch.autograd.grad(value, logits)
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
        (any_logits, labels), *_ = batches(1)
        any_logits = (any_logits + level).requires_grad_()
        scaled = penex.PENEX(alpha, impl=impl, scale="cross_entropy", **options)
        (gradient,) = torch.autograd.grad(scaled(any_logits, labels), any_logits)
        assert gradient.abs().sum() <= (2 if reduction == "mean" else 32) * (1 + 1e-9)
        found.append(gradient)
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.1, 1.0, *NEGATIVE])
@pytest.mark.parametrize(
    "options", [{}, {"label_smoothing": 0.2, "weight": torch.rand(5, dtype=torch.float64)}]
)
def test_progress_is_what_the_scaled_loss_descends(alpha: float, options: dict[str, Any]) -> None:
    """Its gradient at rho* is that of the scaled loss; it ignores a shift, and is log K or 0."""
    logits, target = next(batches(1))
    target[0] = -100
    logits.requires_grad_()
    loss = penex.PENEX(alpha, scale="cross_entropy", rho_max=1e6, **options)
    (ours,) = torch.autograd.grad(loss(logits, target), logits)
    before = loss.rho.item()
    (expected,) = torch.autograd.grad(loss.progress(logits, target), logits)
    torch.testing.assert_close(ours, expected, rtol=1e-7, atol=1e-12)
    assert loss.rho.item() == before
    shifted = loss.progress(logits - 3000, target)
    torch.testing.assert_close(shifted, loss.progress(logits, target))
    alike = torch.full((2, 5), 3.0, dtype=torch.float64), torch.tensor([0, 1])
    assert loss.progress(*alike).item() == pytest.approx(nn.CrossEntropyLoss(**options)(*alike))
    assert loss.progress(logits, torch.full_like(target, -100)).item() == 0
    if not options:
        sure = loss.progress(40 * torch.eye(5, dtype=torch.float64), torch.arange(5))
        assert sure.item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_probabilities_that_weigh_an_example_weigh_it_as_in_cross_entropy(reduction: str) -> None:
    """Value and gradient where all logits are alike: D counts positions, whatever they weigh."""
    target = torch.eye(4, dtype=torch.float64)[[0, 1, 2]] * torch.tensor([[30.0], [1.0], [5.0]])
    logits = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    found = []
    for loss in (penex.PENEX(0.1, reduction=reduction), nn.CrossEntropyLoss(reduction=reduction)):
        value = loss(logits, target)
        found.append((value.detach(), *torch.autograd.grad(value.sum(), logits)))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("alpha", [0.1, 1.0, *NEGATIVE])
@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("rho", [None, 1e-2])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.2, "weight": True}])
def test_a_scaled_loss_reads_as_the_progress(
    alpha: float, impl: str, rho: float | None, soft: bool, options: dict[str, Any]
) -> None:
    """Whatever rho is; its sum is D times that, and its values add up to the sum."""
    logits, target = next(batches(1))
    if soft:
        target = torch.rand(logits.shape, dtype=logits.dtype).softmax(1)
    else:
        target[0] = -100
    weight = torch.linspace(0.5, 2, 5, dtype=logits.dtype) if "weight" in options else None
    rest = {"impl": impl, "rho": rho, **options, "weight": weight}
    if rho is not None and rho < F.lowest_penalty(alpha):
        return
    mean, total, each = (penex.PENEX(alpha, reduction=r, **rest) for r in ("mean", "sum", "none"))
    expected = mean.progress(logits, target)
    torch.testing.assert_close(mean(logits, target), expected)
    torch.testing.assert_close(mean.eval()(logits, target), expected)
    d = nn.CrossEntropyLoss(weight, reduction="sum")(torch.zeros_like(logits), target)
    d /= nn.CrossEntropyLoss(weight)(torch.zeros_like(logits), target)
    torch.testing.assert_close(total(logits, target), d * expected)
    values = each(logits, target)
    torch.testing.assert_close(values.sum(), d * expected)
    if not soft:
        assert values[0] == 0
    gradients = []
    for loss in (mean.train(), total, each):
        leaf = logits.clone().requires_grad_()
        loss(leaf, target).sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[1], gradients[2])
    torch.testing.assert_close(gradients[1] / d, gradients[0])


def test_a_state_fits_either_scale() -> None:
    scaled = penex.PENEX(0.1, scale="cross_entropy")
    scaled(*next(batches(1)))
    paper = penex.PENEX(0.1, scale="paper")
    paper.load_state_dict(scaled.state_dict())
    assert torch.equal(paper.rho, scaled.rho)
    assert repr(paper) == "PENEX(alpha=0.1, scale=paper)"


@pytest.mark.parametrize("scale", ["paper", "cross_entropy"])
def test_a_level_that_runs_away_takes_the_gradient_along_unless_scaled(scale: str) -> None:
    """Online, at alpha near -1: the paper's gradient grows with the logits, the scaled one not."""
    target = torch.arange(4)
    sizes = []
    for level in (0.0, 10.0, 20.0):
        logits = (level + torch.eye(4, dtype=torch.float64)).requires_grad_()
        loss = penex.PENEX(-0.6, scale=scale)
        (gradient,) = torch.autograd.grad(loss(logits, target), logits)
        sizes.append(gradient.norm().item())
    growth = math.exp(6) if scale == "paper" else 1.0  # exp(0.6 x 10)
    assert sizes[1] / sizes[0] == pytest.approx(growth)
    assert sizes[2] / sizes[1] == pytest.approx(growth)


@pytest.mark.parametrize("alpha", [0.1, -0.3, -0.7])
def test_loss_falls_when_a_model_learns(alpha: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 6)
    y = (x @ torch.randn(6, 3)).argmax(1)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
    loss = penex.PENEX(alpha)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    assert (loss.probabilities(model(x)).argmax(1) == y).float().mean() > 0.95


def test_trains_through_a_gradient_scaler() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    model, loss = nn.Linear(6, 3), penex.PENEX(0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before: Tensor = model.weight.detach().clone()
    with torch.autocast("cpu", dtype=torch.float16):
        value = loss(model(torch.randn(8, 6)), torch.randint(3, (8,)))
    scaler.scale(value).backward()
    scaler.step(optimizer)
    assert not torch.equal(model.weight, before)


class Doubled(penex.PENEX):
    """A loss of one's own, with twice the evidence."""

    def terms(self, batch: targets.Batch) -> tuple[Tensor, Tensor, Tensor]:
        own, se, evidence = super().terms(batch)
        return 2 * own, se, 2 * evidence


def test_a_formula_of_ones_own_is_computed_for_every_kind_of_target() -> None:
    """The kernels know PENEX's alone."""
    logits, target = next(batches(1))
    loss, soft = Doubled(0.1, scale="paper"), Doubled(0.1, scale="paper")
    value = loss(logits, target)
    torch.testing.assert_close(value, soft(logits, nn.functional.one_hot(target, 5).double()))
    torch.testing.assert_close(loss.rho, soft.rho)
    assert loss.implementation(logits, target) == "reference"
    with pytest.raises(ValueError, match="Doubled has a formula of its own"):
        Doubled(0.1, impl="eager")(logits, target)
    with pytest.raises(ValueError, match="Doubled has a formula of its own"):
        loss.linear(torch.ones(3, 2), torch.ones(5, 2), torch.tensor([0, 1, 2]))
