"""What every loss must do, one test for all of them, and what each of them claims to be."""

import contextlib
import copy
import inspect
import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import penex
from penex import registry
from penex.baselines import ConfidencePenaltyLoss, FocalLoss, LabelSmoothingLoss
from penex.conex import (
    AugmentedLagrangianLoss,
    ExponentialLoss,
    SquaredPenaltyLoss,
)
from penex.extras import CrossEntropyZLoss, LogPenaltyLoss, UnnormalisedLoss
from penex.rivals import ActivePassive, EarlyLearning, GeneralisedCrossEntropy

from strategies import calls, torchs_own_slips
from strategies import make as ready

NAMES = list(registry.LOSSES)
OURS = [name for name in NAMES if name != "ce"]  # cross-entropy is torch's own
STATEFUL = ["penex", "penex_negative", "unnormalised", "conex_lagrangian", "elr"]
# Penalties of a size that gradcheck can resolve, and the PENEX whose gradient is its value's slope.
SMALL: dict[str, dict[str, Any]] = {
    "penex": {"scale": "paper"},
    "penex_negative": {"scale": "paper"},
    "conex_penalty": {"rho": 0.3},
    "conex_lagrangian": {"rho": 0.3, "nu": 2.0},
}


def make(name: str, **options: Any) -> Any:
    return ready(name, **{**SMALL.get(name, {}), **options})


def batch(seed: int = 0, soft: bool = False, rows: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, 4, generator=generator, dtype=torch.float64)
    if soft:
        return logits, torch.rand(rows, 4, generator=generator, dtype=torch.float64).softmax(1)
    target = torch.randint(4, (rows,), generator=generator)
    target[1] = -100
    return logits, target


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("full", [False, True])
def test_gradcheck(name: str, soft: bool, reduction: str, full: bool) -> None:
    options: dict[str, Any] = {"reduction": reduction}
    if full:
        options["weight"] = torch.tensor([0.5, 2.0, 1.0, 1.5], dtype=torch.float64)
        if name != "label_smoothing":
            options["label_smoothing"] = 0.2
    loss = make(name, **options)
    loss(*batch(1, soft))  # gives a state to those that have one
    if name in STATEFUL:
        loss.eval()  # holds it fixed
    logits, target = batch(2, soft, rows=3)
    inputs = (logits.requires_grad_(), target.requires_grad_() if soft else target)
    assert torch.autograd.gradcheck(loss, inputs)
    assert torch.autograd.gradgradcheck(loss, inputs)


@settings(max_examples=300)
@given(call=calls(), reduction=st.sampled_from(["mean", "sum", "none"]), name=st.sampled_from(OURS))
def test_same_verdict_and_shape_as_torch(
    call: tuple[Tensor, Tensor, dict[str, Any]], reduction: str, name: str
) -> None:
    logits, target, options = call
    smoothing = options["label_smoothing"]
    if torchs_own_slips(logits, target, options) or logits.shape[min(1, logits.dim() - 1)] < 2:
        return
    if name == "label_smoothing" and smoothing <= 1:
        options["epsilon"] = options.pop("label_smoothing")
    elif name == "label_smoothing":
        return
    loss = make(name, reduction=reduction, **options)
    options.pop("epsilon", None)
    options["label_smoothing"] = smoothing
    try:
        expected = torch.nn.functional.cross_entropy(logits, target, reduction=reduction, **options)
    except Exception as error:
        with pytest.raises(type(error)):
            loss(logits, target)
        return
    value = loss(logits, target)
    assert value.shape == expected.shape
    assert value.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_the_names_of_the_arguments_are_cross_entropys(name: str) -> None:
    logits, target = batch()
    value = make(name)(input=logits, target=target)
    assert torch.equal(value, make(name)(logits, target))
    ours = inspect.signature(registry.find(name).make.forward)  # type: ignore[attr-defined]
    own = {"index"} if make(name).wants_index else set()
    kept = [one for one in ours.parameters.values() if one.name not in own]
    assert ours.replace(parameters=kept) == inspect.signature(nn.CrossEntropyLoss.forward)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("soft", [False, True])
def test_logits_may_be_changed_before_the_backward_pass(name: str, soft: bool) -> None:
    """As under cross-entropy: what the gradient needs was kept aside."""
    leaf, target = batch(soft=soft)
    ours, theirs = leaf.clone().requires_grad_(), leaf.clone().requires_grad_()
    logits = 1 * ours
    value = make(name)(logits, target)
    with torch.no_grad():
        logits.zero_()
    value.backward()
    make(name)(1 * theirs, target).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_wide_targets_and_weights_change_no_precision(name: str) -> None:
    """numpy's float64 probabilities with float32 logits: the logits decide."""
    logits, target = batch(soft=True)
    wide = {"weight": torch.tensor([0.5, 2.0, 1.0, 1.5], dtype=torch.float64)}
    narrow = {"weight": wide["weight"].float()}
    if name == "ce":
        return  # torch's own
    ours, theirs = logits.float().requires_grad_(), logits.float().requires_grad_()
    value = make(name, **wide)(ours, target)
    expected = make(name, **narrow)(theirs, target.float())
    value.backward()
    expected.backward()
    assert value.dtype == torch.float32
    assert torch.equal(value, expected)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=0)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_nothing_left_is_zero(name: str, reduction: str, broken: float) -> None:
    loss = make(name, reduction=reduction)
    loss(*batch())
    before = copy.deepcopy(loss.state_dict())
    logits = torch.full((3, 4), broken, requires_grad=True)
    value = loss(logits, torch.full((3,), -100))
    value.sum().backward()
    assert (value == 0).all()
    assert logits.grad is not None
    assert (logits.grad == 0).all()
    assert_same_state(loss.state_dict(), before)
    assert loss(torch.zeros(0, 4), torch.zeros(0).long()).sum() == 0


@pytest.mark.parametrize("name", OURS)
def test_a_broken_batch_shows_and_leaves_the_state(name: str) -> None:
    loss = make(name)
    loss(*batch())
    before = copy.deepcopy(loss.state_dict())
    logits, target = batch(1)
    logits[0, 0] = math.nan
    target[0] = 0
    assert loss(logits, target).isnan()
    assert_same_state(loss.state_dict(), before)


@pytest.mark.parametrize("name", [n for n in OURS if not n.startswith("conex_")])
@pytest.mark.parametrize("soft", [False, True])
def test_a_masked_class_is_legal(name: str, soft: bool) -> None:
    """-inf at a class that is no target; under zero-sum constraints it would have no meaning."""
    if name == "label_smoothing":
        return  # smoothing makes every class a target, as in torch
    logits = torch.tensor([[1.0, -math.inf, -1.0], [0.0, -math.inf, 1.0]], requires_grad=True)
    target = torch.tensor([[0.7, 0.0, 0.3], [0.2, 0.0, 0.8]]) if soft else torch.tensor([0, 2])
    value = make(name)(logits, target)
    value.backward()
    assert value.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert (logits.grad[:, 1] == 0).all()


def assert_same_state(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for key in one:
        assert one[key].dtype == other[key].dtype, key
        assert torch.equal(one[key], other[key]), key


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_state_round_trip(name: str, dtype: torch.dtype) -> None:
    entry = registry.find(name)
    other: dict[str, Any] = {p.name: (p.low + p.default) / 2 + 0.1 for p in entry.parameters}
    weight = torch.tensor([0.5, 2.0, 1.0, 1.5], dtype=dtype)
    saved, fresh = ready(name, **other, weight=weight), ready(name, weight=weight.clone())
    for seed in range(3):
        logits, target = batch(seed)
        saved(logits.to(dtype), target)
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    with pytest.warns(UserWarning, match="settings") if other else contextlib.nullcontext():
        fresh.load_state_dict(torch.load(file, weights_only=True), strict=True)
    for loss in (fresh, copy.deepcopy(saved)):
        for parameter, value in other.items():
            assert getattr(loss, parameter) == value
        assert_same_state(loss.state_dict(), saved.state_dict())
    logits, target = batch(9)
    twin = copy.deepcopy(saved)
    assert torch.equal(fresh(logits.to(dtype), target), saved(logits.to(dtype), target))
    assert torch.equal(twin(logits.to(dtype), target), fresh.eval()(logits.to(dtype), target)) or (
        name in STATEFUL
    )
    assert_same_state(fresh.state_dict(), saved.state_dict())


@pytest.mark.parametrize("name", OURS)
def test_state_travels_in_safetensors(name: str) -> None:
    saved, fresh = make(name), make(name)
    saved(*batch())
    fresh.load_state_dict(safetensors.torch.load(safetensors.torch.save(saved.state_dict())))
    assert_same_state(fresh.state_dict(), saved.state_dict())


@pytest.mark.parametrize("name", STATEFUL)
def test_eval_leaves_the_state_and_half_leaves_the_precision(name: str) -> None:
    loss = make(name)
    loss(*(part.float() if part.is_floating_point() else part for part in batch()))
    before = copy.deepcopy(loss.state_dict())
    loss.half().eval()
    loss(*batch(1))
    assert_same_state(loss.state_dict(), before)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_the_float32_result(name: str, dtype: torch.dtype) -> None:
    logits, target = batch(3)
    half = logits.to(dtype)
    value, expected = make(name)(half, target), make(name)(half.float(), target)
    assert value.dtype == torch.float32
    assert value == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)]
)
def test_compiled_graph_is_whole_and_equal(name: str, dtype: torch.dtype) -> None:
    torch.compiler.reset()
    eager, shadow = make(name), make(name)
    compiled: Any = torch.compile(shadow, fullgraph=True, backend="aot_eager")
    for seed in range(3):
        logits, target = batch(seed)
        ours, theirs = logits.to(dtype, copy=True), logits.to(dtype, copy=True)
        value = compiled(ours.requires_grad_(), target)
        expected = eager(theirs.requires_grad_(), target)
        value.backward()
        expected.backward()
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(ours.grad, theirs.grad)
    for key, saved in shadow.state_dict().items():
        torch.testing.assert_close(saved, eager.state_dict()[key])


@pytest.mark.parametrize("name", NAMES)
def test_every_loss_predicts_in_the_same_way(name: str) -> None:
    loss, logits = make(name), torch.randn(3, 4)
    temperatures = {
        "penex": 1 / 1.1,
        "penex_negative": 1 / 0.7,
        "ex_log_penalty": 1 / 1.1,
        "gce": 1 / (1 - 0.7),
    }
    assert loss.temperature == temperatures.get(name, 1)
    expected = torch.softmax(logits / loss.temperature, dim=1)
    torch.testing.assert_close(loss.probabilities(logits), expected)
    torch.testing.assert_close(torch.softmax(loss.rescale(logits), dim=1), expected)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "loss",
    [
        lambda **o: FocalLoss(0.0, **o),
        lambda **o: FocalLoss(0.0, detach=True, **o),
        lambda **o: ConfidencePenaltyLoss(0.0, **o),
        lambda **o: LabelSmoothingLoss(0.0, **o),
        lambda **o: CrossEntropyZLoss(0.0, **o),
        lambda **o: make("elr", lambda_=0.0, **o),
        lambda **o: registry.make("elr", **o).eval(),  # nothing is known of these examples
    ],
)
def test_zero_is_cross_entropy(loss: Callable[..., nn.Module], soft: bool, weighted: bool) -> None:
    logits, target = batch(4, soft)
    options: dict[str, Any] = {"weight": torch.rand(4, dtype=torch.float64)} if weighted else {}
    expected = nn.CrossEntropyLoss(**options)(logits, target)
    torch.testing.assert_close(loss(**options)(logits, target), expected)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_label_smoothing_is_torchs(soft: bool, epsilon: float) -> None:
    logits, target = batch(5, soft)
    weight = torch.rand(4, dtype=torch.float64)
    expected = nn.CrossEntropyLoss(label_smoothing=epsilon, weight=weight)(logits, target)
    torch.testing.assert_close(LabelSmoothingLoss(epsilon, weight=weight)(logits, target), expected)


def test_closed_forms() -> None:
    logits = torch.randn(5, 4, dtype=torch.float64)
    target = torch.randint(4, (5,))
    p = logits.softmax(1)
    own = p[torch.arange(5), target]
    se = logits.exp().sum(1)
    f_y, h = logits[torch.arange(5), target], logits.sum(1)
    entropy = -(p * p.log()).sum(1)
    cases = {
        FocalLoss(1.5): -((1 - own) ** 1.5) * own.log(),
        ConfidencePenaltyLoss(0.3): -own.log() - 0.3 * entropy,
        CrossEntropyZLoss(0.3): -own.log() + 0.3 * se.log() ** 2,
        ExponentialLoss(): torch.exp(-f_y / 3),
        ExponentialLoss(0.5): torch.exp(-0.5 * f_y),
        SquaredPenaltyLoss(2.0): torch.exp(-f_y / 3) + (h**2).mean() * h**2,
        UnnormalisedLoss(): -f_y + se / se.mean(),
        LogPenaltyLoss(0.3, 2.0): torch.exp(-0.3 * f_y) + 2 * se.log(),
        LogPenaltyLoss(0.3): torch.exp(-0.3 * f_y) + 0.3 * se.log(),
    }
    for loss, expected in cases.items():
        torch.testing.assert_close(loss(logits, target), expected.mean(), rtol=1e-9, atol=1e-9)


@given(
    st.floats(0.02, 2), st.floats(0.05, 20), st.lists(st.floats(0.01, 1), min_size=2, max_size=6)
)
def test_the_log_penaltys_minimiser_predicts_at_the_temperature(
    alpha: float, rho: float, masses: list[float]
) -> None:
    """The gradient is 0 at P = (rho / alpha) softmax(f) exp(alpha f), which is found in full."""
    p = torch.tensor(masses, dtype=torch.float64)
    p = p / p.sum()
    g = p.log() / (1 + alpha)
    f = g - (rho / alpha * (g.softmax(0) * (alpha * g).exp()).sum()).log() / alpha
    f = f.unsqueeze(0).requires_grad_()
    loss = LogPenaltyLoss(alpha, rho)
    (slope,) = torch.autograd.grad(loss(f, p.unsqueeze(0)), f)
    assert slope.abs().max().item() <= 1e-9 * max(1.0, rho)
    torch.testing.assert_close(loss.probabilities(f.detach())[0], p)


def test_the_log_penalty_at_the_best_shift_is_a_tilted_cross_entropy() -> None:
    logits = torch.randn(7, 4, dtype=torch.float64)
    target = torch.randint(4, (7,))
    f_y, alpha, rho = logits[torch.arange(7), target], 0.4, 3.0
    ex = torch.exp(-alpha * f_y).mean()
    shift = (alpha * ex / rho).log() / alpha
    loss = LogPenaltyLoss(alpha, rho)
    best = loss(logits + shift, target)
    tilted = ex.log() / alpha + torch.logsumexp(logits, 1).mean()
    torch.testing.assert_close(best, rho * (tilted + (1 + math.log(alpha / rho)) / alpha))
    for other in (-0.1, 0.1):
        assert loss(logits + shift + other, target) > best


def rivals_in_loops(u: list[float], p: list[float]) -> dict[str, float]:
    """The published formulas for each label j that an example may have, weighed by u_j."""
    classes = range(len(p))
    found = dict.fromkeys(("brier", "gce", "nce_rce", "elr"), 0.0)
    near = [min(max(v, 1e-4), 1 - 1e-4) for v in p]
    memory = [0.7 * 0.0 + (1 - 0.7) * v / sum(near) for v in near]
    agreement = sum(a * b for a, b in zip(near, memory, strict=True))
    for y in classes:
        found["brier"] += u[y] * sum((p[j] - (1.0 if j == y else 0.0)) ** 2 for j in classes)
        found["gce"] += u[y] * (1 - p[y] ** 0.7) / 0.7
        normalised = math.log(p[y]) / sum(math.log(p[j]) for j in classes)
        label = [1.0 if j == y else 1e-4 for j in classes]
        reverse = -sum(p[j] * math.log(label[j]) for j in classes)
        found["nce_rce"] += u[y] * (normalised + reverse)
        found["elr"] += u[y] * (-math.log(p[y]) + 3.0 * math.log(1 - agreement))
    return found


def values_in_loops(
    name: str, logits: Tensor, target: Tensor, weight: list[float], smoothing: float
) -> tuple[list[float], float]:
    """The losses of the rows and D, from the definition of u_ij, number by number."""
    classes, hard = logits.shape[1], target.dim() == 1
    table = []
    for f, y in zip(logits.tolist(), target.tolist(), strict=True):
        q = [float(j == y) for j in range(classes)] if hard else y
        u = [
            w * ((1 - smoothing) * p + smoothing / classes) for w, p in zip(weight, q, strict=True)
        ]
        kept = not (hard and y == -100)
        table.append((f, u if kept else [0.0] * classes))
    total = sum(weight[y] for y in target.tolist() if y != -100) if hard else float(len(table))

    sums_of_exp = [sum(math.exp(v) for v in f) for f, _ in table]
    mean_se = sum(sum(u) * s for (_, u), s in zip(table, sums_of_exp, strict=True)) / total
    mean_mass = sum(sum(u) for _, u in table) / total
    violation = sum(sum(u) * sum(f) ** 2 for f, u in table) / total
    losses = []
    for (f, u), se in zip(table, sums_of_exp, strict=True):
        mass, log_p = sum(u), [v - math.log(se) for v in f]
        cross = -sum(a * b for a, b in zip(u, log_p, strict=True))
        ex = sum(a * math.exp(-v / 3) for a, v in zip(u, f, strict=True))
        mild = sum(a * math.exp(-v / 10) for a, v in zip(u, f, strict=True))
        entropy = -sum(math.exp(v) * v for v in log_p)
        faded = [a * (1 - math.exp(v)) ** 2 * v for a, v in zip(u, log_p, strict=True)]
        own = sum(a * v for a, v in zip(u, f, strict=True))
        penalised = ex + 0.15 * violation * mass * sum(f) ** 2
        every = {
            "label_smoothing": cross,
            "confidence_penalty": cross - 0.1 * mass * entropy,
            "focal": -sum(faded),
            "ex": ex,
            "conex_hard": ex,
            "conex_penalty": penalised,
            "conex_lagrangian": penalised,  # the dual variable is still 0
            "ce_zloss": cross + 0.01 * mass * math.log(se) ** 2,
            "unnormalised": -own + mean_mass / mean_se * mass * se,
            "ex_log_penalty": mild + 0.1 * mass * math.log(se),
            **rivals_in_loops(u, [math.exp(v) for v in log_p]),
        }
        losses.append(every[name])
    return losses, total


@pytest.mark.parametrize(
    "name", [n for n in OURS if not n.startswith("penex")]
)  # it has its own oracle
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_values_equal_the_definition_in_loops(
    name: str, soft: bool, smoothing: float, scale: float
) -> None:
    logits, target = batch(8, soft)
    logits = scale * logits
    weight = [0.5, 2.0, 1.0, 1.5]
    options: dict[str, Any] = {"weight": torch.tensor(weight, dtype=torch.float64)}
    options["epsilon" if name == "label_smoothing" else "label_smoothing"] = smoothing
    expected, total = values_in_loops(name, logits, target, weight, smoothing)
    rows = make(name, reduction="none", **options)(logits, target)
    torch.testing.assert_close(rows, torch.tensor(expected, dtype=torch.float64))
    summed = make(name, reduction="sum", **options)(logits, target)
    mean = make(name, reduction="mean", **options)(logits, target)
    assert summed.item() == pytest.approx(sum(expected))
    assert mean.item() == pytest.approx(sum(expected) / total)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_can_be_tried_on_meta_tensors(name: str) -> None:
    loss = make(name)
    before = copy.deepcopy(loss.state_dict())
    target = torch.zeros(3, dtype=torch.int64, device="meta")
    assert loss(torch.zeros(3, 4, device="meta"), target).shape == ()
    assert_same_state(loss.state_dict(), before)


def test_detached_focal_holds_its_factor_constant() -> None:
    logits, target = batch(6)
    logits, target = logits[2:].requires_grad_(), target[2:]
    (ours,) = torch.autograd.grad(FocalLoss(2.0, detach=True)(logits, target), logits)
    log_p = torch.log_softmax(logits, dim=1).gather(1, target[:, None]).squeeze(1)
    factor = (1 - log_p.exp()).square().detach()
    (expected,) = torch.autograd.grad((-factor * log_p).mean(), logits)
    torch.testing.assert_close(ours, expected)
    whole = torch.autograd.grad(FocalLoss(2.0)(logits, target), logits)[0]
    assert not torch.allclose(ours, whole)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 2.0])
def test_focal_of_a_certain_example_has_a_gradient(gamma: float) -> None:
    logits = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    loss = FocalLoss(gamma)(logits, torch.tensor([0]))
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("alpha", [1e-7, -1e-7])
def test_unnormalised_is_the_limit_of_penex(alpha: float) -> None:
    logits, target = batch(7)
    logits.requires_grad_()
    (limit,) = torch.autograd.grad(UnnormalisedLoss()(logits, target), logits)
    loss = penex.PENEX(alpha, rho_min=1e-12, scale="paper")
    (ours,) = torch.autograd.grad(loss(logits, target) / abs(alpha), logits)
    torch.testing.assert_close(ours, limit, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("make_bad", "sentence"),
    [
        (lambda: LabelSmoothingLoss(1.5), "epsilon must be.*at least 0 and at most 1; got 1.5"),
        (lambda: ConfidencePenaltyLoss(-1), "lambda_ must be.*at least 0; got -1"),
        (lambda: FocalLoss(float("nan")), "gamma must be"),
        (lambda: ExponentialLoss(0), "alpha must be a finite number above 0; got 0"),
        (lambda: SquaredPenaltyLoss(-1), "rho must be"),
        (lambda: AugmentedLagrangianLoss(1, 0), "nu must be a finite number above 0"),
        (lambda: GeneralisedCrossEntropy(1), "q must be.*above 0 and below 1; got 1"),
        (lambda: GeneralisedCrossEntropy(0), "q must be.*above 0 and below 1; got 0"),
        (lambda: ActivePassive(a=-1), "a must be"),
        (lambda: EarlyLearning(beta=1.0), "beta must be.*at least 0 and below 1; got 1"),
        (lambda: FocalLoss(reduction="avg"), "reduction must be one of mean, sum, none; got 'avg'"),
        (lambda: ExponentialLoss()(torch.zeros(2, 1), torch.zeros(2).long()), "two classes; the"),
    ],
)  # fmt: skip
def test_bad_arguments_get_a_sentence(make_bad: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_bad()


def test_unknown_options_are_named() -> None:
    with pytest.raises(TypeError, match="FocalLoss has no option smoothing"):
        FocalLoss(smoothing=0.1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes no label_smoothing"):
        LabelSmoothingLoss(0.1, label_smoothing=0.1)


def test_the_registry_has_the_names_of_the_command_line() -> None:
    assert NAMES == [
        "ce", "label_smoothing", "confidence_penalty", "focal", "penex",
        "penex_negative", "ex", "conex_penalty",
        "conex_lagrangian", "conex_hard", "ce_zloss", "unnormalised", "ex_log_penalty",
        "brier", "gce", "nce_rce", "elr",
    ]  # fmt: skip
    for name, entry in registry.LOSSES.items():
        assert entry.name == name
        assert entry.meaning
        assert entry.ours == (
            name in ("penex_negative", "ce_zloss", "unnormalised", "ex_log_penalty")
        )
        assert entry.zero_sum_head == (name == "conex_hard")
        for parameter in entry.parameters:
            assert parameter.low <= parameter.default <= parameter.high
            for value in (parameter.low, parameter.default, parameter.high):
                loss = registry.make(name, **{parameter.name: value})
                assert getattr(loss, parameter.name) == value


def test_an_unknown_loss_gets_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"There is no loss 'pennex'\. Did you mean 'penex'\?"):
        registry.make("pennex")
    with pytest.raises(ValueError, match="The losses are ce, label_smoothing"):
        registry.find("?")
    with pytest.raises(ValueError, match="There is no loss None"):
        registry.find(None)  # type: ignore[arg-type]


def test_a_state_of_another_loss_is_refused_in_words() -> None:
    words = "The state is not one of PENEX: it has 1 settings, not 2"
    with pytest.raises((RuntimeError, ValueError), match=words):
        penex.PENEX().load_state_dict(make("unnormalised").state_dict())


def test_a_loss_shows_how_it_was_made() -> None:
    assert repr(penex.PENEX(0.2, rho=0.5)) == "PENEX(alpha=0.2, rho=0.5)"
