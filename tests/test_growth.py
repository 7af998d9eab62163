"""What grows the house, from outside, in one place each: see the table in CONTRIBUTING.md."""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import nn

from penex import cli, registry
from penex.cli.options import DataOptions
from penex.lab import models, tasks, training
from penex.lab.engine.recipe import DType, OptimizerName, Precision, Recipe, ScheduleName
from penex.lab.ground.errors import Interrupted, LabError
from penex.lab.models import exported
from penex.lab.records import Record, identity
from penex.lab.tasks import runs
from penex.lab.training import packing

MINE = '''
"""Losses of a user's own."""

import torch
from penex.base import Legal, Loss
from penex.registry import Entry, Parameter


class Remembering(Loss):
    """Cross-entropy against labels mixed with what the model said of an example before."""

    settings = {"share": Legal(high=1.0)}
    statistics = ("memory",)
    wants_index = True

    def __init__(self, share=0.3, **options):
        super().__init__(**options)
        self.configure(share=share)
        self.register_buffer("memory", torch.zeros(0))

    def remember(self, examples, classes):
        self.memory = torch.full((examples, classes), 1 / classes)

    def forward(self, input, target, index=None):
        batch = self.read(input, target)
        log_p = torch.log_softmax(batch.logits, batch.dim)
        old = self.memory[index].to(log_p.dtype)
        if self.training:
            new = (0.7 * old + 0.3 * log_p.exp().detach()).to(self.memory.dtype)
            self.store("memory", self.memory.index_copy(0, index, new))
        kept = -(old * log_p).sum(1)
        return ((1 - self.share) * batch.expect(torch.neg, log_p) + self.share * kept).mean()


ENTRY = Entry("remembering", "remembering", Remembering, "with a memory",
              (Parameter("share", 0.2, 0.0, 1.0, "of the memory"),))
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's folder, with losses of their own in it."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("mine", None)


@pytest.mark.slow
def test_a_loss_of_ones_own_is_packed_tabulated_and_drawn(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone and packed alike, by its name on the command line and without a word elsewhere."""
    losses = ["ce", "mine:Remembering", "mine:Remembering:share=0.6", "mine:ENTRY"]
    start = ["compare", "--losses", *losses, "--seeds", "1", "--epochs", "1", "--dtype", "float64"]
    start += ["--train-size", "60"]
    for pack in ("off", "8"):
        cli.main([*start, "--pack", pack, "--out", pack])
    said = capsys.readouterr()
    assert "Not packed" not in said.err
    assert said.out.count("Remembering") >= 2
    assert "Remembering" in (mine / "8/digits/page.html").read_text()
    done = sorted((mine / "off").rglob("done.json"))
    assert len(done) == 4
    for path in done:
        twin = mine / "8" / path.relative_to(mine / "off")
        alone, packed = (json.loads(one.read_text())["test"] for one in (path, twin))
        assert packed == pytest.approx(alone, rel=1e-6)
    assert (mine / "off/digits/mine.Remembering").is_dir()


def test_its_memory_is_resumed_bit_for_bit(mine: Path) -> None:
    digits, cpu = tasks.find("digits"), torch.device("cpu")
    some = [
        runs.plan(digits, runs.LossSpec.parse("mine:Remembering"), seed, 60, {"epochs": 3})
        for seed in (0, 1)
    ]
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 1

    packing.train(some, training.Place(mine / "whole", cpu, training.Hooks()), 8)
    with pytest.raises(Interrupted):
        packing.train(some, training.Place(mine / "broken", cpu, training.Hooks(stop=stop)), 8)
    packing.train(some, training.Place(mine / "broken", cpu, training.Hooks()), 8)
    for run in some:
        whole, broken = (Record.of(mine / name, run.config).folder for name in ("whole", "broken"))
        for name in ("metrics.jsonl", "model.safetensors"):
            assert (whole / name).read_bytes() == (broken / name).read_bytes()


def test_code_that_changed_is_another_loss(mine: Path) -> None:
    digits = tasks.find("digits")
    before = runs.plan(digits, runs.LossSpec.parse("mine:Remembering"), 0).config
    (mine / "mine.py").write_text(MINE + "\n# changed\n")
    after = runs.plan(digits, runs.LossSpec.parse("mine:Remembering"), 0).config
    assert identity.config_hash(before) != identity.config_hash(after)


@pytest.mark.parametrize("word", ["nowhere:Loss", "mine:Nothing", "mine:torch", "penex:alpha"])
def test_a_loss_that_is_none_is_one_sentence(
    mine: Path, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["compare", "--losses", word])
    assert stopped.value.code == 2
    assert word in capsys.readouterr().err


@pytest.mark.slow
def test_a_registered_loss_and_task_are_known_by_name(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mine as own  # type: ignore[import-not-found]

    monkeypatch.setattr(registry, "LOSSES", dict(registry.LOSSES))
    monkeypatch.setattr(tasks, "_registered", {})
    registry.register(own.ENTRY)
    tasks.register(replace(tasks.find("digits"), name="figures"))
    cli.main(["compare", "figures", "--losses", "remembering", "--seeds", "1", "--epochs", "1"])
    assert (mine / "runs/figures/remembering").is_dir()
    with pytest.raises(ValueError, match="already"):
        registry.register(replace(own.ENTRY, title="another"))
    with pytest.raises(LabError, match="already"):
        tasks.register(replace(tasks.find("digits"), name="figures"))


@dataclass(frozen=True)
class Grown(Recipe):
    """A recipe with a field that came later."""

    warmth: float = identity.since(0.0)


def test_a_later_field_renames_no_run_that_does_not_use_it() -> None:
    digits, spec = tasks.find("digits"), runs.LossSpec("ce")
    before = runs.plan(digits, spec, 0)
    values = {name: getattr(digits.recipe, name) for name in digits.recipe.__dataclass_fields__}
    names = [
        identity.config_hash(replace(before, recipe=recipe).config)
        for recipe in (digits.recipe, Grown(**values), Grown(**values, warmth=0.5))
    ]
    assert names[0] == names[1] != names[2]


def test_a_later_option_of_a_loss_renames_no_run_that_does_not_use_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if `detach` had come after the first records of the focal loss."""
    digits = tasks.find("digits")
    old = runs.plan(digits, runs.LossSpec("focal"), 0).config
    grown = replace(registry.find("focal"), introduced={"detach": False})
    monkeypatch.setitem(registry.LOSSES, "focal", grown)
    new = runs.plan(digits, runs.LossSpec("focal"), 0).config
    used = runs.plan(digits, runs.LossSpec("focal", {"detach": True}), 0).config
    del old["loss"]["arguments"]["detach"]
    assert new == old
    assert used["loss"]["arguments"]["detach"] is True


def test_a_command_is_a_function_and_a_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def greet(name: str, times: int = 1) -> None:
        """Greet someone.

        Args:
            name: whom.
            times: how often.
        """
        print(times * f"Hello, {name}. ")

    monkeypatch.setitem(cli.COMMANDS, "greet", greet)
    cli.main(["greet", "--name", "you", "--times", "2"])
    assert capsys.readouterr().out == "Hello, you. Hello, you. \n"
    with pytest.raises(SystemExit) as stopped:
        cli.main(["greet", "--name", "you", "--times", "twice"])
    assert stopped.value.code == 2
    assert "--times" in capsys.readouterr().err


def test_a_network_is_a_function_and_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is trained in a pack, and found again by what predicts with it."""

    def linear(shape: Sequence[int], n_out: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), n_out))

    monkeypatch.setitem(models.MODELS, "linear", linear)
    task = DataOptions(model="linear").task("digits", tmp_path, "cpu")
    some = [runs.plan(task, runs.LossSpec(k), 0, 40, {"epochs": 1}) for k in ("ce", "penex")]
    packing.train(some, training.Place(tmp_path), 2)
    network = exported.load(Record.of(tmp_path, some[1].config).folder)
    assert network(torch.zeros(3, 1, 8, 8, dtype=torch.uint8)).shape == (3, 10)


def test_a_way_of_training_is_checked_and_shown_wherever_it_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The words of a recipe's choice stand in one place: recipe.py."""
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    shown = "".join(capsys.readouterr().out.split())
    for kind in (OptimizerName, ScheduleName, Precision, DType):
        assert "|".join(get_args(kind)) in shown
