"""The Triton kernels against the plain formula and the oracle.

They need Triton, and a GPU or its interpreter: `make test-triton` installs it and runs them here.
"""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import penex
from penex import _reference

from triton_here import DEVICE, MARKS, check_compiles

pytest.importorskip("triton", reason="needs Triton: make test-triton")
pytestmark = MARKS

SHAPES = [(1, 1), (1, 10), (3, 1), (64, 10), (5, 1000), (2, 4097), (1, 70_000)]
EXACT = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "listing": {"order": "listing", "ema": 0.5, "reduction": "sum"},
    "fixed": {"rho": 0.3},
    "bounded": {"rho_min": 0.02, "rho_max": 0.03},
    "weighted": {"weight": True},
    "smoothed": {"label_smoothing": 0.1},
    "both": {"weight": True, "label_smoothing": 0.2},
    "unreduced": {"reduction": "none"},
    "accumulated": {"accumulate": 2},
    "a class ignored": {"ignore_index": 1},
    "scaled": {"scale": "cross_entropy"},
    "scaled sum": {"scale": "cross_entropy", "reduction": "sum", "weight": True},
    "scaled rows": {"scale": "cross_entropy", "reduction": "none", "label_smoothing": 0.1},
}


def made(
    name: str, classes: int, alpha: float = 0.1, dtype: torch.dtype = torch.float32
) -> tuple[penex.PENEX, penex.PENEX]:
    """A loss by the kernels and its plain twin."""
    options = dict(OPTIONS[name])
    if options.pop("weight", False):
        options["weight"] = torch.linspace(0.25, 2, classes).to(dtype)
    fast = penex.PENEX(alpha, impl="triton", **options).to(DEVICE)
    return fast, penex.PENEX(alpha, impl="reference", **options).to(DEVICE)


def batch(
    seed: int, shape: tuple[int, int], dtype: torch.dtype, kind: str
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = (2 * torch.randn(shape, generator=generator)).to(dtype)
    target = torch.randint(shape[1], shape[:1], generator=generator)
    if kind == "soft":
        # What probabilities add up to is the weight of a row.
        weights = 0.5 + torch.rand(shape[0], 1, generator=generator)
        target = torch.rand(shape, generator=generator).softmax(1) * weights
    elif kind == "ignored":
        target[::3] = -100
    return logits.to(DEVICE), target.to(DEVICE)


def check(
    fast: penex.PENEX, slow: penex.PENEX, logits: Tensor, target: Tensor, exact: float = 1e-6
) -> None:
    """Value, gradient and state of one batch."""
    ours, theirs = (logits.detach().clone().requires_grad_() for _ in range(2))
    # clone keeps no strides that overlap, so that the view itself is given where there are some.
    value, expected = fast(ours, target), slow(theirs, target)
    # With a sign the two terms of the value cancel: rounding is to their size.
    size = 0.0 if fast.alpha > 0 else (slow.rho * logits.float().exp().sum()).item()
    if fast.scale == "cross_entropy":
        size = len(logits) / abs(fast.alpha)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-7 + 1e-6 * size)
    factor = torch.linspace(0.5, 2, value.numel(), device=DEVICE).view_as(value)
    (3 * value * factor).sum().backward()
    (3 * expected * factor).sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    assert ours.grad.dtype == logits.dtype
    # With one class the two terms of the gradient cancel: rounding is to their size.
    scale = max(theirs.grad.abs().max().item(), abs(fast.alpha) * expected.abs().max().item(), size)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=exact, atol=exact * scale)
    torch.testing.assert_close(fast.rho, slow.rho, rtol=1e-6, atol=0)
    torch.testing.assert_close(fast.window, slow.window, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["hard", "ignored", "soft"])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("alpha", [0.1, -0.05, -0.7])
def test_every_option_equals_the_plain_formula(alpha: float, name: str, kind: str) -> None:
    if name == "a class ignored" and kind != "hard":
        return  # -100 is no class then, and probabilities cannot be ignored
    fast, slow = made(name, 10, alpha)
    for seed in range(4):
        logits, target = batch(seed, (13, 10), torch.float32, kind)
        check(fast, slow, logits, target)
        fast.train(seed < 2)
        slow.train(seed < 2)


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("kind", ["ignored", "soft"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("alpha", [0.1, -0.3])
def test_every_shape_and_precision(
    alpha: float, shape: tuple[int, int], dtype: torch.dtype, kind: str
) -> None:
    fast, slow = made("both" if kind == "soft" else "plain", shape[1], alpha, dtype=dtype)
    for seed in range(2):
        check(fast, slow, *batch(seed, shape, dtype, kind), EXACT[dtype])


def test_any_strides() -> None:
    base = torch.randn(40, 60, device=DEVICE)
    target = torch.arange(12, device=DEVICE) % 7
    views = {
        "transposed": base[:7, :12].t(),
        "every other": base[1:25:2, 3:17:2],
        "one row": base[3:4, :7].expand(12, 7),
        "one column": base[:12, 5:6].expand(12, 7),
    }
    for view in views.values():
        fast, slow = made("plain", 7)
        leaf = view.detach().requires_grad_()
        (ours,) = torch.autograd.grad(fast(leaf, target), leaf)
        (theirs,) = torch.autograd.grad(slow(leaf, target), leaf)
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)
        soft = torch.rand(7, 12, device=DEVICE).t().softmax(1).t().contiguous().t()
        check(fast, slow, view, soft)
        check(fast, slow, view, target.repeat_interleave(2)[::2])


@pytest.mark.parametrize("alpha", [0.1, -0.3, -0.95])
def test_a_hundred_steps_of_the_algorithm(alpha: float) -> None:
    """Against the oracle, in float64: the loss and rho of each step."""
    batches = [batch(seed, (8, 5), torch.float32, "hard") for seed in range(100)]
    loss = penex.PENEX(alpha, impl="triton", scale="paper").to(DEVICE)
    wide = [(logits.double().cpu(), target.cpu()) for logits, target in batches]
    steps = _reference.algorithm(wide, alpha, rho_min=loss.lowest)
    atol = 0.0 if alpha > 0 else 1e-4  # the terms cancel, and each is up to a hundred
    for (logits, target), (rho, expected) in zip(batches, steps, strict=True):
        found = loss(logits, target).item()
        assert found == pytest.approx(expected.item(), rel=2e-6, abs=atol)
        assert loss.rho.item() == pytest.approx(rho, rel=2e-6)


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("size", [60.0, 100.0, 1e4])
@pytest.mark.parametrize("alpha", [1.0, -0.3, -0.95])
def test_it_saturates_as_promised(alpha: float, size: float, kind: str) -> None:
    """Finite value and gradient for logits up to 1e4, and the plain formula's."""
    generator = torch.Generator().manual_seed(0)
    logits = (size * (2 * torch.rand(6, 9, generator=generator) - 1)).to(DEVICE)
    _, target = batch(0, (6, 9), torch.float32, kind)
    fast, slow = made("plain", 9, alpha)
    leaf, twin = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    value, expected = fast(leaf, target), slow(twin, target)
    value.backward()
    expected.backward()
    assert leaf.grad is not None
    assert value.isfinite()
    assert leaf.grad.isfinite().all()
    # exp(x) is exact to about x ulp on a GPU
    torch.testing.assert_close(value, expected, rtol=2e-5, atol=0)
    torch.testing.assert_close(leaf.grad, twin.grad, rtol=2e-5, atol=1e-30)


def test_what_is_ignored_reaches_nothing() -> None:
    logits, target = batch(0, (4, 5), torch.float32, "hard")
    expected, _ = made("plain", 5)
    kept = expected(logits[1:], target[1:])
    logits[0] = torch.tensor([math.nan, math.inf, -math.inf, 0, 1])
    target[0] = -100
    logits.requires_grad_()
    fast, _ = made("plain", 5)
    value = fast(logits, target)
    value.backward()
    torch.testing.assert_close(value, kept)
    assert logits.grad is not None
    assert (logits.grad[0] == 0).all()
    assert logits.grad.isfinite().all()
    nothing = fast(logits, torch.full_like(target, -100))
    assert nothing.item() == 0


@pytest.mark.parametrize("wrong", [5, -1, 2**40, -(2**62)])
@pytest.mark.parametrize("name", ["plain", "weighted", "smoothed"])
def test_a_target_that_is_no_class_makes_its_row_nan(wrong: int, name: str) -> None:
    logits, target = batch(0, (4, 5), torch.float32, "hard")
    target[2] = wrong
    logits.requires_grad_()
    loss, _ = made(name, 5)
    value = loss(logits, target)
    value.backward()
    assert value.isnan()
    assert loss.rho == 0  # nothing to learn from
    assert logits.grad is not None
    assert logits.grad[2].isnan().all()


@pytest.mark.parametrize("alpha", [0.7, -0.7])
def test_a_second_derivative_and_a_second_backward(alpha: float) -> None:
    logits, target = batch(1, (4, 3), torch.float32, "ignored")
    fast, slow = made("both", 3, alpha)
    seconds = []
    for loss in (fast, slow):
        leaf = logits.clone().requires_grad_()
        value = loss(leaf, target)
        (first,) = torch.autograd.grad(value, leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), leaf, retain_graph=True)
        (again,) = torch.autograd.grad(value, leaf, retain_graph=True)
        (same,) = torch.autograd.grad(value, leaf)
        assert torch.equal(again, same)
        torch.testing.assert_close(first, same, rtol=1e-6, atol=1e-9)
        seconds.append(second)
    torch.testing.assert_close(seconds[0], seconds[1], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_gradient_that_depends_on_the_logits_is_differentiated_once(reduction: str) -> None:
    logits, target = batch(1, (4, 3), torch.float32, "hard")
    found = []
    for impl in ("triton", "reference"):
        loss = penex.PENEX(0.7, rho=0.3, impl=impl, reduction=reduction).to(DEVICE)
        leaf = logits.clone().requires_grad_()
        (first,) = torch.autograd.grad(loss(leaf, target).square().sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), leaf)
        found.append((first, second))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_many_gradients_at_once() -> None:
    logits, target = batch(1, (4, 3), torch.float32, "hard")
    leaf = logits.requires_grad_()
    value = penex.PENEX(0.1, rho=0.3, impl="triton").to(DEVICE)(leaf, target)
    (one,) = torch.autograd.grad(value, leaf, retain_graph=True)
    factors = torch.tensor([1.0, -2.0], device=DEVICE)
    (both,) = torch.autograd.grad(value, leaf, factors, is_grads_batched=True)
    torch.testing.assert_close(both, factors.view(2, 1, 1) * one)


def test_nobodys_parameter_is_overwritten() -> None:
    """Leaves, their views, and logits that overlap get a gradient of their own."""
    _, target = batch(2, (6, 5), torch.float32, "hard")
    leaf = torch.randn(6, 5, device=DEVICE, requires_grad=True)
    row = torch.randn(1, 5, device=DEVICE, requires_grad=True)
    for logits, owner in ((leaf, leaf), (leaf.view(6, 5), leaf), ((1 * row).expand(6, 5), row)):
        before = owner.detach().clone()
        results = []
        for overwrite in (False, True):
            loss = penex.PENEX(rho=0.2, impl="triton", overwrite_logits=overwrite).to(DEVICE)
            results.append(torch.autograd.grad(loss(logits, target), owner, retain_graph=True)[0])
        assert torch.equal(results[0], results[1])
        assert torch.equal(owner, before)


def test_the_gradient_may_take_the_place_of_the_logits() -> None:
    logits, target = batch(2, (6, 5), torch.float32, "hard")
    weight = torch.randn(5, 5, device=DEVICE, requires_grad=True)
    expected = torch.autograd.grad(penex.PENEX(impl="triton")(logits @ weight, target), weight)
    product = logits @ weight
    loss = penex.PENEX(impl="triton", overwrite_logits=True)(product, target)
    before = product.data_ptr()
    found: list[int] = []
    hook: Any = product.register_hook
    hook(lambda grad: found.append(grad.data_ptr()))
    assert torch.equal(torch.autograd.grad(loss, weight)[0], expected[0])
    assert found == [before]

    product = (logits @ weight).exp()  # exp needs its result again
    loss = penex.PENEX(impl="triton", overwrite_logits=True)(product, target)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reduction": "none"},
        {"rho": 0.1},
        {"accumulate": 2},
        {"scale": "cross_entropy", "alpha": -0.7},
    ],
)
def test_it_compiles_as_one_graph(options: dict[str, Any]) -> None:
    torch.compiler.reset()
    fast = penex.PENEX(impl="triton", **options).to(DEVICE)
    slow = penex.PENEX(impl="triton", **options).to(DEVICE)
    compiled = torch.compile(fast, fullgraph=True, backend="aot_eager")
    for seed in range(3):
        logits, target = batch(seed, (6, 5), torch.float32, "ignored")
        ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
        value, expected = compiled(ours, target), slow(theirs, target)
        value.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(ours.grad, theirs.grad)
        assert torch.equal(fast.rho, slow.rho)


@pytest.mark.parametrize("kind", ["ignored", "soft"])
def test_one_compilation_does_many_sizes(kind: str) -> None:
    torch.compiler.reset()
    graphs: list[Any] = []

    def counted(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph

    fast, slow = made("plain", 4)
    compiled: Any = torch.compile(fast, fullgraph=True, dynamic=True, backend=counted)
    for rows in range(6, 12):
        logits, target = batch(rows, (rows, 4), torch.float32, kind)
        logits[1, 0] = 90.0  # beyond the limit, which depends on the size
        check(compiled, slow, logits, target)
    assert len(graphs) == 1


@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects")  # rho moves
def test_an_export_does_any_size() -> None:
    rows = torch.export.Dim("rows")
    fast, slow = made("plain", 4)
    exported = torch.export.export(
        fast,
        batch(0, (6, 4), torch.float32, "hard"),
        dynamic_shapes={"input": {0: rows}, "target": {0: rows}},
        strict=True,  # otherwise the tensors are no plain ones, and `auto` takes the plain formula
    ).module()
    for size in (2, 9):
        given = batch(size, (size, 4), torch.float32, "hard")
        torch.testing.assert_close(exported(*given), slow(*given))


@pytest.mark.parametrize("before", [0.0, math.nan, math.inf, -1.0])
@pytest.mark.parametrize("training", [True, False])
def test_a_rho_that_is_none_is_never_used(before: float, training: bool) -> None:
    fast, clean = made("plain", 4)
    fast.rho.fill_(before)
    for seed, kind in ((0, "ignored"), (1, "hard")):
        logits, target = batch(seed, (6, 4), torch.float32, kind)
        if seed == 0:
            target[:] = -100
        value = fast.train(training)(logits, target)
        torch.testing.assert_close(value, clean.train(training)(logits, target))
    if training:
        torch.testing.assert_close(fast.rho, clean.rho)


@pytest.mark.parametrize("order", ["algorithm", "listing"])
def test_a_weight_of_one_survives_an_overflow(order: str) -> None:
    loss = penex.PENEX(0.1, ema=1.0, order=order, impl="triton").to(DEVICE)
    target = torch.tensor([0, 1], device=DEVICE)
    for size, expected in ((-900.0, 100.0), (0.0, 0.1 / 3)):
        loss(torch.full((2, 3), size, device=DEVICE), target)
        assert loss.rho.item() == pytest.approx(expected, rel=1e-6)


def test_the_operators_keep_their_promises() -> None:
    """Schemas, fake results and mutation, by torch's own checker."""
    from penex.kernels import fused, launch

    logits, target = batch(0, (4, 3), torch.float32, "hard")
    weight = torch.rand(3, device=DEVICE)
    checks = ("test_schema", "test_faketensor")
    given = (logits, target, weight, 0.1, -100, 0.0)
    torch.library.opcheck(fused._rows_op, given, test_utils=checks)
    sums = fused.rows(*given)
    rho = torch.tensor(0.2, device=DEVICE)
    step = (sums, rho, 0.1, 0.1, 1e-6, 100.0, 0.0, True, False, True, True)
    torch.library.opcheck(fused._finish_op, step, test_utils=checks)
    launch.finish(*step)
    grad = torch.ones((), device=DEVICE)
    rest = (logits, target, weight, sums, grad, 0.1, 0.0)
    torch.library.opcheck(fused._gradient_op, rest, test_utils=checks)


def test_batches_that_begin_anywhere() -> None:
    """Sixteen bytes can be read at once of some and not of others, in any order of appearance."""
    flat, labels = batch(0, (9, 64), torch.float32, "hard")
    for x in (flat[:8], flat.flatten()[1:513].view(8, 64), flat.flatten()[4:516].view(8, 64)):
        for y in (labels[:8], labels[1:]):
            ours, theirs = x.detach().requires_grad_(), x.clone().requires_grad_()
            value = penex.PENEX(impl="triton").to(DEVICE)(ours, y)
            expected = penex.PENEX(impl="reference").to(DEVICE)(theirs, y)
            value.backward()
            expected.backward()
            torch.testing.assert_close(value, expected)
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_same_batch_gives_the_same_bits() -> None:
    logits, target = batch(0, (300, 1000), torch.bfloat16, "hard")
    results = []
    for _ in range(3):
        leaf = logits.clone().requires_grad_()
        value = penex.PENEX(impl="triton").to(DEVICE)(leaf, target)
        value.backward()
        results.append((value.detach(), leaf.grad))
    for value, grad in results[1:]:
        assert torch.equal(value, results[0][0])
        assert grad is not None
        assert results[0][1] is not None
        assert torch.equal(grad, results[0][1])


def test_what_the_kernels_cannot_do_is_one_sentence() -> None:
    loss = penex.PENEX(impl="triton")
    logits, target = batch(0, (4, 3), torch.float32, "hard")
    assert loss.implementation(logits, target) == "triton"
    for wrong in (logits.double(), logits[0], logits.expand(2, 4, 3), logits[:0]):
        with pytest.raises(ValueError, match="cannot do this batch: it takes"):
            loss(wrong, target)
    assert penex.PENEX(impl="auto").implementation(logits.cpu(), target.cpu()) == "eager"


def test_a_scaler_saves_gradients_that_float16_would_lose() -> None:
    """Below 6e-8 there is nothing in float16: the factor must come before the rounding."""
    logits = torch.full((4, 64), -12.0, dtype=torch.float16, device=DEVICE).requires_grad_()
    target = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    loss = penex.PENEX(rho=0.01, impl="triton", scale="paper")
    (loss(logits, target) * 65536).backward()
    expected = 65536 * 0.01 / 4 * math.exp(-12)
    assert logits.grad is not None
    assert logits.grad[:, 1:].float().sub(expected).abs().max() <= 1e-3 * expected


@pytest.mark.parametrize("shape", [(4, 10), (2, 70_000)])
def test_a_second_backward_pass_is_as_with_any_loss(shape: tuple[int, int]) -> None:
    """Refused, or with retain_graph the same again, in small batches and in large ones."""
    logits, target = batch(0, shape, torch.float32, "hard")
    leaf = logits.requires_grad_()
    value = penex.PENEX(impl="triton").to(DEVICE)(leaf, target)
    first = torch.autograd.grad(value, leaf, retain_graph=True)[0]
    second = torch.autograd.grad(value, leaf)[0]
    torch.testing.assert_close(second, first, rtol=1e-6, atol=0)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(value, leaf)


def test_what_the_kernels_would_misread_is_not_theirs() -> None:
    """A view that is negated when read, targets in 8 bits, more rows or classes than they count."""
    from penex.kernels import fused

    loss = penex.PENEX(impl="triton").to(DEVICE)
    pairs = torch.randn(3, 4, dtype=torch.complex64, device=DEVICE)
    target = torch.tensor([0, 1, 3], device=DEVICE)
    negated = pairs.conj().imag
    assert negated.is_neg()
    with pytest.raises(ValueError, match="cannot do this batch"):
        loss(negated, target)
    loss(negated.resolve_neg(), target)
    soft = torch.ones(3, 4, device=DEVICE).to(torch.float8_e4m3fn)
    with pytest.raises(ValueError, match="cannot do this batch"):
        loss(negated.resolve_neg(), soft)
    one = torch.zeros(1, 1, device=DEVICE)
    assert fused.fits(one.expand(2**29 - 1, 2), target)
    assert not fused.fits(one.expand(2**29, 2), target)
    assert not fused.fits(one.expand(2, 2**30), target)


def test_a_gradient_that_is_negated_when_read_keeps_its_sign() -> None:
    logits, target = batch(0, (5, 7), torch.float32, "hard")
    found = []
    for impl in ("triton", "reference"):
        leaf = logits.detach().clone().requires_grad_()
        value = penex.PENEX(impl=impl).to(DEVICE)(leaf, target)
        value.backward(torch._neg_view(torch.ones_like(value)))
        found.append(leaf.grad)
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


def test_where_triton_does_not_run_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from penex.kernels import fused, launch

    def broken(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler.\nMore of it.")

    monkeypatch.setattr(fused, "_WORKS", {})
    monkeypatch.setattr(launch, "rows", broken)
    with pytest.warns(UserWarning, match=r"Triton does not run \(Failed to find C compiler\.\)"):
        assert not fused.works(torch.device(DEVICE))
    assert not fused.works(torch.device(DEVICE))  # from memory: a second warning is an error here
    monkeypatch.undo()
    assert fused._tried(torch.device(DEVICE))


class Recorder:
    """Stands for a kernel: it notes how it is launched, and what was compiled is one too."""

    asm = ""
    function = packed_metadata = None

    def __init__(self, made: list[tuple[Any, ...]], again: list[tuple[Any, ...]]) -> None:
        self.made, self.again = made, again

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launched(*given: Any, num_warps: int | None = None) -> Any:
            (self.again if num_warps is None else self.made).append((grid, given))
            return self

        return launched

    def run(self, *given: Any) -> None:
        """A compiled kernel's own launcher: grid, stream, function and five that none needs."""
        self.again.append((given[:3], given[9:]))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """What is launched, with nothing kept from before and any driver's stream."""
    from penex.kernels import kept

    streams = SimpleNamespace(active=SimpleNamespace(get_current_stream=lambda _: 0))
    monkeypatch.setattr(kept, "_driver", streams)
    monkeypatch.setattr(kept, "_runners", {})
    return Recorder([], [])


def test_triton_is_asked_once_for_each_kind_of_batch(
    monkeypatch: pytest.MonkeyPatch, recorded: Recorder
) -> None:
    """A compilation is used again only where Triton would take the same: see its specialisation."""
    from penex.kernels import launch
    from penex.kernels import triton as kernels

    made, again = recorded.made, recorded.again
    monkeypatch.setattr(kernels, "rows", recorded)
    logits, target = batch(0, (8, 32), torch.float32, "hard")

    def rows(
        x: Any = logits,
        y: Any = target,
        ignored: int = -100,
        smoothing: float = 0.0,
        alpha: float = 0.1,
    ) -> int:
        launch.rows(x[:4], y[:4], None, alpha, ignored, smoothing)
        return len(made)

    assert rows() == 1
    assert rows() == 1
    assert len(again) == 1
    grid, arguments = again[0]
    assert grid == (4, 1, 1)
    assert len(arguments) == len(made[0][1])
    assert rows(y=target[1:]) == 2  # 8 bytes from where 16 begin
    assert rows(x=logits.flatten()[1:129].view(4, 32)) == 3
    assert rows(x=logits.flatten()[1:129].view(4, 32), y=target[1:]) == 4
    assert rows(x=logits[:, :31]) == 5
    assert rows(x=logits.half()) == 6
    assert rows(ignored=1) == 7
    assert rows(smoothing=0.5) == 8
    assert rows(smoothing=1) == 8
    assert rows(alpha=1) == 8  # no constant of a compilation
    for _, arguments in made:
        assert [type(number) for number in arguments[4:7]] == 3 * [float]

    monkeypatch.setattr(kernels, "finish", recorded)
    sums, rho = torch.ones(34, device=DEVICE), torch.ones((), device=DEVICE)
    launch.finish(sums, rho, 0.1, 1, 1e-6, 100, 0.0, True, False, True, False)
    launch.finish(sums, rho, 0.1, 0.5, 1e-6, 100.0, 0.0, True, False, True, False)
    assert len(made) == 9  # an ema of 1 is no constant of it
    assert [type(number) for number in made[-1][1][3:8]] == 5 * [float]
    launch.finish(sums, rho, 0.1, 0.5, 1e-6, 100.0, 0.0, False, False, True, False)
    assert len(made) == 10
    launch.finish(sums, rho, 0.1, 0.5, 1e-6, 100.0, 0.0, False, False, True, True)
    assert len(made) == 11

    monkeypatch.setattr(kernels, "rows_and_finish", recorded)
    given = logits, target, None, rho, 0.1, -100, 0.0, 0.1, 1e-6, 100.0
    for more, known in (((0.0, True), 12), ((0.0, True), 12), ((0.0, False), 13), ((1, True), 14)):
        launch.rows_and_finish(*given, *more, False, True, False)
        assert len(made) == known
    assert len(made[-1][1]) == len(again[-1][1])


def test_a_triton_that_nobody_has_read_launches_every_kernel_itself(
    monkeypatch: pytest.MonkeyPatch, recorded: Recorder
) -> None:
    """Its compiled kernels may take other arguments, and would read anything."""
    from penex.kernels import kept, launch
    from penex.kernels import triton as kernels

    monkeypatch.setattr(kept, "_KEEPS", False)
    monkeypatch.setattr(kernels, "rows", recorded)
    for _ in range(2):
        launch.rows(*batch(0, (8, 32), torch.float32, "hard"), None, 0.1, -100, 0.0)
    assert (len(recorded.made), len(recorded.again)) == (2, 0)


def test_a_profiler_sees_every_launch(monkeypatch: pytest.MonkeyPatch, recorded: Recorder) -> None:
    """A kept kernel is launched past Triton's hooks only while there are none."""
    from penex.kernels import kept, launch
    from penex.kernels import triton as kernels

    hook = SimpleNamespace(calls=[])
    hooks = SimpleNamespace(launch_enter_hook=hook, launch_exit_hook=None)
    monkeypatch.setattr(kept, "_hooks", hooks)
    monkeypatch.setattr(kernels, "rows", recorded)
    runs: list[object] = []
    monkeypatch.setattr(recorded, "run", lambda *given: runs.append(given), raising=False)
    given = *batch(0, (8, 32), torch.float32, "hard"), None, 0.1, -100, 0.0
    for _ in range(2):
        launch.rows(*given)
    assert (len(runs), len(recorded.again)) == (1, 0)
    hook.calls.append(print)  # Triton 3.5 and later: a chain
    launch.rows(*given)
    hooks.launch_enter_hook, hooks.launch_exit_hook = None, print  # before: a function, or None
    launch.rows(*given)
    assert (len(runs), len(recorded.again)) == (1, 2)
    assert len(recorded.again[0][1]) == len(recorded.made[0][1])


@pytest.mark.parametrize("kind", ["ignored", "soft"])
@pytest.mark.parametrize(("name", "rows"), [*((name, 17) for name in OPTIONS), ("scaled sum", 150)])
def test_a_small_batch_in_one_launch_equals_two(
    name: str, rows: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of the rows' programs finishes; three steps of rho, one and many blocks of rows."""
    from penex.kernels import kept, launch

    if name == "a class ignored" and kind == "soft":
        return
    one, two = made(name, 10)[0], made(name, 10)[0]
    for seed in range(4):
        logits, target = batch(seed, (rows, 10), torch.float32, kind)
        if seed == 1:
            logits[4, 1] = math.nan  # an unusable batch: rho stays
        found = []
        for loss, most in ((one, launch._MOST_COUNTED), (two, 0)):
            leaf = logits.clone().requires_grad_()
            with monkeypatch.context() as patch:
                patch.setattr(launch, "_MOST_COUNTED", most)
                value = loss.train(seed < 3)(leaf, target)
            found.append((value, *torch.autograd.grad(value.sum(), leaf), loss.rho.clone()))
        torch.testing.assert_close(*found, rtol=1e-6, atol=1e-6, equal_nan=True)
        torch.testing.assert_close(found[0][-1], found[1][-1], rtol=1e-6, atol=0)
    assert all(left.item() == 0 for left in kept._counters.values())


def test_a_graph_counts_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that were recorded in one stream may run in two."""
    from penex.kernels import kept

    monkeypatch.setattr(kept, "_counters", {})
    loss, plain = made("plain", 7)
    with monkeypatch.context() as patch:
        patch.setattr(kept, "_stream", lambda _: None)
        check(loss, plain, *batch(0, (8, 7), torch.float32, "ignored"))
    assert not kept._counters
    check(loss, plain, *batch(1, (8, 7), torch.float32, "ignored"))
    assert [left.item() for left in kept._counters.values()] == [0]


def layer(
    seed: int, dtype: torch.dtype, size: tuple[int, int, int] = (13, 8, 300)
) -> tuple[list[Tensor], Tensor]:
    """Hidden states, weights and bias, and targets of which a third is ignored."""
    positions, width, classes = size
    generator = torch.Generator().manual_seed(seed)
    shapes = (positions, width), (classes, width), (classes,)
    made = [torch.randn(shape, generator=generator).to(DEVICE, dtype) for shape in shapes]
    target = torch.randint(classes, (positions,), generator=generator)
    target[::3] = -100
    return [one.requires_grad_() for one in made], target.to(DEVICE)


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("name", ["plain", "weighted", "scaled sum", "accumulated"])
@pytest.mark.parametrize("alpha", [0.1, -0.3])
def test_a_linear_layers_loss_equals_the_plain_walk(
    alpha: float, name: str, dtype: torch.dtype
) -> None:
    """Chunks with and without a rest, with a bias; float16 is computed in float32."""
    fast, slow = made(name, 300, alpha)
    for seed in range(3):
        ours, target = layer(seed, dtype)
        theirs = [one.detach().clone().requires_grad_() for one in ours]
        chunk = (64, 100, None)[seed]
        value = fast.linear(ours[0], ours[1], target, ours[2], chunk=chunk)
        expected = slow.linear(theirs[0], theirs[1], target, theirs[2], chunk=chunk)
        torch.autograd.backward(value)
        torch.autograd.backward(expected)
        size = (slow.rho * 300 * 50).item()
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5 * size)
        torch.testing.assert_close(fast.rho, slow.rho, rtol=1e-5, atol=0)
        for one, other in zip(ours, theirs, strict=True):
            assert one.grad is not None
            assert other.grad is not None
            scale = other.grad.abs().max().item()
            torch.testing.assert_close(
                one.grad, other.grad, rtol=EXACT[dtype], atol=2 * EXACT[dtype] * scale
            )


def test_a_bias_may_lie_in_memory_as_it_likes() -> None:
    """A column of something, one number for all classes, a view that is negated when read."""
    (h, w, b), target = layer(0, torch.float32)
    column = torch.stack([b.detach(), b.detach() + 9], 1)[:, 0]
    negated = torch.complex(b.detach(), -b.detach()).conj().imag
    for bias in (column, b.detach()[:1].expand(300), negated):
        fast, slow = (penex.PENEX(0.1).to(DEVICE) for _ in range(2))
        value = fast.linear(h, w, target, bias)
        torch.testing.assert_close(value, slow(h @ w.T + bias, target), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")  # Triton's own
@pytest.mark.parametrize("limit", [60.0, 0.5])
def test_exponentials_made_with_their_product_are_those_made_after_it(limit: float) -> None:
    """Tiles that reach over the edges, more of them than programs, and linear past the limit.

    In float32, whose products the interpreter computes; on a GPU test_cuda.py has bfloat16.
    """
    if DEVICE == "cuda":
        pytest.skip("float32's tiles are too large for a GPU's shared memory")
    if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 4):
        pytest.skip("the interpreter of Triton 3.6 cannot loop so with NumPy 2.4")
    product = pytest.importorskip("penex.kernels.linear_product")
    from penex.kernels import linear_plain

    generator = torch.Generator().manual_seed(0)
    h, w = (torch.randn(n, 100, generator=generator) / 5 for n in (300, 700))
    mass = torch.rand(300, generator=generator)
    mass[::7] = 0
    memory, expected = torch.full((300, 704), torch.nan), h @ w.T
    se, summed = torch.ones(300), torch.ones(300)
    product.powers(h, w, mass, se, limit, memory[:, :700])
    linear_plain.powers(expected, None, mass, summed, limit)
    torch.testing.assert_close(memory[:, :700], expected)
    torch.testing.assert_close(se, summed)
    assert memory[:, 700:].isnan().all()
    assert not product.can(h, w, memory)  # it is for bfloat16


@pytest.mark.parametrize("size", [60.0, 1e4])
@pytest.mark.parametrize("alpha", [1.0, -0.3])
def test_a_linear_layers_loss_saturates_as_promised(alpha: float, size: float) -> None:
    (_, w, _), target = layer(0, torch.float32)
    found = []
    for loss in made("plain", 300, alpha):
        hidden, weight = (x.detach().clone().requires_grad_() for x in (size * torch.eye(13, 8), w))
        value = loss.linear(hidden.to(DEVICE), weight, target, chunk=128)
        torch.autograd.backward(value)
        assert value.isfinite()
        assert weight.grad is not None
        found.append((value, weight.grad))
    torch.testing.assert_close(found[0], found[1], rtol=2e-5, atol=1e-30)


def test_what_triton_cannot_do_for_a_linear_layer_is_said() -> None:
    (h, w, _), target = layer(0, torch.float64)
    with pytest.raises(ValueError, match="hidden states up to float32"):
        penex.PENEX(impl="triton").linear(h, w, target)


def test_a_linear_layers_kernels_are_kept_by_all_that_they_depend_on(
    monkeypatch: pytest.MonkeyPatch, recorded: Recorder
) -> None:
    """Another number of positions is another number of programs."""
    from penex.kernels import linear_launch, linear_triton

    made, again = recorded.made, recorded.again
    names = "powers", "kept_rows", "own_logits", "finish_hidden", "finish_weight"
    for name in names:
        monkeypatch.setattr(linear_triton, name, Recorder(made, again))
    for positions in (6, 6, 4):
        (h, w, _), target = layer(0, torch.float32, (positions, 8, 32))
        numbers = torch.ones(positions, device=DEVICE)
        linear_launch.powers(h @ w.T, None, numbers, numbers, 60)
        linear_launch.kept_rows(h, numbers, torch.float32)
        linear_launch.own_logits(h, w, target)
        linear_launch.finish_hidden(h, w, target, numbers, numbers[0], torch.float32)
        linear_launch.finish_weight(w, target, numbers, numbers[0], h)
    assert len(made) == 2 * len(names)
    assert len(again) == len(names)
    assert [grid for grid, _ in again] == [*4 * [(6, 1, 1)], (32, 1, 1)]


def test_a_frequent_class_of_a_linear_layer_is_summed_whole() -> None:
    """More positions than a tile has, in bfloat16, and the rest of a tile."""
    (h, w, _), _ = layer(0, torch.bfloat16, (101, 600, 5))
    w = (w.detach() / 25).requires_grad_()
    target = torch.tensor([3] * 70 + [1] * 8 + [-100] * 3 + [0] * 16 + [4] * 4, device=DEVICE)
    wide = [x.detach().double().requires_grad_() for x in (h, w)]
    torch.autograd.backward(penex.PENEX(0.5, rho=1e-9, impl="triton").linear(h, w, target))
    torch.autograd.backward(penex.PENEX(0.5, rho=1e-9)(wide[0] @ wide[1].T, target))
    for one, other in zip((h, w), wide, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert (one.grad.double() - other.grad).norm() <= 0.02 * other.grad.norm()


def test_a_product_that_does_not_compile_is_made_the_other_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from penex.kernels import linear_launch

    def powers(*_: Any) -> None:
        raise RuntimeError("PassManager::run failed")

    broken = SimpleNamespace(can=lambda *_: True, powers=powers)
    monkeypatch.setattr(linear_launch, "_product", lambda: broken)
    monkeypatch.setattr(linear_launch, "_WITHOUT_PRODUCT", set())
    one = torch.ones(1, 1, device=DEVICE)
    with pytest.warns(UserWarning, match=r"does not compile \(PassManager::run failed\)"):
        assert not linear_launch.product(one, one, one[0], one[0], 1.0, one)
    assert not linear_launch.product(one, one, one[0], one[0], 1.0, one)  # and says so once


def test_positions_without_weight_belong_to_no_class(
    monkeypatch: pytest.MonkeyPatch, recorded: Recorder
) -> None:
    """Most of a prompt's are ignored: one class's program would go through all of them."""
    from penex.kernels import linear_launch, linear_triton

    monkeypatch.setattr(linear_triton, "finish_weight", recorded)
    total, hidden = torch.zeros(3, 16, device=DEVICE), torch.ones(5, 16, device=DEVICE)
    label = torch.tensor([0, 2, 0, 0, 1], device=DEVICE)
    pull = torch.tensor([0.0, -1, math.nan, 0, -1], device=DEVICE)
    linear_launch.finish_weight(total, label, pull, torch.ones((), device=DEVICE), hidden)
    _, given = recorded.made[0]
    order, border = given[3:5]
    assert border.tolist() == [2, 3, 4, 5]
    assert order[2:].tolist() == [2, 4, 1]


def test_a_target_that_is_no_class_of_a_linear_layer_makes_its_row_nan() -> None:
    (h, w, _), target = layer(0, torch.float32)
    if DEVICE == "cpu":
        with pytest.raises(IndexError, match="Target 300 is out of bounds"):
            penex.PENEX(impl="triton").linear(h, w, target.where(target != target[1], 300))
        return
    loss = penex.PENEX(impl="triton").cuda()
    value = loss.linear(h, w, target.where(target != target[1], 300))
    torch.autograd.backward(value)
    assert value.isnan()
    assert loss.rho == 0
    assert h.grad is not None
    assert h.grad[1].isnan().all()


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from penex.kernels import linear_triton as layer
from penex.kernels import triton as ours

POINTERS = {
    "logits", "target", "weight", "out", "sums", "grad", "numbers", "rho", "value",
    "bias", "mass", "se", "factor", "hidden", "label", "total", "order", "border", "pull",
}
FLOATS = {"alpha", "limit", "smoothing", "ema", "rho_min", "rho_max", "fixed"}
OPTIONS = (
    (False, False, False), (False, True, True), (True, True, True),
)
KERNELS = (
    ours.rows, ours.finish, ours.rows_and_finish, ours.gradient,
    layer.powers, layer.kept_rows, layer.own_logits, layer.finish_hidden, layer.finish_weight,
)
for arch in (80, 90):
    for kind in ("*fp32", "*bf16", "*fp16"):
        for soft, weighted, spread in OPTIONS:
            for kernel in KERNELS:
                known = {
                    "SOFT": soft, "WEIGHTED": weighted, "SPREAD": spread, "FIXED": False,
                    "TRAINING": True, "LISTING": False, "MEAN": True, "BLOCK": 2048, "BLOCKS": 3,
                    "SCALED": weighted, "EXACT": kind == "*fp32", "BIASED": weighted,
                    "PARTS": 8, "ROWS": 8, "ROW_BLOCKS": 2, "ROW_BLOCK": 512, "STEP": 512,
                }
                signature, constants = {}, {}
                finish = kernel is ours.finish
                for name in kernel.arg_names:
                    if name in known:
                        signature[name], constants[name] = "constexpr", known[name]
                    elif name == "target":
                        signature[name] = "*fp32" if soft else "*i64"
                    elif name in ("label", "order", "border"):
                        signature[name] = "*i32" if name == "border" else "*i64"
                    elif name == "arrived":
                        signature[name] = "*i32"
                    elif name in POINTERS:
                        same = name in ("logits", "out", "total") and not finish
                        rows = kernel is ours.rows and name == "out"
                        signature[name] = kind if same and not rows else "*fp32"
                    else:
                        signature[name] = "fp32" if name in FLOATS else "i32"
                made = triton.compile(
                    ASTSource(kernel, signature, constants), target=GPUTarget("cuda", arch, 32),
                    options={"num_warps": 8},
                )
                assert made.asm["cubin"]

from penex.kernels import linear_product as product

tile = product._ROWS, product._COLUMNS, product._DEPTH
signature = {
    "hidden": f"tensordesc<bf16[{tile[0]}, {tile[2]}]>",
    "weight": f"tensordesc<bf16[{tile[1]}, {tile[2]}]>",
    "out": f"tensordesc<bf16[{tile[0]}, {tile[1]}]>",
    "mass": "*fp32", "sums": "*fp32", "rows": "i32", "columns": "i32", "limit": "fp32",
}
names = ("WIDTH", "ROWS", "COLUMNS", "DEPTH", "GROUP", "PROGRAMS")
constants = dict(zip(names, (4096, *tile, product._GROUP, 132)))
made = triton.compile(
    ASTSource(product.powers_of_product, signature | dict.fromkeys(names, "constexpr"), constants),
    target=GPUTarget("cuda", 90, 32),
    options={"num_warps": product._WARPS, "num_stages": product._STAGES},
)
assert "wgmma" in made.asm["ptx"] and made.metadata.shared <= 227 * 1024
print("compiled")
"""


def test_it_compiles_for_ampere_and_hopper_without_a_gpu() -> None:
    check_compiles(COMPILE)


def test_every_piece_of_a_launch_that_is_timed_runs() -> None:
    from benchmarks import launches

    logits, target = torch.randn(8, 10, device=DEVICE), torch.arange(8, device=DEVICE)
    for call in launches.pieces(logits, target).values():
        call()
