"""Options on any data: noise, weights, models, names; what is said before anyone trains."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penex.cli.options import DataOptions
from penex.lab import models, tasks, training
from penex.lab.data import Collection, Data, Examples
from penex.lab.data.noise import LabelNoise
from penex.lab.engine import seeds
from penex.lab.ground.errors import Interrupted
from penex.lab.models.tensors import parse
from penex.lab.tasks import runs
from penex.lab.tasks.own import task_name

from own_files import run, write_times
from texts import write_encoder


def test_a_last_batch_of_one_and_batch_norm() -> None:
    from penex.lab import tasks, training
    from penex.lab.engine import loop
    from penex.lab.tasks import runs

    task = tasks.find("digits")
    spec = runs.LossSpec("ce")
    run_ = runs.plan(task, spec, 0, 65, {"batch_size": 32, "epochs": 1})
    data = training.Place(Path(), torch.device("cpu")).data(run_)
    learner = training.learner_of(run_, data, torch.device("cpu"))
    learner.least = 2
    assert len(loop.start(learner, data).history) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digits", "--data", "x"], "Give the task 'digits' or --data, not both"),
        (["--label-column", "x"], "is for --data"),
        (["--model", "cn"], "Did you mean 'cnn'?"),
        (["--model", "nothing_here:make"], "cannot be imported"),
        (["--label-noise", "1.5"], "a rate above 0 and at most 1"),
        (["--noise-kind", "resample"], "--label-noise, how many"),
    ],
)
def test_wrong_options(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("compare", *arguments, code=2)
    assert words in capsys.readouterr().err


def test_the_kind_of_noise_changes_a_noisy_task() -> None:
    """As the authors' protocol is asked for: the rate stays the task's."""
    task = tasks.find("cifar10_noisy")
    found = DataOptions(noise_kind="resample").treatment(task).label_noise
    assert found == LabelNoise(0.1, "resample")
    assert DataOptions().treatment(task).label_noise is None  # `plan` takes the task's
    assert DataOptions(label_noise=0.3).treatment(task).label_noise == LabelNoise(0.3)


MODELS = """
import sys, torch
from torch import nn

def frozen(shape, n):
    model = nn.Sequential(nn.Linear(shape[0], 9), nn.ReLU(), nn.Linear(9, n))
    model[0].requires_grad_(False)
    return model

class Tied(nn.Module):
    def __init__(self, inputs, n):
        super().__init__()
        self.first = nn.Linear(inputs, n)
        self.one = self.two = nn.Linear(n, n)
    def forward(self, x):
        return self.two(self.one(self.first(x)))

def tied(shape, n):
    return Tied(shape[0], n)

def lazy(shape, n):
    return nn.LazyLinear(n)

class Odd(nn.Linear):
    def forward(self, x):
        if self.training:
            raise RuntimeError("it breaks in training")
        return super().forward(x)

def breaks(shape, n):
    return Odd(shape[0], n)

class Cut(nn.Linear):
    def forward(self, x):
        return super().forward(x).detach()

def cut(shape, n):
    return Cut(shape[0], n)

def leaves(shape, n):
    sys.exit(3)
"""


@pytest.fixture
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with models of a user's."""
    name = f"models_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODELS)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow) for k in ("tied", "frozen", "lazy")]
)
def test_frozen_shared_and_lazy_weights_are_trained(
    own_models: str, kind: str, tmp_path: Path
) -> None:
    """Alone and packed alike; frozen ones stay as they were."""
    path = write_times(tmp_path / "t.csv")
    options = ["--data", path, "--label-column", "species", "--model", f"{own_models}:{kind}"]
    options += ["--losses", "ce", "--seeds", 2, "--epochs", 2, "--dtype", "float64"]
    tests = []
    for pack in ("auto", "off"):
        run("compare", *options, "--pack", pack, "--out", tmp_path / pack)
        ends = sorted((tmp_path / pack).glob("t/ce/*/seed-*"))
        tests.append([json.loads((end / "done.json").read_text())["test"] for end in ends])
        if kind == "frozen":
            tensors = parse((ends[0] / "model.safetensors").read_bytes())
            torch.manual_seed(seeds.derive(0, "initialisation"))
            assert torch.equal(tensors["0.weight"], torch.nn.Linear(2, 9).weight.double())
    for alone, packed in zip(*tests, strict=True):
        assert alone == pytest.approx(packed, rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("breaks", "it breaks in training"),
        ("cut", "its logits have no gradient"),
        ("leaves", "does not work for inputs of shape"),
    ],
)
def test_a_model_that_cannot_be_trained_is_told_before(
    own_models: str, kind: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_times(tmp_path / "t.csv")
    run("compare", "--data", path, "--label-column", "species", "--model", f"{own_models}:{kind}",
        "--out", tmp_path / "out", code=2)  # fmt: skip
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_texts_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for label in ("business", "entertainment", "politics", "sport", "tech"):
        folder = tmp_path / "bbc" / label
        folder.mkdir(parents=True)
        for number in range(3):
            (folder / f"{number:03}.txt").write_bytes(
                f"{label} {min(number, 1)} \xa3".encode("latin-1")
            )
    run("data", "check", tmp_path, "--encoder", write_encoder(tmp_path / "encoder"), code=2)
    text = capsys.readouterr().out
    assert "5 classes, 10 different texts" in text
    assert "5 texts left out: exact copies" in text


def test_the_list_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run("data", "list")
    text = capsys.readouterr().out
    assert "CIFAR-10: 60,000 images" in text
    assert "organsmnist_224" in text
    assert "the paper says MIT" in text
    run("data", "get", code=2)


def test_noise_and_weights_are_in_the_record(tmp_path: Path) -> None:
    run("train", "--loss", "penex", "--label-noise", 0.3, "--class-weights", "balanced",
        "--epochs", 1, "--train-size", 50, "--out", tmp_path)  # fmt: skip
    place = next(tmp_path.glob("digits/penex/*/seed-0"))
    config = json.loads((place / "config.json").read_text())
    assert config["label_noise"] == {"rate": 0.3, "kind": "flip"}
    assert config["class_weights"] == "balanced"
    facts = json.loads((place / "environment.json").read_text())["data"]
    assert 5 <= facts["labels_changed"]["train"] <= 25


def test_balanced_weights_reach_the_loss() -> None:
    from penex.lab import tasks, training
    from penex.lab.tasks import runs

    treatment = runs.Treatment(class_weights="balanced")
    run_ = runs.plan(tasks.find("digits"), runs.LossSpec("focal"), 0, 95, treatment=treatment)
    data = training.Place(Path(), torch.device("cpu")).data(run_)
    weight = training.learner_of(run_, data, torch.device("cpu")).loss.weight
    counts = torch.bincount(data.train.targets, minlength=10)
    assert weight is not None
    torch.testing.assert_close(weight * counts, torch.full((10,), 9.5))


def test_a_model_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = (
        "from torch import nn\n"
        "def tiny(shape, n_out):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], n_out))\n"
        "def wrong(shape, n_out):\n    return 3\n"
        "def wide(shape, n_out):\n    return tiny(shape, n_out + 2)\n"
    )
    (tmp_path / "my_own_models.py").write_text(code)
    options = ["--loss", "ce", "--epochs", 1, "--train-size", 50, "--out", tmp_path / "out"]
    run("train", *options, "--model", "my_own_models:tiny")
    place = next((tmp_path / "out").glob("digits/ce/*/seed-0"))
    config = json.loads((place / "config.json").read_text())
    assert config["model"] == "my_own_models:tiny"
    assert len(config["data"]["model_source"]) == 16
    run("train", *options, "--model", "my_own_models:wrong", code=2)
    assert "it gave a int, not an nn.Module" in capsys.readouterr().err
    run("train", *options, "--model", "my_own_models:none", code=2)
    assert "cannot be imported" in capsys.readouterr().err
    run("train", *options, "--model", "my_own_models:wide", code=2)
    assert "gave logits of shape (2, 12), not (2, 10)" in capsys.readouterr().err
    run("predict", place, tmp_path / "x.npy", code=2)
    assert "say --own-code" in capsys.readouterr().err
    np.save(tmp_path / "x.npy", np.zeros((3, 8, 8), np.uint8))
    run("predict", place, tmp_path / "x.npy", "--own-code")
    assert len(capsys.readouterr().out.splitlines()) == 4
    (tmp_path / "my_own_models.py").write_text(code + "# changed\n")
    run("predict", place, tmp_path / "x.npy", "--own-code", code=2)
    assert "is not the one that the model" in capsys.readouterr().err


def test_the_model_follows_the_shape() -> None:
    assert models.default((1, 64, 64)) == "cnn"
    assert models.default((3, 65, 65)) == "resnet18"
    assert models.default((3, 4, 4)) == "mlp"
    model = models.find("resnet18")((3, 72, 72), 5)
    assert model(torch.zeros(2, 3, 72, 72)).shape == (2, 5)
    blocks = [m for m in model.modules() if type(m).__name__ == "BasicBlock"]
    assert len(blocks) == 8
    # The appendix, by hand: stem, four layers, batch norms, the last layer.
    assert (
        sum(p.numel() for p in models.find("resnet18")((3, 32, 32), 100).parameters()) == 11_220_132
    )


def test_a_network_with_batch_norm_trains_and_resumes(tmp_path: Path) -> None:
    """What it remembers of batches is in the checkpoint: an interrupted run ends bit for bit."""

    def build(shape: Any, classes: int) -> torch.nn.Module:
        first = torch.nn.Linear(math.prod(shape), 8)
        last = torch.nn.Linear(8, classes)
        return torch.nn.Sequential(torch.nn.Flatten(), first, torch.nn.BatchNorm1d(8), last)

    network = dataclasses.replace(tasks.find("digits"), model="normed", build=build)
    one = runs.plan(network, runs.LossSpec("penex"), 0, 20, {"epochs": 2, "batch_size": 10})
    asked = iter([False, True])
    hooks = training.Hooks(stop=lambda: next(asked))
    whole = training.train(one, training.Place(tmp_path / "whole"))
    with pytest.raises(Interrupted):
        training.train(one, training.Place(tmp_path / "broken", hooks=hooks))
    broken = training.train(one, training.Place(tmp_path / "broken"))
    assert whole.done()["status"] == broken.done()["status"] == "completed"
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (whole.folder / name).read_bytes() == (broken.folder / name).read_bytes()


def test_names_of_tasks() -> None:
    assert task_name(Path("digits.npz")) == "digits_data"
    assert task_name(Path("/x/Ärzte 12.zip")) == "ärzte_12"
    assert task_name(Path("...")) == "data"


def test_memory_is_shared_between_runs() -> None:
    """Runs of several seeds index the same inputs: the data are there once.

    Also when another task was asked for in between, which takes the place of the first one's data.
    """
    place = training.Place(Path())

    def data_of(task: tasks.Task, seed: int) -> Data:
        return place.data(runs.plan(task, runs.LossSpec("ce"), seed))

    task = tasks.find("digits")
    data_of(task, 0)
    data_of(dataclasses.replace(task, name="other"), 0)
    found = [data_of(task, seed) for seed in range(3)]
    pointers = {
        part.inputs.data_ptr() for data in found for part in (data.train, data.val, data.test)
    }
    assert len(pointers) == 1


def test_a_collection_names_its_parts() -> None:
    collection = Collection(read_part(3), ("a", "b"), test=read_part(2))
    assert list(collection.parts) == ["train", "test"]


def read_part(count: int) -> Any:

    return Examples(torch.zeros(count, 2), torch.zeros(count).long())
