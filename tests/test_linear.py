"""PENEX of a linear layer without its logits: what the loss of the logits is, in less memory."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import penex
from penex import functional as F
from penex.kernels import head
from penex.penalty import bound_for

OPTIONS: dict[str, dict[str, Any]] = {
    "paper": {"scale": "paper"},
    "scaled": {"scale": "cross_entropy"},
    "sum": {"scale": "paper", "reduction": "sum"},
    "scaled sum": {"scale": "cross_entropy", "reduction": "sum", "weight": True},
    "weighted": {"scale": "paper", "weight": True},
    "smoothed": {"scale": "paper", "label_smoothing": 0.1},
    "scaled, smoothed": {"scale": "cross_entropy", "label_smoothing": 0.3, "weight": True},
    "fixed": {"scale": "paper", "rho": 0.3},
    "listing": {"scale": "paper", "order": "listing", "ema": 0.5},
    "accumulated": {"scale": "paper", "accumulate": 2},
    "a class ignored": {"scale": "paper", "ignore_index": 1},
}
LAYER = (23, 7, 37)  # positions, features, classes


def made(name: str, alpha: float, **more: Any) -> tuple[penex.PENEX, penex.PENEX]:
    """Two losses of the same options."""
    options = {**OPTIONS[name], **more}
    if options.pop("weight", False):
        options["weight"] = torch.linspace(0, 2, LAYER[2])
    fast = penex.PENEX(alpha, **options)
    return fast, penex.PENEX(alpha, **{**options, "impl": "reference"})


def layer(
    seed: int, dtype: torch.dtype = torch.float32, size: tuple[int, int, int] = LAYER
) -> tuple[list[Tensor], Tensor]:
    """Hidden states, weights and bias that want gradients, and targets, some of them ignored."""
    positions, width, classes = size
    generator = torch.Generator().manual_seed(seed)
    h, w, b = (
        torch.randn(shape, generator=generator)
        for shape in ((positions, width), (classes, width), (classes,))
    )
    target = torch.randint(classes, (positions,), generator=generator)
    target[::5] = -100
    return [x.to(dtype).requires_grad_() for x in (h, w / width**0.5, b)], target


def twins(given: list[Tensor], dtype: torch.dtype | None = None) -> list[Tensor]:
    return [x.detach().clone().to(dtype or x.dtype).requires_grad_() for x in given]


def gradients(given: list[Tensor]) -> list[Tensor]:
    return [x.grad for x in given if x.grad is not None]


def off(found: Tensor, expected: Tensor) -> float:
    exact = expected.detach().double()
    return float((found.detach().double() - exact).norm() / exact.norm().clamp(min=1e-12))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("alpha", [0.1, -0.3])
def test_it_is_the_loss_of_the_logits(alpha: float, name: str) -> None:
    """Values, gradients and rho, in train() and in eval(), to 1e-5 in float32."""
    fast, slow = made(name, alpha)
    for seed in range(4):
        ours, target = layer(seed)
        target[target == 1] = 1 if "ignored" in name else 2
        if "ignored" in name:
            target[target == -100] = 1
        theirs = twins(ours)
        h, w, b = ours
        value = fast.linear(h, w, target, b, chunk=10)
        expected = slow(theirs[0] @ theirs[1].T + theirs[2], target)
        torch.autograd.backward(3 * value)
        (3 * expected).backward()
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradients(ours), gradients(theirs), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(fast.rho, slow.rho, rtol=1e-5, atol=0)
        torch.testing.assert_close(fast.window, slow.window, rtol=1e-5, atol=1e-6)
        fast.train(seed < 1)
        slow.train(seed < 1)


@pytest.mark.parametrize("name", ["paper", "scaled", "accumulated"])
def test_fifty_steps_of_training_end_alike(name: str) -> None:
    ends = []
    for way in range(2):
        loss, _ = made(name, 0.1)
        (_, w, b), _ = layer(0)
        for step in range(50):
            (h, _, _), target = layer(step)
            given = h.detach(), w, target, b
            value = loss.linear(*given, chunk=16) if way else loss(h.detach() @ w.T + b, target)
            for one, gradient in zip((w, b), torch.autograd.grad(value, (w, b)), strict=True):
                one.data -= 0.1 * gradient
        if name == "accumulated":
            loss.end_step()
        ends.append([loss.rho, w.detach(), b.detach()])
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("alpha", [0.5, -0.4])
def test_its_gradient_is_the_derivative(alpha: float, smoothing: float) -> None:
    given, target = layer(0, torch.float64, (5, 3, 7))

    def value(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return penex.linear_penex(
            h, w, target, bias=b, alpha=alpha, rho=0.1, label_smoothing=smoothing, chunk=3
        )

    assert torch.autograd.gradcheck(value, given)


@settings(max_examples=40)
@given(
    size=st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 12)),
    chunk=st.integers(1, 14),
    alpha=st.sampled_from([0.1, 2.0, -0.3, -0.9]),
    smoothing=st.sampled_from([0.0, 0.3, 1.0]),
    weighted=st.booleans(),
    biased=st.booleans(),
    wanted=st.sets(st.integers(0, 1), min_size=1),
    reduction=st.sampled_from(["mean", "sum"]),
    seed=st.integers(0, 99),
)
def test_any_shape_chunk_and_options(
    size: tuple[int, int, int], chunk: int, alpha: float, smoothing: float, weighted: bool,
    biased: bool, wanted: set[int], reduction: str, seed: int,
) -> None:  # fmt: skip
    """Against the plain formula, in float64."""
    ours, target = layer(seed, torch.float64, size)
    for k in {0, 1} - wanted:
        ours[k].requires_grad_(False)
    classes = size[2]
    weight = torch.linspace(0, 2, classes, dtype=torch.float64) if weighted else None
    theirs = [x.detach().clone().requires_grad_(x.requires_grad) for x in ours]
    value = penex.linear_penex(
        ours[0], ours[1], target, bias=ours[2] if biased else None, alpha=alpha, rho=0.05,
        class_weight=weight, label_smoothing=smoothing, reduction=reduction, chunk=chunk,
    )  # fmt: skip
    logits = theirs[0] @ theirs[1].T + (theirs[2] if biased else 0)
    expected = F.penex(
        logits, target, alpha, 0.05, weight=weight, label_smoothing=smoothing, reduction=reduction
    )
    torch.autograd.backward(value)
    torch.autograd.backward(expected)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradients(ours), gradients(theirs), rtol=1e-10, atol=1e-10)


@settings(max_examples=60)
@given(
    classes=st.integers(1, 700),
    chunk=st.integers(1, 300),
    lent=st.none() | st.tuples(st.integers(1, 9), st.integers(0, 9)),
)
def test_parts_are_all_classes_once(classes: int, chunk: int, lent: tuple[int, int] | None) -> None:
    """From the last to the first, and what is lent lies before the part itself."""
    chunk = 64 * -(-chunk // 64) if lent else chunk
    parts = list(head.parts(classes, chunk, lent))
    seen = [y for p in parts for y in range(p.classes.stop - 1, p.classes.start + p.ahead - 1, -1)]
    assert seen == list(range(classes - 1, -1, -1))
    for part, ahead, is_lent in parts:
        count = part.stop - part.start
        assert part.start >= 0
        assert ahead < count
        if is_lent:
            assert lent is not None
            assert count * lent[1] <= part.start * lent[0]
        else:
            assert count <= chunk
        if chunk % 64 == 0 and len(parts) > 1:
            assert count % 64 == 0


@pytest.mark.parametrize("name", ["scaled", "scaled, smoothed"])
@pytest.mark.parametrize("classes", [640, 1001])
def test_logits_may_lie_where_the_gradient_will_be(
    classes: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, with large chunks; an odd number of classes too, and all that is wanted."""
    monkeypatch.setattr(head, "_grows", lambda hidden: True)
    monkeypatch.setattr(head, "chunk_of", lambda *sizes: 64)
    fast, slow = made(name, 0.1, weight=False)
    ours, target = layer(0, torch.float64, (12, 30, classes))
    theirs = twins(ours)
    value = fast.linear(ours[0], ours[1], target, ours[2])
    expected = slow(theirs[0] @ theirs[1].T + theirs[2], target)
    torch.autograd.backward(value)
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradients(ours), gradients(theirs))


def test_leading_dimensions_are_positions() -> None:
    (h, w, b), target = layer(0, size=(24, 7, 37))
    flat = penex.linear_penex(h, w, target, bias=b, alpha=0.1, rho=0.1)
    shaped = penex.linear_penex(
        h.view(2, 3, 4, 7), w, target.view(2, 3, 4), bias=b, alpha=0.1, rho=0.1
    )
    assert flat == shaped


@pytest.mark.parametrize("alpha", [0.1, -0.3])
def test_bfloat16_is_no_worse_than_cross_entropys(alpha: float) -> None:
    """Value and gradients against float64, beside what torch's cross-entropy makes of the same."""
    given, target = layer(0, torch.bfloat16, (256, 64, 500))
    wide = twins(given, torch.float64)
    errors = []
    for is_penex in (False, True):
        for chosen in (given, wide):
            for x in chosen:
                x.grad = None
        loss = penex.PENEX(alpha, scale="paper")
        value: Tensor
        exact: Tensor
        logits = wide[0] @ wide[1].T + wide[2]
        if is_penex:
            value = loss.linear(given[0], given[1], target, given[2], chunk=128)
            exact = penex.PENEX(alpha, scale="paper")(logits, target)
        else:
            linear = torch.nn.functional.linear(*given)
            value = torch.nn.functional.cross_entropy(linear, target)
            exact = torch.nn.functional.cross_entropy(logits, target)
        torch.autograd.backward(value)
        torch.autograd.backward(exact)
        pairs = zip([value, *gradients(given)], [exact, *gradients(wide)], strict=True)
        errors.append([off(a, b) for a, b in pairs])
    theirs, ours = errors
    assert ours[0] <= max(theirs[0], 2e-3)
    assert all(mine <= 1.1 * other for mine, other in zip(ours[1:], theirs[1:], strict=True))


def test_a_frequent_class_is_summed_in_float32() -> None:
    """A thousand positions of one class: bfloat16 would lose all but the first 256."""
    (h, w, _), _ = layer(0, torch.bfloat16, (1000, 4, 5))
    h = torch.ones_like(h).requires_grad_()
    target = torch.full((1000,), 3)
    wide = twins([h, w], torch.float64)
    torch.autograd.backward(penex.linear_penex(h, w, target, alpha=0.5, rho=1e-9, reduction="sum"))
    torch.autograd.backward(F.penex(wide[0] @ wide[1].T, target, 0.5, 1e-9, reduction="sum"))
    assert off(gradients([w])[0], gradients([wide[1]])[0]) < 5e-3


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches what is made: the largest tensor, and how many matrix products."""

    largest = products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(one, Tensor):
                self.largest = max(self.largest, one.untyped_storage().nbytes())
        self.products += "mm" in str(func)
        return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_grows_with_positions_and_with_classes_not_with_their_product(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "_ROOM", 2**12)
    positions, width, classes = 400, 32, 4000
    (h, w, b), target = layer(0, dtype, (positions, width, classes))
    with Largest() as seen:  # type: ignore[no-untyped-call]
        torch.autograd.backward(penex.PENEX(0.1).linear(h, w, target, b))
    wide = 4
    chunk = positions * 256 * wide  # the least number of classes at a time
    assert seen.largest <= max(positions * width * wide, classes * width * wide, chunk)
    assert seen.largest < positions * classes * dtype.itemsize / 2


def test_nothing_is_computed_that_nobody_asked_for() -> None:
    (h, w, b), target = layer(0)
    loss = penex.PENEX(0.1)
    counts = []
    for wanted in ((False, False), (True, False), (False, True), (True, True)):
        given = h.detach().requires_grad_(wanted[0]), w.detach().requires_grad_(wanted[1])
        with Largest() as seen:  # type: ignore[no-untyped-call]
            value = loss.linear(*given, target, b.detach(), chunk=37)
        assert value.requires_grad == any(wanted)
        counts.append(seen.products)
    assert counts == [1, 2, 2, 3]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [60.0, 1e4])
@pytest.mark.parametrize("alpha", [1.0, -0.3])
def test_it_saturates_as_the_loss_does(alpha: float, size: float, smoothing: float) -> None:
    (_, w, _), target = layer(0)
    # The same products: logits of 1e4 whose rounding differs would be compared else.
    h = torch.eye(23, 7).mul(size).requires_grad_()
    w = w.detach().clamp(-1, 1).requires_grad_()
    ours, theirs = [h, w], twins([h, w])
    fast, slow = (
        penex.PENEX(alpha, scale="paper", label_smoothing=smoothing, impl=impl)
        for impl in ("auto", "reference")
    )
    value, expected = fast.linear(h, w, target, chunk=16), slow(theirs[0] @ theirs[1].T, target)
    torch.autograd.backward(value)
    expected.backward()
    assert value.isfinite()
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    for found, known in zip(gradients(ours), gradients(theirs), strict=True):
        assert found.isfinite().all()
        assert off(found, known) < 1e-5


def test_what_is_ignored_reaches_nothing() -> None:
    (h, w, b), target = layer(0)
    with torch.no_grad():
        h[target == -100] = torch.nan
    clean = twins([h.detach()[target != -100], w, b])
    torch.autograd.backward(penex.PENEX(0.1).linear(h, w, target, b))
    kept = target[target != -100]
    torch.autograd.backward(penex.PENEX(0.1).linear(clean[0], clean[1], kept, clean[2]))
    torch.testing.assert_close(w.grad, clean[1].grad)
    torch.testing.assert_close(b.grad, clean[2].grad)
    assert h.grad is not None
    assert (h.grad[target == -100] == 0).all()
    nothing = penex.PENEX(0.1).linear(h, w, torch.full_like(target, -100), b)
    assert nothing == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_second_backward_pass_gives_the_same_again(smoothing: float) -> None:
    given, target = layer(0)
    h, w, b = given
    loss = penex.PENEX(0.1, label_smoothing=smoothing)
    value = loss.linear(h, w, target, b, chunk=16)
    first = torch.autograd.grad(value, given, retain_graph=True)
    loss.linear(2 * h.detach(), w.detach(), target)  # rho moves on, for others
    torch.testing.assert_close(torch.autograd.grad(2 * value, given), [2 * g for g in first])


def test_autocast_is_that_of_a_linear_layer() -> None:
    (h, w, b), target = layer(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = penex.PENEX(0.1).linear(h, w, target, b)
    torch.autograd.backward(value)
    given, _ = layer(0, torch.bfloat16)
    expected = penex.PENEX(0.1).linear(given[0], given[1], target, given[2])
    assert value.dtype == torch.float32
    assert value == expected
    assert {g.dtype for g in gradients([h, w, b])} == {torch.float32}
    half, _ = layer(0, torch.float16)
    assert penex.PENEX(0.1).linear(half[0], half[1], target, half[2]).isfinite()


class Shared(penex.PENEX):
    """A loss of one of two ranks, the other of which has the same batch."""

    def sum_over_ranks(self, sums: Tensor) -> tuple[Tensor, int]:
        return sums.mul_(2), 2  # in place, as all_reduce does it


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("scale", ["paper", "cross_entropy"])
def test_ranks_share_a_batch(scale: str, reduction: str) -> None:
    (h, w, b), target = layer(0)
    fast, slow = (
        Shared(0.1, scale=scale, reduction=reduction, impl=impl) for impl in ("auto", "reference")
    )
    value, expected = fast.linear(h, w, target, b), slow(h @ w.T + b, target)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(fast.rho, slow.rho)
    if scale == "cross_entropy":  # the other rank has the same batch: each shows its own part
        alone = penex.PENEX(0.1, scale=scale, reduction=reduction)(h @ w.T + b, target)
        torch.testing.assert_close(value, alone)


def test_what_it_cannot_do_is_said_in_a_sentence() -> None:
    (h, w, b), target = layer(0)
    loss = penex.PENEX(0.1)
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((h, w, torch.rand(23, 37)), "takes class indices"),
        ((h, w[:, :5], target), r"same number of features; got shapes \(23, 7\) and \(37, 5\)"),
        ((h, w, target[:5]), r"each of the \(23,\) positions; got torch.int64 of shape \(5,\)"),
        ((h, w, target.int()), "got torch.int32"),
        ((h, w, target, b[:5]), "bias must hold one number for each of the 37 classes"),
        ((h, w.double(), target), "got torch.float32 and torch.float64"),
        ((h, w[:0], target), "a row for each class; got none"),
        ((h, w.to("meta"), target), "weight must be on the device of hidden, cpu; got meta"),
        ((h, w, target.to("meta")), "target must be on the device of hidden, cpu; got meta"),
        ((h, w, target, b.to("meta")), "bias must be on the device of hidden, cpu; got meta"),
    ]
    for arguments, sentence in wrong:
        with pytest.raises(ValueError, match=sentence):
            loss.linear(*arguments)
    with pytest.raises(ValueError, match="reduction must be 'mean' or 'sum'; got 'none'"):
        penex.PENEX(0.1, reduction="none").linear(h, w, target)
    with pytest.raises(ValueError, match="chunk must be a whole number"):
        loss.linear(h, w, target, chunk=0)
    with pytest.raises(IndexError, match="Target 37 is out of bounds: with 37 classes"):
        loss.linear(h, w, target.where(target != target[1], 37))
    with pytest.raises(ValueError, match="no gradient for rho: detach it"):
        penex.linear_penex(h, w, target, alpha=0.1, rho=torch.ones((), requires_grad=True))
    with pytest.raises(ValueError, match="no gradient for the class weights"):
        penex.linear_penex(h, w, target, alpha=0.1, rho=0.1, class_weight=b)
    with pytest.raises(ValueError, match="rho must be at least"):
        penex.linear_penex(h, w, target, alpha=-0.9, rho=1e-6)
    with pytest.raises(RuntimeError, match="first derivative only"):
        torch.autograd.grad(loss.linear(h, w, target), h, create_graph=True)
    with pytest.raises(RuntimeError, match="functorch"):
        torch.func.grad(lambda x: penex.linear_penex(x, w.detach(), target, alpha=0.1, rho=0.1))(
            h.detach()
        )


@pytest.mark.parametrize("impl", ["reference", "auto"])
def test_the_bound_of_rho_goes_with_the_number_of_classes(impl: str) -> None:
    """rho* = alpha / K for logits of 0: below 1e-6, and the paper's bound only up to 1000."""
    assert bound_for(1000, 1e-6) == 1e-6
    classes, target = 100_000, torch.tensor([3, 4])
    zeros = torch.zeros(2, classes)
    loss, twin = (penex.PENEX(0.01, impl=impl, accumulate=k) for k in (1, 2))
    loss(zeros, target)
    assert loss.rho.item() == pytest.approx(1e-7)
    twin(zeros, target)
    twin.end_step()
    assert twin.rho.item() == pytest.approx(1e-7)
    by_layer = penex.PENEX(0.01, impl=impl)
    by_layer.linear(torch.zeros(2, 1), torch.zeros(classes, 1), target)
    assert by_layer.rho.item() == pytest.approx(1e-7)
    few = penex.PENEX(1e-5, impl=impl)
    few(torch.zeros(2, 1000), target)
    assert few.rho.item() == pytest.approx(1e-6)
