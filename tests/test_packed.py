"""Packs: each model ends where it would end alone, in records that tell nothing of the pack."""

import copy
import json
import pickle
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from penex import PENEX, cli, registry
from penex.base import Legal, Loss, Settings
from penex.baselines import CrossEntropyLoss, FocalLoss, LabelSmoothingLoss
from penex.lab import tasks, training
from penex.lab.engine import (
    checkpoint,
    evaluation,
    loop,
    packed,
    packed_layers,
    packed_losses,
    schedule,
    seeds,
)
from penex.lab.engine.captured import Steps, compile_parts
from penex.lab.engine.learner import AnyLoss, Learner
from penex.lab.engine.packed import Pack
from penex.lab.engine.packed_layers import CannotPack, How
from penex.lab.engine.step import step
from penex.lab.ground.errors import Interrupted, RecordError
from penex.lab.models import find
from penex.lab.models.layers import Dropout
from penex.lab.records import Record
from penex.lab.tasks import runs
from penex.lab.training import packed as packed_training
from penex.lab.training import packing
from penex.lab.training.place import Portion
from penex.targets import Batch

CPU = torch.device("cpu")
KEEP = training.Hooks(keep_checkpoints=True)
DIGITS = tasks.find("digits")
STEPS = 30
STACKED = [name for name in registry.LOSSES if name != "conex_hard"]


def planned(loss: str, seed: int, size: int = 97, **changes: Any) -> runs.Run:
    return runs.plan(DIGITS, runs.LossSpec.parse(loss), seed, size, {"epochs": 2, **changes})


def learners(some: list[runs.Run]) -> tuple[list[Learner], list[Any]]:
    data = [*map(training.Place(Path(), CPU).data, some)]
    pairs = zip(some, data, strict=True)
    return [training.learner_of(run, one, CPU) for run, one in pairs], data


def train_packed(some: list[runs.Run], steps: int) -> tuple[Pack, Tensor]:
    made, data = learners(some)
    pack = Pack(made, data)
    pack.train(True)
    call = Steps(pack, print)
    rates = torch.stack([schedule.rates(run.recipe, steps) for run in some], dim=1).unsqueeze(2)
    history = torch.zeros(len(some), 4, dtype=torch.float64)
    done = 0
    for epoch in range(steps):
        orders = torch.stack([seeds.order(run.seed, epoch, run.train_size) for run in some])
        for rows in torch.split(orders, some[0].recipe.batch_size, dim=1):
            if done == steps:
                return pack, history
            call(rows, rates[done], history)
            done += 1
    return pack, history


def train_alone(run: runs.Run, steps: int) -> tuple[Learner, Tensor]:
    (learner,), (data,) = learners([run])
    learner.train()
    rates = schedule.rates(run.recipe, steps)
    row = torch.zeros(4, dtype=torch.float64)
    done = 0
    for epoch in range(steps):
        for index in torch.split(seeds.order(run.seed, epoch, run.train_size), 32):
            if done == steps:
                return learner, row
            step(learner, data, index, rates[done], row)
            done += 1
    return learner, row


@pytest.fixture(scope="module")
def several() -> tuple[list[runs.Run], Pack, Tensor]:
    """Every loss in one pack, with seeds and rates of their own, thirty steps in float64."""
    some = [
        planned(loss, k % 3, dtype="float64", batch_size=32, lr=1e-3 * (1 + k % 5 / 10), epochs=100)
        for k, loss in enumerate(STACKED)
    ]
    pack, history = train_packed(some, STEPS)
    pack.scatter()
    return some, pack, history


@pytest.mark.parametrize("place", range(len(STACKED)))
def test_a_packed_model_equals_the_one_alone(
    several: tuple[list[runs.Run], Pack, Tensor], place: int
) -> None:
    """Parameters norm-wise to 1e-10, dropout and clipping on; the loss's state; the history."""
    some, pack, history = several
    learner, row = train_alone(some[place], STEPS)
    ours = pack.learners[place]
    assert ((ours.theta - learner.theta).norm() / learner.theta.norm()).item() <= 1e-10
    for name, value in learner.loss.state_dict().items():
        torch.testing.assert_close(ours.loss.state_dict()[name], value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(history[place], row, rtol=1e-8, atol=1e-10, equal_nan=True)
    assert ours.count.item() == learner.count.item() == STEPS


@pytest.mark.slow
def test_a_compiled_step_equals_a_plain_one() -> None:
    """Every loss; the partition of forward and backward is the one that GPUs get.

    It may compute again in backward what forward moved: a loss's state must not have moved by then.
    """
    ends = []
    for compiled in (False, True):
        pack = Pack(*learners([planned(loss, 0, dtype="float64") for loss in STACKED]))
        pack.train(True)
        if compiled:
            pack.trace(torch.zeros(len(pack), 32, dtype=torch.int64))
            compile_parts(pack, "aot_eager_decomp_partition")
        history = torch.zeros(len(pack), 4, dtype=torch.float64)
        rate = torch.full((len(pack), 1), 1e-3, dtype=torch.float64)
        for k in range(3):
            rows = torch.arange(k, k + 32).expand(len(pack), 32).contiguous()
            pack.step(rows, rate, history)
        ends.append((pack.theta, history))
    (plain, plain_seen), (other, other_seen) = ends
    assert ((other - plain).norm(dim=1) / plain.norm(dim=1)).max().item() <= 1e-10
    torch.testing.assert_close(other_seen, plain_seen, rtol=1e-8, atol=1e-10, equal_nan=True)


def test_the_zero_sum_head_and_arguments_are_packed() -> None:
    for losses in (
        ["conex_hard", "conex_hard"],
        ["focal:detach=true", "focal", "ex:alpha=0.3", "ex_log_penalty:rho=2"],
    ):
        some = [planned(loss, 0, dtype="float64", batch_size=32) for loss in losses]
        pack, _ = train_packed(some, 8)
        for k, run in enumerate(some):
            learner, _ = train_alone(run, 8)
            assert ((pack.theta[k] - learner.theta).norm() / learner.theta.norm()) <= 1e-12
    some = [
        planned(loss, 0, dtype="float64", batch_size=32)
        for loss in ("penex:rho=0.05", "penex:order=listing,ema=0.5", "penex")
    ]
    pack, _ = train_packed(some, 8)
    for k, run in enumerate(some):
        learner, _ = train_alone(run, 8)
        assert ((pack.theta[k] - learner.theta).norm() / learner.theta.norm()) <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("form", ["grouped", "stacked"])
def test_batch_norm_has_its_own_statistics(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ResNet-18 under its task's SGD, in either form that images have."""
    task = replace(DIGITS, model="resnet18", build=find("resnet18"))
    sgd = {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 5e-4, "clip": 5.0}
    some = [
        replace(planned(loss, k, 24, dtype="float64", batch_size=12, **sgd), task=task)
        for k, loss in enumerate(("ce", "penex"))
    ]
    made, data = learners(some)
    pack = Pack(made, data)
    pack.how = pack.how._replace(stacked=form == "stacked")  # as on a GPU
    pack.train(True)
    rows = torch.arange(12).expand(2, 12)
    rate = torch.full((2, 1), 1e-3, dtype=torch.float64)
    for _ in range(2):
        pack.step(rows, rate, torch.zeros(2, 4, dtype=torch.float64))
    for k, run in enumerate(some):
        (learner,), (one,) = learners([run])
        learner.train()
        for _ in range(2):
            step(learner, one, rows[0], rate[0, 0], torch.zeros(4, dtype=torch.float64))
        assert ((pack.theta[k] - learner.theta).norm() / learner.theta.norm()) <= 1e-10
        for name, buffer in learner.module.named_buffers():
            torch.testing.assert_close(pack.buffers[name][k], buffer, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": None}, {"momentum": 0.0}, {"affine": False}, {"momentum": None, "eps": 0.1}],
)
def test_batch_norm_of_every_kind_is_the_module_alone(
    options: dict[str, Any], stacked: bool
) -> None:
    """Outputs, running statistics and evaluation after three batches, for two models."""
    alone = [nn.BatchNorm2d(3, dtype=torch.float64, **options) for _ in range(2)]
    for k, layer in enumerate(alone):
        for parameter in layer.parameters():
            nn.init.uniform_(parameter, 0.5, 1.0 + k)
    tensors = {
        name: torch.stack([layer.state_dict()[name] for layer in alone])
        for name in alone[0].state_dict()
    }
    twin = nn.BatchNorm2d(3, **options)
    for trains in (True, True, True, False):
        x = torch.randn(2, 5, 3, 4, 4, dtype=torch.float64)  # models, examples, channels
        form = x.transpose(1, 2) if stacked else x.transpose(0, 1).flatten(1, 2)
        found = packed_layers.forward(
            twin.train(trains), "", tensors, form, How(torch.float64, stacked=stacked)
        )
        rows = found.transpose(1, 2) if stacked else found.view(5, 2, 3, 4, 4).transpose(0, 1)
        for k, layer in enumerate(alone):
            torch.testing.assert_close(rows[k], layer.train(trains)(x[k]))
            for name, buffer in layer.named_buffers():
                torch.testing.assert_close(tensors[name][k], buffer)


def test_layers_that_do_more_than_their_kind_are_not_packed() -> None:
    """A pack computes a layer by its kind: it would leave out a hook without a word."""

    def with_hook(layer: nn.Module) -> None:
        layer.register_forward_hook(lambda module, inputs, output: output * 2)

    def with_forward(layer: nn.Module) -> None:
        layer.forward = lambda x: x

    for change in (with_hook, with_forward):
        layer = nn.Linear(2, 2)
        assert packed_layers.knows(nn.Sequential(layer))
        change(layer)
        assert not packed_layers.knows(nn.Sequential(layer))
    assert not packed_layers.knows(nn.BatchNorm2d(3, track_running_stats=False))
    assert not packed_layers.knows(nn.Sequential(nn.Flatten(2)))
    x = torch.zeros(1, 2, 3, 4, 4)
    with pytest.raises(CannotPack, match="not flattened"):
        packed_layers.forward(nn.Linear(4, 2), "", {}, x, How(torch.float32))


def test_a_layer_that_stands_in_two_places_acts_in_both() -> None:
    relu = nn.ReLU()
    net = nn.Sequential(nn.Linear(3, 4), relu, nn.Linear(4, 4), relu, nn.Linear(4, 2)).double()
    stacked = {name: value.unsqueeze(0) for name, value in net.named_parameters()}
    x = torch.randn(1, 20, 3, dtype=torch.float64)
    found = packed_layers.forward(net, "", stacked, x, How(torch.float64))
    torch.testing.assert_close(found[0], net(x[0]))


def test_a_buffer_in_two_places_is_not_packed() -> None:
    (learner,), _ = learners([planned("ce", 0)])
    norm = nn.BatchNorm2d(2, affine=False)
    learner.module = nn.Sequential(norm, nn.ReLU(), norm)
    with pytest.raises(CannotPack, match="share weights"):
        packed.check(learner)


@pytest.mark.parametrize(
    "change", [{"groups": 2}, {"dilation": 2}, {"padding_mode": "circular"}, {"padding": "same"}]
)
def test_other_convolutions_are_packed_in_the_general_way(change: dict[str, Any]) -> None:
    options: dict[str, Any] = {"in_channels": 2, "out_channels": 4, "kernel_size": 3, "padding": 1}
    assert packed_layers.knows(nn.Sequential(nn.Conv2d(**options)))
    assert not packed_layers.knows(nn.Sequential(nn.Conv2d(**options | change)))


@pytest.mark.parametrize("form", ["grouped", "stacked"])
def test_both_forms_of_images_give_the_same_logits(form: str) -> None:
    """Of the CNN, against each model's own module."""
    some = [planned("ce", k, dtype="float64") for k in range(3)]
    made, data = learners(some)
    pack = Pack(made, data)
    pack.train(False)
    images = torch.rand(3, 5, 1, 8, 8, dtype=torch.float64)
    tensors = {
        s.name: torch.stack([s.of(learner.theta) for learner in made]) for s in made[0].segments
    }
    x = images.transpose(1, 2) if form == "stacked" else images.transpose(0, 1).flatten(1, 2)
    found = packed_layers.forward(pack.module, "", tensors, x, How(torch.float64))
    for k, learner in enumerate(made):
        expected = learner.module.eval()(images[k])
        torch.testing.assert_close(found[k], expected, rtol=1e-10, atol=1e-12)


class Curious(FocalLoss):
    """A loss that asks for the value of a number, which no two models share."""

    def values(self, batch: Batch) -> Tensor:
        return super().values(batch) * float(batch.logits.sum() > 0)


def test_what_cannot_be_packed_says_why() -> None:
    (learner,), _ = learners([planned("ce", 0)])
    packed.check(learner)
    (learner,), _ = learners([planned("penex", 0, accumulate=2)])
    with pytest.raises(CannotPack, match="micro-batches are not packed"):
        packed.check(learner)
    learner.recipe = replace(learner.recipe, accumulate=1)
    learner.loss = Curious()
    with pytest.raises(CannotPack, match="a Curious is not one that can be packed"):
        packed.check(learner)


class Power(Loss):
    """A user's loss: sum_j q_j (1 - p_j)^power, with a running mean of the first probability."""

    settings: ClassVar[Settings] = {"power": Legal(above=True)}
    statistics = ("seen",)
    power: float
    seen: Tensor

    def __init__(self, power: float) -> None:
        super().__init__()
        self.configure(power=power)
        self.register_buffer("seen", torch.zeros(()))

    def values(self, batch: Batch) -> Tensor:
        p = torch.softmax(batch.logits, batch.dim)
        with torch.no_grad():
            self.store("seen", 0.9 * self.seen + 0.1 * p[:, 0].mean())
        return batch.expect(lambda p: (1 - p) ** self.power, p) * (1 + self.seen)


@pytest.mark.parametrize(
    "losses",
    [
        [Power(1.0), Power(2.0), Power(2.0)],
        [LabelSmoothingLoss(0.0), LabelSmoothingLoss(0.2), FocalLoss(label_smoothing=0.1)],
        [PENEX(weight=torch.arange(1.0, 11)), PENEX(0.5, weight=torch.ones(10)), PENEX(rho=0.1)],
        [PENEX(-0.95), PENEX(0.1), PENEX(-0.3), PENEX(-0.3, scale="cross_entropy")],
        [CrossEntropyLoss(weight=torch.arange(1.0, 11)), FocalLoss(weight=torch.arange(1.0, 11))],
    ],
    ids=["own", "smoothed", "penex", "signed", "weighted"],
)
def test_any_loss_is_packed_as_it_is_alone(losses: list[AnyLoss]) -> None:
    """Value, gradient and state, with settings, class weights and smoothing of each."""
    torch.manual_seed(0)
    wide = [copy.deepcopy(loss).double() for loss in losses]
    for family in packed_losses.families(wide, CPU, torch.float64, 10):
        logits = torch.randn(len(family.losses), 7, 10, dtype=torch.float64)
        targets = torch.randint(10, (len(family.losses), 7))
        for _ in range(3):
            values, gradient, moved = family.values(logits, targets, targets)
            family.keep(moved)
        family.scatter()
        for k, place in enumerate(family.place.tolist()):
            alone = copy.deepcopy(losses[place]).double()
            for _ in range(3):
                x = logits[k].clone().requires_grad_()
                value = alone(x, targets[k])
            torch.autograd.backward(value)
            torch.testing.assert_close(values[k], value.detach(), rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(gradient[k], x.grad, rtol=1e-10, atol=1e-12)
            for name, state in alone.state_dict().items():
                torch.testing.assert_close(wide[place].state_dict()[name], state)


class Normed(nn.Module):
    """A network with batch norm in a forward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.drop, self.head = Dropout(0.3), nn.Linear(144, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(torch.tanh(self.norm(self.conv(x))).flatten(1)))  # type: ignore[no-any-return]


class Attentive(nn.Module):
    """A network with attention: the rows of an image are its words."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x[:, 0]).mean(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("network", [Normed, Attentive])
def test_a_network_of_any_kind_is_packed(network: type[nn.Module]) -> None:
    """Parameters and buffers as alone, after several steps and evaluations."""
    task = replace(DIGITS, build=lambda shape, classes: network())
    changes = {"epochs": 2, "dtype": "float64", "batch_size": 32}
    some = [
        runs.plan(task, runs.LossSpec.parse(loss), seed, 97, changes)
        for seed, loss in enumerate(("ce", "penex", "label_smoothing"))
    ]
    pack, history = train_packed(some, 5)
    assert not pack.fast
    seen = pack.predict([one.val for one in pack.data])
    pack.scatter()
    pack.compare(torch.arange(32).expand(3, 32))
    for k, run in enumerate(some):
        learner, row = train_alone(run, 5)
        ours = pack.learners[k]
        assert ((ours.theta - learner.theta).norm() / learner.theta.norm()).item() <= 1e-10
        for name, buffer in learner.module.named_buffers():
            torch.testing.assert_close(ours.module.get_buffer(name), buffer)
        torch.testing.assert_close(history[k], row, rtol=1e-8, atol=1e-10, equal_nan=True)
        expected = evaluation.logits_of(learner, pack.data[k], pack.data[k].val)
        torch.testing.assert_close(seen[k], expected, rtol=1e-8, atol=1e-10)


class Counting(nn.Module):
    """A network that replaces a buffer instead of writing to it: torch.func loses that."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.steps = self.steps + 1
        return self.head(x.flatten(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (Counting, "its steps would differ"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10)), "random numbers"),
    ],
)
def test_a_network_that_would_differ_in_a_pack_is_not_packed(
    network: Callable[[], nn.Module], why: str
) -> None:
    task = replace(DIGITS, build=lambda shape, classes: network())
    some = [runs.plan(task, runs.LossSpec("ce"), seed, 97, {"epochs": 2}) for seed in (0, 1)]
    pack = Pack(*learners(some))
    with pytest.raises(CannotPack, match=why):
        pack.compare(torch.arange(32).expand(2, 32))


@pytest.mark.slow
def test_one_that_cannot_be_packed_leaves_the_others_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And their results as they were without it, bit for bit."""
    start = ["compare", "--seeds", "1", "--epochs", "2", "--train-size", "60", "--losses", "ce"]
    cli.main([*start, "penex", "--out", str(tmp_path / "without")])
    monkeypatch.setitem(
        registry.LOSSES, "curious", registry.Entry("curious", "curious", Curious, "asks")
    )
    cli.main([*start, "curious", "penex", "--out", str(tmp_path / "with")])
    assert "Not packed (curious): a Curious is" in capsys.readouterr().err
    for name in ("ce", "penex"):
        record = next((tmp_path / "without").glob(f"digits/{name}/*/seed-0"))
        other = tmp_path / "with" / record.relative_to(tmp_path / "without")
        assert (other / "metrics.jsonl").read_bytes() == (record / "metrics.jsonl").read_bytes()


def test_runs_that_differ_in_more_are_other_packs() -> None:
    some = [
        planned("ce", 0), planned("penex", 1), planned("penex", 2, lr=0.1),
        planned("conex_hard", 0), planned("ce", 0, 50), planned("ce", 0, batch_size=16),
    ]  # fmt: skip
    found = list(packing.packs(some, 64))
    assert [len(pack) for pack in found] == [3, 1, 1, 1]
    assert [len(pack) for pack in packing.packs(some[:3], 2)] == [2, 1]


# Records.


@pytest.mark.slow
def test_packed_records_tell_nothing_of_the_pack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same files; in float64 the same numbers."""
    arguments = [
        "compare",
        "--losses",
        "ce",
        "penex",
        "ex:alpha=1000",
        "conex_hard",
        "--seeds",
        "2",
    ]
    arguments += ["--epochs", "3", "--train-size", "97", "--dtype", "float64"]
    cli.main([*arguments, "--out", str(tmp_path / "alone"), "--pack", "off"])
    cli.main([*arguments, "--out", str(tmp_path / "packed"), "--pack", "8"])
    alone, together = (
        {str(p.relative_to(tmp_path / name)) for p in (tmp_path / name).rglob("*")}
        for name in ("alone", "packed")
    )
    assert alone == together
    for path in (tmp_path / "alone").rglob("done.json"):
        twin = tmp_path / "packed" / path.relative_to(tmp_path / "alone")
        first, second = (json.loads(p.read_text()) for p in (path, twin))
        assert first["status"] == second["status"]
        assert first["steps"] == second["steps"]
        if first["status"] == "completed":
            assert second["test"] == pytest.approx(first["test"], rel=1e-6)
        lines = [Record(p.parent).metrics() for p in (path, twin)]
        assert len(lines[0]) == len(lines[1])
        for ours, theirs in zip(*lines, strict=True):
            assert ours.pop("validation") == pytest.approx(theirs.pop("validation"), rel=1e-6)
            if theirs["rho"] is None:
                assert ours.pop("rho") is theirs.pop("rho")
            assert ours == pytest.approx(theirs, rel=1e-9)
    capsys.readouterr()
    cli.main([*arguments, "--out", str(tmp_path / "packed"), "--pack", "8"])
    assert "8 of 8 runs were there already" in capsys.readouterr().err


@pytest.mark.parametrize("at", [1, 4, 9])
def test_a_stopped_pack_resumes_bit_for_bit(tmp_path: Path, at: int) -> None:
    some = [
        planned(loss, seed, batch_size=32, epochs=3) for loss in ("ce", "penex") for seed in (0, 1)
    ]

    packing.train(some, training.Place(tmp_path / "whole", CPU, KEEP), 8)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > at

    with pytest.raises(Interrupted):
        packing.train(some, training.Place(tmp_path / "broken", CPU, training.Hooks(stop=stop)), 8)
    packing.train(some, training.Place(tmp_path / "broken", CPU, KEEP), 8)
    for run in some:
        assert everything(tmp_path / "whole", run) == everything(tmp_path / "broken", run)


def everything(folder: Path, run: runs.Run) -> dict[str, bytes]:
    """The files of a run that hold numbers, and its checkpoint's."""
    record = Record.of(folder, run.config).folder
    names = ("metrics.jsonl", "predictions.npz", "model.safetensors")
    paths = [record / name for name in names] + sorted((record / "checkpoint").glob("*"))
    return {path.name: path.read_bytes() for path in paths if path.exists()}


def test_a_pack_goes_on_without_those_who_left(tmp_path: Path) -> None:
    """One diverged, one was asked for no more: the others still end in the same bits."""
    some = [
        planned(loss, 0, batch_size=32, epochs=3)
        for loss in ("ce", "ex:alpha=1000", "penex", "focal", "label_smoothing")
    ]
    packing.train(some, training.Place(tmp_path / "whole", CPU, KEEP), 8)
    assert Record.of(tmp_path / "whole", some[1].config).done()["status"] == "diverged"
    asked = 0

    def stop() -> bool:  # in the third epoch, when one has gone
        nonlocal asked
        asked += 1
        return asked > 9

    with pytest.raises(Interrupted):
        packing.train(some, training.Place(tmp_path / "broken", CPU, training.Hooks(stop=stop)), 8)
    assert Record.of(tmp_path / "broken", some[1].config).is_done
    packing.train(some[:3], training.Place(tmp_path / "broken", CPU, KEEP), 8)
    packing.train(some, training.Place(tmp_path / "broken", CPU, KEEP), 8)
    for run in some:
        assert everything(tmp_path / "whole", run) == everything(tmp_path / "broken", run)
    assert not list(tmp_path.rglob("pack.json"))


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("step", "the parameters were not finite at step 1 "),
        ("predict", "the outputs for the validation set were not finite at step 1 "),
    ],
)
def test_what_only_the_end_of_an_epoch_shows_ends_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, reason: str
) -> None:
    some = [planned(loss, 0, batch_size=97, epochs=1) for loss in ("ce", "penex", "focal")]
    packing.train(some, training.Place(tmp_path / "whole", CPU, KEEP), 8)
    sound = getattr(Pack, broken)

    def breaks(pack: Pack, *arguments: Any) -> Any:
        found = sound(pack, *arguments)
        (pack.theta if found is None else found)[1] = torch.nan
        return found

    monkeypatch.setattr(Pack, broken, breaks)
    packing.train(some, training.Place(tmp_path / "broken", CPU, KEEP), 8)
    done = Record.of(tmp_path / "broken", some[1].config).done()
    assert done["status"] == "diverged"
    assert done["reason"].startswith(reason)
    for run in (some[0], some[2]):
        assert everything(tmp_path / "whole", run) == everything(tmp_path / "broken", run)


@pytest.mark.parametrize("last", ["focal:gamma=1", "penex:alpha=0.3"])
def test_a_pack_saved_in_part_ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """Killed between the checkpoints of two members, which then stand at different steps.

    Two members have losses of one kind: what is computed together must stay so.
    """
    losses = ("penex", "focal:gamma=3", last)
    some = [planned(loss, 0, batch_size=32, epochs=2) for loss in losses]
    packing.train(some, training.Place(tmp_path / "whole", CPU, KEEP), 8)
    saved = 0
    save = checkpoint.save

    def twice(*arguments: Any) -> None:
        nonlocal saved
        saved += 1
        if saved > 5:
            raise KeyboardInterrupt
        save(*arguments)

    monkeypatch.setattr(checkpoint, "save", twice)
    with pytest.raises(KeyboardInterrupt):
        packing.train(
            some, training.Place(tmp_path / "broken", CPU, training.Hooks(save_seconds=0.0)), 8
        )
    monkeypatch.undo()
    packing.train(some, training.Place(tmp_path / "broken", CPU, KEEP), 8)
    for run in some:
        assert everything(tmp_path / "whole", run) == everything(tmp_path / "broken", run)


def test_a_pack_killed_while_its_members_joined_stays_one(tmp_path: Path) -> None:
    """One that nobody noted would be trained in a pack of another size, and round otherwise."""
    some = [planned(loss, 0, batch_size=32, epochs=1) for loss in ("ce", "focal", "penex")]
    names = [packed_training.name_of(run) for run in some]
    joined: list[list[str]] = []
    record = Record.of(tmp_path, some[0].config)
    record.folder.mkdir(parents=True)
    record.join(names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Record, "join", lambda record, pack: joined.append(pack))
        packing.train(some, training.Place(tmp_path, CPU, training.Hooks()), 8)
    assert joined == [names] * 3


def test_what_a_recorded_step_reads_stays_where_it_is() -> None:
    """A CUDA graph knows addresses: neither evaluating nor another size of batch may move them."""
    made, data = learners([planned(loss, 0) for loss in ("ce", "penex")])
    pack = Pack(made, data)
    pack.train(True)

    def step(size: int) -> None:
        rows = torch.arange(size).expand(2, -1).contiguous()
        pack.step(rows, torch.full((2, 1), 1e-3), torch.zeros(2, 4))

    def read() -> list[Tensor]:
        drops = [m for m in pack.module.modules() if isinstance(m, Dropout)]
        assert drops
        kept = [t for m in drops for t in (m.seed, m.count, *m._places.values()) if t is not None]
        kept += [t for f in pack.families for t in (f.place, *f.numbers.values())]
        kept += [pack.inputs, pack.index, pack.targets, pack.mean, pack.std]
        return [*kept, *pack.tensors()]

    step(64)
    before = read()
    pack.predict([one.val for one in data])
    step(63)
    step(64)
    after = {tensor.data_ptr() for tensor in read()}
    assert all(tensor.data_ptr() in after for tensor in before)  # they live: no address is reused


def test_a_pack_too_large_for_the_memory_is_halved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [planned("ce", seed, batch_size=32, epochs=2) for seed in range(5)]
    step_of, sizes, failed = Pack.step, [], list[weakref.ref[Pack]]()

    def step(pack: Pack, *arguments: Tensor) -> None:
        assert not any(ref() for ref in failed)  # its memory is there for this one
        if len(pack) > 2:
            failed.append(weakref.ref(pack))
            raise torch.OutOfMemoryError("CUDA out of memory.")
        sizes.append(len(pack))
        step_of(pack, *arguments)

    monkeypatch.setattr(Pack, "step", step)
    finished, said = [], list[str]()
    hooks = training.Hooks(done=lambda run, record, reused: finished.append(run), say=said.append)
    packing.train(some, training.Place(tmp_path, CPU, hooks), 8)
    assert set(sizes) == {2, 1}
    assert finished == some
    assert all(Record.of(tmp_path, run.config).done()["status"] == "completed" for run in some)
    assert "5 models do not fit the GPU's memory: 3 now." in said
    assert "3 models do not fit the GPU's memory: 2 now." in said

    monkeypatch.setattr(Pack, "step", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError))
    run = planned("ce", 9, epochs=1)
    packing.train([run], training.Place(tmp_path, CPU, training.Hooks(say=said.append)), 8)
    assert Record.of(tmp_path, run.config).done()["status"] == "completed"
    assert "Not packed: not even one model fits the GPU's memory twice." in said


def test_what_ended_before_the_memory_did_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One diverged in the first epoch; in the second the memory runs out."""
    some = [planned(loss, 0, batch_size=32) for loss in ("ce", "ex:alpha=1000", "penex")]
    gone = Record.of(tmp_path, some[1].config)
    step_of = Pack.step
    ended: list[bytes] = []

    def step(pack: Pack, *arguments: Tensor) -> None:
        if len(pack) > 2 and gone.is_done:
            ended[:] = [(gone.folder / "done.json").read_bytes()]
            raise torch.OutOfMemoryError
        step_of(pack, *arguments)

    monkeypatch.setattr(Pack, "step", step)
    finished = []
    hooks = training.Hooks(done=lambda run, record, reused: finished.append(run))
    packing.train(some, training.Place(tmp_path, CPU, hooks), 8)
    assert ended == [(gone.folder / "done.json").read_bytes()]
    assert sorted(map(str, finished)) == sorted(map(str, some))


def test_a_member_that_diverged_does_not_keep_the_others_from_being_saved(tmp_path: Path) -> None:
    some = [planned(loss, 0, batch_size=32, epochs=3) for loss in ("ce", "ex:alpha=1000")]
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 10  # within the third epoch

    with pytest.raises(Interrupted):
        packing.train(some, training.Place(tmp_path, CPU, training.Hooks(stop=stop)), 8)
    assert Record.of(tmp_path, some[1].config).is_done
    place = Record.of(tmp_path, some[0].config).checkpoint / "position.json"
    assert json.loads(place.read_text())["step"] > 0


def test_small_models_are_packed_by_themselves() -> None:
    run = planned("ce", 0)
    assert packing.size_for(training.Place(Path()), None, run) == 16
    assert packing.size_for(training.Place(Path()), 3, run) == 3
    large = replace(run, task=replace(DIGITS, model="resnet18", build=find("resnet18")))
    assert packing.size_for(training.Place(Path()), None, large) == 1


def test_an_engines_device_need_not_be_here() -> None:
    """On a GPU elsewhere a network that packs know may be large, and a pack is larger."""

    class Elsewhere:
        device = torch.device("cuda")

        def __call__(self, portions: list[Portion], place: training.Place) -> None:
            raise AssertionError("nothing is trained")

    there = training.Place(Path(), CPU, engine=Elsewhere())
    assert packing.size_for(there, None, planned("ce", 0)) == 64


@pytest.mark.parametrize("content", ["{}", '{"runs": 3}', "["])
def test_a_damaged_pack_is_one_sentence(tmp_path: Path, content: str) -> None:
    run = planned("ce", 0)
    folder = Record.of(tmp_path, run.config).folder
    folder.mkdir(parents=True)
    (folder / "pack.json").write_text(content)
    with pytest.raises(RecordError, match=r"pack\.json is damaged"):
        packing.train([run], training.Place(tmp_path, CPU, training.Hooks()), 8)


@pytest.mark.slow
def test_class_weights_are_packed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each seed has its own, and they weigh as they do alone."""
    start = ["compare", "--losses", "ce", "focal", "--seeds", "2", "--epochs", "1", "--dtype"]
    start += ["float64", "--train-size", "50", "--class-weights", "balanced"]
    for pack in ("off", "4"):
        cli.main([*start, "--pack", pack, "--out", str(tmp_path / pack)])
    assert "Not packed" not in capsys.readouterr().err
    for path in (tmp_path / "off").rglob("done.json"):
        twin = tmp_path / "4" / path.relative_to(tmp_path / "off")
        alone, packed = (json.loads(one.read_text())["test"] for one in (path, twin))
        assert packed == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("word", ["0", "many", "-3"])
def test_a_wrong_pack_is_one_sentence(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["compare", f"--pack={word}"])
    assert stopped.value.code == 2
    assert "--pack is auto, off, or a number" in capsys.readouterr().err


# CIFAR-10 as a task.


def test_cifar10_is_the_papers(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    random = np.random.default_rng(0)
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        content = {
            "data": random.integers(0, 256, (40, 3072), dtype=np.uint8),
            "labels": [k % 10 for k in range(40)],
        }
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    cli.main(["train", "cifar10_noisy", "--loss", "penex", "--data", str(tmp_path), "--epochs", "1",
              "--train-size", "100", "--out", str(tmp_path / "out")])  # fmt: skip
    place = next((tmp_path / "out").glob("cifar10_noisy/penex/*/seed-0"))
    config = json.loads((place / "config.json").read_text())
    assert config["label_noise"] == {"kind": "flip", "rate": 0.1}
    assert (config["recipe"]["lr"], config["recipe"]["clip"]) == (1e-4, 5.0)
    card = json.loads((place / "model.json").read_text())
    assert card["preprocessing"]["mean"] == card["preprocessing"]["std"] == [127.5] * 3
    clean, noisy = tasks.find("cifar10"), tasks.find("cifar10_noisy")
    assert clean.label_noise is None
    assert clean.train_size == noisy.train_size == 40_000
    assert loop.cut(torch.arange(40_000), clean.recipe.batch_size)[-1].shape == (64,)


def test_cifar10_without_its_files_says_where_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENEX_DATA", str(tmp_path))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["compare", "cifar10", "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert "penex data get cifar10" in text
    assert "178 MiB" in text
