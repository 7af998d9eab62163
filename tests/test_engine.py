"""The engine: optimisers are torch's, a step is a plain loop's, resuming is bit for bit."""

import copy
import errno
import json
import math
import random
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from penex import PENEX, registry
from penex.lab import tasks, training
from penex.lab.data import Data
from penex.lab.engine import checkpoint, loop, optimizers, replayed, schedule, seeds
from penex.lab.engine.evaluation import logits_of
from penex.lab.engine.learner import Learner
from penex.lab.engine.recipe import Recipe
from penex.lab.engine.step import HISTORY, step
from penex.lab.ground import chance
from penex.lab.ground.batches import Batches
from penex.lab.ground.errors import Interrupted, LabError, RecordError
from penex.lab.models import find
from penex.lab.models.layers import Cutting, Dropout, seed_all
from penex.lab.tasks import runs

from witness import fit_alone

CPU = torch.device("cpu")
DIGITS = tasks.find("digits")
LOSSES = list(registry.LOSSES)


def some_slow(names: list[str], quick: tuple[str, ...]) -> list[Any]:
    """All names, those that are not quick for `make test-all`."""
    slow = pytest.mark.slow
    return [name if name in quick else pytest.param(name, marks=slow) for name in names]


def digits_run(loss: str = "penex", size: int = 100, **changes: Any) -> runs.Run:
    return runs.plan(DIGITS, runs.LossSpec(loss), 0, size, {"epochs": 2, **changes})


def start(run: runs.Run) -> tuple[Learner, Data, loop.Position]:
    data = training.Place(Path(), CPU).data(run)
    learner = training.learner_of(run, data, CPU)
    return learner, data, loop.start(learner, data)


def fit(learner: Learner, data: Data, position: loop.Position, **options: Any) -> loop.Outcome:
    outcome = fit_alone(learner, data, position, **options)
    assert outcome is not None
    return outcome


# The optimisers.


@pytest.mark.parametrize(
    ("recipe", "theirs"),
    [
        (Recipe(1, 1e-2), lambda p: torch.optim.Adam(p, lr=1e-2)),
        (
            Recipe(1, 1e-2, weight_decay=0.1),
            lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.1),
        ),
        (
            Recipe(1, 1e-2, optimizer="adamw", weight_decay=0.01),
            lambda p: torch.optim.AdamW(p, lr=1e-2),
        ),
        (Recipe(1, 1e-2, optimizer="sgd"), lambda p: torch.optim.SGD(p, lr=1e-2)),
        (
            Recipe(1, 1e-2, optimizer="sgd", momentum=0.9, weight_decay=5e-4),
            lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=5e-4),
        ),
    ],
)
@pytest.mark.parametrize("fused", [True, False])
def test_optimisers_are_torchs(
    recipe: Recipe, theirs: Callable[[list[Tensor]], torch.optim.Optimizer], fused: bool
) -> None:
    """Adam by torch's kernel for the CPU, and as on a GPU."""
    ours = torch.randn(50, dtype=torch.float64)
    parameter = nn.Parameter(ours.clone())
    optimizer = theirs([parameter])
    own, slots = optimizers.make(recipe, ours)
    if isinstance(own, optimizers.Adam):
        own = replace(own, fused=fused)
    rate = torch.tensor(recipe.lr, dtype=torch.float64)
    for k in range(1, 51):
        grad = torch.randn(50, dtype=torch.float64)
        parameter.grad = grad.clone()
        optimizer.step()
        count = torch.tensor(float(k), dtype=torch.float64)
        own.update(ours, grad, slots, own.factors(rate, count))
    torch.testing.assert_close(ours, parameter.detach(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("fused", [True, False])
def test_an_axis_of_models_has_its_own_rates_and_norms(fused: bool) -> None:
    """What packing needs: row by row it is what each model does alone."""
    grads = torch.randn(3, 20, dtype=torch.float64) * torch.tensor([[0.1], [1.0], [10.0]])
    rates = torch.tensor([[1e-3], [1e-2], [1e-1]], dtype=torch.float64)
    count = torch.tensor(1.0, dtype=torch.float64)
    packed = torch.zeros(3, 20, dtype=torch.float64)
    adam = optimizers.Adam(0.1, decoupled=True, dtype=torch.float64, fused=fused)
    _, slots = optimizers.make(Recipe(1, 1.0), packed)
    together = grads.clone()
    norms = optimizers.clip_(together, 2.0)
    adam.update(packed, together, slots, adam.factors(rates, count))
    for row in range(3):
        theta = torch.zeros(20, dtype=torch.float64)
        _, slots = optimizers.make(Recipe(1, 1.0), theta)
        alone = grads[row].clone()
        torch.testing.assert_close(norms[row], optimizers.clip_(alone, 2.0))
        adam.update(theta, alone, slots, adam.factors(rates[row], count))
        torch.testing.assert_close(packed[row], theta)


@given(scale=st.floats(1e-3, 1e3), largest=st.floats(1e-2, 1e2))
def test_clipping_is_torchs(scale: float, largest: float) -> None:
    grad = torch.linspace(-1, 1, 31, dtype=torch.float64) * scale
    parameter = nn.Parameter(torch.zeros(31, dtype=torch.float64))
    parameter.grad = grad.clone()
    theirs = nn.utils.clip_grad_norm_([parameter], largest)
    torch.testing.assert_close(optimizers.clip_(grad, largest), theirs)
    torch.testing.assert_close(grad, parameter.grad)


# The schedule.


def test_schedules_are_torchs() -> None:
    def theirs(make: Callable[[torch.optim.Optimizer], Any], total: int) -> Tensor:
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
        scheduler = make(optimizer)
        seen = []
        for _ in range(total):
            seen.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return torch.tensor(seen, dtype=torch.float64)

    cosine = schedule.rates(Recipe(10, 0.5, schedule="cosine"), 4)
    expected = theirs(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 40), 40)
    torch.testing.assert_close(cosine, expected)
    linear = schedule.rates(Recipe(10, 0.5, schedule="linear"), 4)
    expected = theirs(lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda s: 1 - s / 40), 40)
    torch.testing.assert_close(linear, expected)
    assert schedule.rates(Recipe(2, 0.5), 3).tolist() == [0.5] * 6


def test_the_warm_up_rises_to_the_full_rate() -> None:
    rates = schedule.rates(Recipe(10, 1.0, schedule="cosine", warmup_epochs=2), 5)
    assert rates[:10].tolist() == pytest.approx([k / 10 for k in range(1, 11)])
    assert rates[10] == 1.0
    assert (rates[10:].diff() < 0).all()
    assert 0 < rates[-1] < 0.01
    with pytest.raises(LabError, match="A warm-up of 10 epochs leaves nothing of 10"):
        schedule.rates(Recipe(10, 1.0, warmup_epochs=10), 5)


# The step against a loop that anyone would write.


@pytest.mark.parametrize("loss", some_slow(LOSSES, ("ce", "penex", "conex_lagrangian")))
def test_the_engine_is_a_plain_loop(loss: str) -> None:
    """Twenty steps in float64 with clipping: parameters and loss state, to 1e-12."""
    run = digits_run(loss, size=160, epochs=10, dtype="float64", clip=0.5, batch_size=80)
    learner, data, position = start(run)
    for layer in learner.dropouts:
        layer.p = 0.0
    model = copy.deepcopy(learner.module)
    criterion = copy.deepcopy(learner.loss)
    for parameter in model.parameters():
        parameter.grad = None
    optimizer = torch.optim.Adam(model.parameters(), lr=run.recipe.lr)
    fit(learner, data, position)

    model.train()
    for epoch in range(10):
        for index in torch.split(seeds.order(0, epoch, 160), 80):
            optimizer.zero_grad()
            x = data.normalise(data.train.batch(index), torch.float64)
            targets = data.train.targets[index]
            criterion(model(x), targets, **criterion.asked(index)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
    for ours, theirs in zip(learner.module.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    state, expected = learner.loss.state_dict(), criterion.state_dict()
    for name in expected:
        torch.testing.assert_close(state[name], expected[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_micro_batches_make_the_whole_batch(loss: str) -> None:
    """Also where they are uneven: 100 examples in batches of 64 and 36, cut into 3 each.

    Only a loss that is a function of the whole batch cannot be cut: CONEX squares a mean.
    """
    results = []
    for accumulate in (1, 3):
        learner, data, position = start(
            digits_run(loss, dtype="float64", accumulate=accumulate, optimizer="sgd", lr=0.1)
        )
        for layer in learner.dropouts:
            layer.p = 0.0
        fit(learner, data, position)
        results.append(learner.theta.clone())
    difference = (results[0] - results[1]).norm() / results[0].norm()
    if loss.startswith("conex_") and loss != "conex_hard":
        assert difference > 1e-10
    elif loss in ("penex", "penex_negative", "unnormalised"):
        # In the first window rho is the running estimate of the micro-batches seen so far.
        assert difference < 0.05
    else:
        assert difference < 1e-12


def test_the_window_of_penex_closes_with_every_batch() -> None:
    """Also with a batch too small for all micro-batches: 97 examples in batches of 32."""
    learner, data, position = start(digits_run("penex", size=97, batch_size=32, accumulate=3))
    fit(learner, data, position)
    window = learner.loss.window
    assert isinstance(window, Tensor)
    assert window.tolist() == [0.0] * 4


def test_class_weights_weigh_micro_batches() -> None:
    """A micro-batch's share is its share of the class weights, not of the examples."""
    run = digits_run("focal", dtype="float64", epochs=1, optimizer="sgd", lr=0.1)
    results = []
    for accumulate in (1, 4):
        learner, data, position = start(
            replace(run, recipe=replace(run.recipe, accumulate=accumulate))
        )
        learner.loss.weight = torch.linspace(0.1, 3.0, 10, dtype=torch.float64)
        for layer in learner.dropouts:
            layer.p = 0.0
        fit(learner, data, position)
        results.append(learner.theta.clone())
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-13)


def test_a_step_changes_the_learners_tensors_in_place() -> None:
    """Where they lie is what a captured graph remembers."""
    learner, data, position = start(digits_run())
    before = {name: tensor.data_ptr() for name, tensor in learner.tensors().items()}
    fit(learner, data, position)
    after = learner.tensors()
    extra = "loss._extra_state"  # the settings, written anew each time they are asked for
    assert {n: t.data_ptr() for n, t in after.items() if n != extra} == {
        n: p for n, p in before.items() if n != extra
    }
    for parameter in learner.module.parameters():
        assert parameter.untyped_storage().data_ptr() == learner.theta.untyped_storage().data_ptr()
        assert parameter.grad is not None
        assert (
            parameter.grad.untyped_storage().data_ptr() == learner.grad.untyped_storage().data_ptr()
        )
    assert learner.count.item() == 4


def test_the_history_is_what_the_step_saw() -> None:
    learner, data, position = start(digits_run(clip=1e-9))
    for layer in learner.dropouts:
        layer.p = 0.0
    twin, criterion = copy.deepcopy(learner.module), copy.deepcopy(learner.loss)
    index = torch.arange(50)
    step(learner, data, index, torch.tensor(1e-3), position.history[0])
    x, y = data.normalise(data.train.batch(index), torch.float32), data.train.targets[index]
    logits = twin(x)
    value = criterion(logits, y)
    norm = torch.cat(
        [g.flatten() for g in torch.autograd.grad(value, list(twin.parameters()))]
    ).norm()
    seen = dict(zip(HISTORY, position.history[0].tolist(), strict=True))
    assert seen["loss"] == pytest.approx(value.item(), rel=1e-6)
    assert seen["grad_norm"] == pytest.approx(norm.item(), rel=1e-5)
    assert seen["max_logit"] == pytest.approx(logits.abs().max().item(), rel=1e-6)
    assert seen["rho"] == pytest.approx(float(criterion.rho), rel=1e-6)  # type: ignore[arg-type]


class Faithful:
    """What a recording does, without a GPU: it warms up, then repeats the step."""

    def __init__(self, step: Callable[..., None], inputs: Sequence[Tensor], pool: object) -> None:
        self.step, self.inputs = step, inputs
        for _ in range(3):
            step(*inputs)

    def __call__(self, *given: Tensor) -> None:
        self.step(*given)


class Stale(Faithful):
    """A recording that reads the batch it was made with."""

    def __call__(self, *given: Tensor) -> None:
        self.step(self.inputs[0].flip(0)[:1], *given[1:])


class Frozen(Faithful):
    """A recording that leaves the parameters as they are."""

    def __call__(self, *given: Tensor) -> None:
        self.step(given[0], torch.zeros_like(given[1]), given[2])


@pytest.mark.parametrize("kind", [Faithful, Stale, Frozen])
def test_a_recording_is_used_if_it_does_what_a_step_does(
    kind: type[Faithful], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And making and trying it leaves no trace: not in the learner, not in the generators."""
    monkeypatch.setattr(replayed, "_may_record", lambda learner, data: True)
    monkeypatch.setattr(replayed, "Recording", kind)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    drawing = replace(DIGITS, build=lambda _, classes: nn.Sequential(
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, classes)
    ))  # fmt: skip
    ends = []
    for steps in (0, replayed.LONG):
        run = runs.plan(drawing, runs.LossSpec("penex"), 0, 100)
        data = training.Place(Path(), CPU).data(run)
        learner = training.learner_of(run, data, CPU)
        learner.train()
        take = replayed.Replayed(learner, data, steps)
        row = torch.zeros(len(HISTORY), dtype=torch.float64)
        for k in range(4):
            chance.sow(k)
            take(torch.arange(10 * k, 10 * k + 10 - k % 2), torch.tensor(0.01), row, None)
        assert len(take._recorded) == (2 if steps and kind is Faithful else 0)
        ends.append([learner.theta, learner.loss.rho, learner.count, row])
    for plain, recorded in zip(*ends, strict=True):
        assert plain.equal(recorded)
    assert ("not recorded" in capsys.readouterr().err) == (kind is not Faithful)


@pytest.mark.parametrize("loss", ["penex", "ce", "conex_lagrangian"])
def test_micro_batches_that_go_in_together_give_the_same(loss: str) -> None:
    """The loss still sees one after another, and rho moves once a batch; 7 are not cut evenly."""
    ends = []
    for joins in (False, True):
        recipe = replace(DIGITS.recipe, accumulate=3, dtype="float64", epochs=1)
        run = runs.plan(replace(DIGITS, recipe=recipe), runs.LossSpec(loss), 0, 100)
        data = training.Place(Path(), CPU).data(run)
        learner = training.learner_of(run, data, CPU)
        learner.train()
        learner.joins = joins
        row = torch.zeros(len(HISTORY), dtype=torch.float64)
        for k in range(4):
            step(learner, data, torch.arange(7 * k, 7 * k + 7), torch.tensor(0.01), row)
        step(learner, data, torch.arange(2), torch.tensor(0.01), row)  # fewer than micro-batches
        ends.append([learner.theta, learner.rho.nan_to_num(), row.nan_to_num()])
    for apart, together in zip(*ends, strict=True):
        torch.testing.assert_close(together, apart, rtol=1e-10, atol=1e-12)


def test_micro_batches_go_in_one_by_one_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By then what was computed for all of them at once is gone."""
    computed: list[weakref.ref[torch.Tensor]] = []

    class Short(Faithful):
        def __init__(self, *given: Any) -> None:
            if learner.joins:
                activations = torch.zeros(3)
                computed.append(weakref.ref(activations))
                raise torch.OutOfMemoryError("too little")
            assert computed[0]() is None
            super().__init__(*given)

    monkeypatch.setattr(replayed, "_may_record", lambda learner, data: True)
    monkeypatch.setattr(replayed, "Recording", Short)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    run = runs.plan(replace(DIGITS, build=lambda _, n: Whole(n)), runs.LossSpec("penex"), 0, 100)
    data = training.Place(Path(), CPU).data(run)
    learner = training.learner_of(run, data, CPU)
    learner.train()
    take = replayed.Replayed(learner, data, replayed.LONG)
    assert learner.joins
    row = torch.zeros(len(HISTORY), dtype=torch.float64)
    take(torch.arange(4), torch.tensor(0.01), row, 8)
    assert (learner.joins, len(take._recorded)) == (False, 1)
    assert not capsys.readouterr().err


def test_micro_batches_that_batch_norm_would_see_together_go_in_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Normed(Whole):
        def __init__(self, classes: int) -> None:
            super().__init__(classes)
            self.layer = nn.Sequential(nn.Linear(64, classes), nn.BatchNorm1d(classes))

    monkeypatch.setattr(replayed, "_may_record", lambda learner, data: True)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    for network, joins in ((Whole, True), (Normed, False)):
        run = digits_run()
        data = training.Place(Path(), CPU).data(run)
        learner = Learner(network(10), PENEX(), run.recipe, CPU)
        replayed.Replayed(learner, data, replayed.LONG)
        assert learner.joins == joins


class Whole(Cutting):
    """A network of inputs that need all of their columns."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layer(x.flatten(1))
        return logits

    def lengths(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.full((len(inputs),), inputs.shape[1])


def test_evaluation_changes_nothing() -> None:
    learner, data, position = start(digits_run())
    fit(learner, data, position)
    before = {name: tensor.clone() for name, tensor in learner.tensors().items()}
    random = torch.get_rng_state()
    first = logits_of(learner, data, data.test)
    assert torch.equal(first, logits_of(learner, data, data.test))
    assert all(torch.equal(t, before[n]) for n, t in learner.tensors().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert learner.module.training
    assert learner.loss.training


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("cnn", (1, 8, 8), 2048),
        ("cnn", (3, 32, 32), 2048),
        ("resnet18", (3, 32, 32), 2048),
        ("resnet18", (3, 64, 64), 512),
        ("mlp", (4,), 2048),
    ],
)
def test_large_images_are_evaluated_fewer_at_a_time(
    name: str, shape: tuple[int, ...], size: int
) -> None:
    """As many as always for the paper's shapes, and 2 GiB whatever the images."""
    network, batches = find(name)(shape, 10).eval(), Batches(CPU)
    with torch.no_grad():
        batches(lambda start, stop: network(torch.zeros(stop - start, *shape)), 2)
    assert batches.size == size


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."),
    ],
)
def test_a_batch_that_memory_is_too_short_for_is_halved(error: Exception) -> None:
    """The numbers are the same, in the same order, and the smaller size stays."""
    learner, data, _ = start(digits_run(dtype="float64"))
    expected = logits_of(learner, data, data.test)
    module, sizes = learner.module, []

    def short(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        sizes.append(len(inputs[0]))
        if len(inputs[0]) > 100:
            raise error

    module.register_forward_pre_hook(short)
    for _ in range(2):
        torch.testing.assert_close(logits_of(learner, data, data.test), expected)
    n = len(data.test)
    tried = [n, n // 2, n // 4, n // 8]
    assert sizes[: len(tried)] == tried
    assert max(sizes[len(tried) :]) == learner.batches.size == n // 8


def test_another_error_than_lack_of_memory_is_raised() -> None:
    def wrong(start: int, stop: int) -> Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        Batches(CPU)(wrong, 10)

    def full(start: int, stop: int) -> Tensor:
        if stop - start > 2:
            raise MemoryError
        if start:
            raise MemoryError("even of one")
        return torch.zeros(stop - start)

    with pytest.raises(MemoryError, match="even of one"):
        Batches(CPU)(full, 10)


def test_autocast_trains_in_bfloat16_and_keeps_float32() -> None:
    learner, data, position = start(digits_run(autocast=True))
    seen = []
    learner.module.register_forward_hook(lambda m, i, o: seen.append((m.training, o.dtype)))
    lines: list[Any] = []
    assert fit(learner, data, position, lines=lines).status == "completed"
    assert set(seen) == {(True, torch.bfloat16), (False, torch.float32)}
    assert learner.theta.dtype == torch.float32
    assert math.isfinite(lines[-1]["validation"]["cross_entropy"])


# Dropout.


def seeded(p: float, seed: Tensor, count: int = 1) -> Dropout:
    layer = Dropout(p)
    seed_all(layer, seed, torch.tensor(count))
    return layer


@pytest.mark.parametrize("seed", [None, torch.tensor(5)])
def test_dropout_drops_and_scales(seed: Tensor | None) -> None:
    layer = Dropout(0.25) if seed is None else seeded(0.25, seed)
    x = torch.ones(400, 100)
    y = layer(x)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert y.mean().item() == pytest.approx(1.0, abs=0.02)
    assert torch.equal(layer.eval()(x), x)


def test_processes_and_micro_batches_drop_what_one_would() -> None:
    layer = seeded(0.5, torch.tensor(3))
    x = torch.ones(7, 5)
    whole = layer(x)
    rows = []
    for first, last in ((0, 3), (3, 7)):
        layer.first = first
        rows.append(layer(x[first:last]))
    assert torch.equal(torch.cat(rows), whole)


def test_a_pack_drops_what_each_would() -> None:
    seeds_ = torch.tensor([11, 12, 13])
    packed = seeded(0.5, seeds_, 9)(torch.ones(3, 40, 30))
    for k, seed in enumerate(seeds_):
        assert torch.equal(packed[k], seeded(0.5, seed, 9)(torch.ones(40, 30)))


def test_masks_of_seeds_steps_and_places_are_unlike() -> None:
    """Uniform, and uncorrelated between neighbours of every kind."""
    seeds_ = torch.arange(20)
    places = chance.places(0, 64, 50, CPU)
    drawn = torch.stack([chance.uniform(seeds_, torch.tensor(k), places) for k in range(20)])
    drawn = drawn.view(20, 20, 64, 50)
    histogram = torch.histc(drawn, 20, 0, 1) / drawn.numel() * 20
    assert (histogram - 1).abs().max() < 0.02
    centred = drawn.double() - 0.5
    for shift in ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0, 7)):
        product = (centred * centred.roll(shift, (0, 1, 2, 3))).mean() * 12
        assert abs(product.item()) < 0.005


# Divergence.


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    learner, data, position = start(digits_run("conex_penalty", size=300, epochs=3, lr=1e3))
    lines: list[Any] = []
    outcome = fit(learner, data, position, lines=lines)
    assert outcome.status == "diverged"
    assert not math.isfinite(outcome.numbers["loss"] or 0.0)
    assert f"at step {outcome.steps}" in outcome.reason
    assert "gradient norm" in outcome.reason
    assert "largest logit" in outcome.reason
    assert len(lines) == (outcome.steps - 1) // 5


def test_a_last_step_that_breaks_the_parameters_is_found_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner, data, position = start(digits_run("ce", epochs=1, batch_size=100))
    monkeypatch.setattr(optimizers.Adam, "update", lambda _, theta, *__: theta.fill_(math.nan))
    outcome = fit(learner, data, position)
    assert outcome.status == "diverged"
    assert outcome.reason.startswith("the parameters were not finite at step 1 ")


def test_a_gradient_whose_norm_overflows_is_skipped_as_in_torch() -> None:
    """Its entries are finite: clipping scales them to nothing, and training goes on."""
    learner, data, position = start(digits_run("conex_penalty"))
    learner.loss.rho = 1e30  # type: ignore[assignment]
    assert fit(learner, data, position).status == "completed"
    assert position.history[0, HISTORY.index("grad_norm")].isinf()


# Checkpoints.


def final_state(learner: Learner, position: loop.Position) -> dict[str, Tensor]:
    state = {name: tensor.clone() for name, tensor in learner.tensors().items()}
    return {**state, "history": position.history.clone(), "random": torch.get_rng_state()}


@settings(max_examples=12)
@given(
    loss=st.sampled_from(LOSSES),
    stop_at=st.integers(1, 7),
    optimizer=st.sampled_from(["adam", "sgd"]),
    accumulate=st.integers(1, 3),
)
def test_resuming_at_any_step_is_bit_identical(
    tmp_path_factory: pytest.TempPathFactory,
    loss: str,
    stop_at: int,
    optimizer: str,
    accumulate: int,
) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    run = digits_run(
        loss,
        epochs=4,
        optimizer=optimizer,
        momentum=0.9 if optimizer == "sgd" else 0.0,
        accumulate=accumulate,
        schedule="cosine",
    )
    learner, data, position = start(run)
    lines: list[Any] = []
    fit(learner, data, position, lines=lines)
    expected = final_state(learner, position)

    learner, data, position = start(run)
    first: list[Any] = []
    with pytest.raises(Interrupted):
        fit(
            learner,
            data,
            position,
            lines=first,
            stop=lambda: learner.count.item() == stop_at,
            save=lambda place: checkpoint.save(folder, learner, place),
        )
    torch.manual_seed(12345)  # another process would have other random numbers
    learner, data, position = start(run)
    assert checkpoint.load(folder, learner, position)
    assert (position.epoch, position.step) == (stop_at // 2, stop_at % 2)
    fit(learner, data, position, lines=first)
    state = final_state(learner, position)
    assert state.keys() == expected.keys()
    for name, tensor in expected.items():  # by their bytes: NaN stands for a rho that is not there
        assert state[name].numpy().tobytes() == tensor.numpy().tobytes(), name
    assert first == lines


class Drawing(nn.Module):
    """A layer of a user's that draws from every generator, and keeps a buffer to itself."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x * (1 + self.seen)
        self.seen.lerp_(x.abs().mean().detach(), 0.1)
        noise = torch.randn_like(x) + random.random() + float(np.random.random())
        return x + 0.1 * noise


def with_noise(shape: Sequence[int], n_out: int) -> nn.Module:
    """Draws in a layer of torch's, in one of the user's and in a hook."""
    last = nn.Linear(9 * shape[0], n_out)
    last.register_forward_hook(
        lambda layer, _, out: out + 0.1 * torch.rand_like(out) if layer.training else out
    )
    return nn.Sequential(
        nn.FractionalMaxPool2d(2, output_size=3), Drawing(), nn.Flatten(), nn.Dropout(0.3), last
    )


@pytest.mark.parametrize("stop_at", [1, 2, 5])
def test_a_model_that_draws_resumes_bit_for_bit(tmp_path: Path, stop_at: int) -> None:
    """From torch's generators, Python's and numpy's; a buffer outside of the state_dict is kept."""
    run = replace(digits_run("penex", epochs=4), task=replace(DIGITS, build=with_noise))
    learner, data, position = start(run)
    lines: list[Any] = []
    fit(learner, data, position, lines=lines)
    expected = final_state(learner, position)

    learner, data, position = start(run)
    first: list[Any] = []
    with pytest.raises(Interrupted):
        fit(
            learner,
            data,
            position,
            lines=first,
            stop=lambda: learner.count.item() == stop_at,
            save=lambda place: checkpoint.save(tmp_path, learner, place),
        )
    learner, data, position = start(run)
    torch.manual_seed(1)  # another process would have other random numbers
    random.seed(1)
    np.random.seed(1)
    assert checkpoint.load(tmp_path, learner, position)
    fit(learner, data, position, lines=first)
    assert first == lines
    state = final_state(learner, position)
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())
    assert state["model.1.seen"] > 0


def test_a_run_leaves_the_generators_as_they_were(tmp_path: Path) -> None:
    states = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    training.train(digits_run("ce", 50, epochs=1), training.Place(tmp_path, CPU))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert str(np.random.get_state()) == states[2]


def test_a_checkpoint_is_plain_and_only_the_last_is_kept(tmp_path: Path) -> None:
    import safetensors.torch

    learner, data, position = start(digits_run())
    fit(
        learner,
        data,
        position,
        save=lambda place: checkpoint.save(tmp_path, learner, place),
        save_seconds=0.0,
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["position.json", "step-4.safetensors"]
    tensors = safetensors.torch.load_file(tmp_path / "step-4.safetensors")
    assert torch.equal(tensors["model.0.weight"], learner.module[0].weight)  # type: ignore[index]
    assert {"optimizer.exp_avg.0.weight", "loss.rho", "history", "count"} <= tensors.keys()


@pytest.mark.parametrize("harm", ["position", "place", "tensors", "missing", "other"])
def test_a_damaged_checkpoint_is_a_sentence(tmp_path: Path, harm: str) -> None:
    learner, _, position = start(digits_run())
    checkpoint.save(tmp_path, learner, position)
    if harm == "position":
        (tmp_path / "position.json").write_text("{")
    elif harm == "place":
        path = tmp_path / "position.json"
        path.write_text(path.read_text().replace('"epoch": 0', '"epoch": -1'))
    elif harm == "tensors":
        path = tmp_path / "step-0.safetensors"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    elif harm == "missing":
        (tmp_path / "step-0.safetensors").unlink()
    else:
        learner, _, position = start(digits_run("ce"))
    with pytest.raises(RecordError, match="cannot be read"):
        checkpoint.load(tmp_path, learner, position)


def test_a_checkpoint_of_another_format_is_a_sentence(tmp_path: Path) -> None:
    learner, _, position = start(digits_run("penex"))
    checkpoint.save(tmp_path, learner, position)
    path = tmp_path / "position.json"
    place = json.loads(path.read_text())
    assert place["format"] == checkpoint.FORMAT
    for other in (checkpoint.FORMAT + 1, 0, "new", None):
        path.write_text(json.dumps({**place, "format": other}))
        before = path.read_bytes()
        with pytest.raises(RecordError, match=f"has the format {other!r}; this version"):
            checkpoint.load(tmp_path, learner, position)
        assert path.read_bytes() == before
    path.write_text("[]")
    with pytest.raises(RecordError, match="cannot be read"):
        checkpoint.load(tmp_path, learner, position)
    del place["format"], place["seal"]  # those of before had none
    path.write_text(json.dumps(place))
    assert checkpoint.load(tmp_path, learner, position)


def test_a_done_run_is_verified_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = training.train(digits_run("ce", 50, epochs=1), training.Place(tmp_path, CPU))

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    record.verify()
