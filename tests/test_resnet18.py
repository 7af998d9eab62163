"""CIFAR with ResNet-18: the recipe, and the command (test_packed.py has two of them as one)."""

import json
from pathlib import Path

import pytest

from penex import cli
from penex.lab import tasks
from penex.lab.models.resnet import resnet18
from penex.lab.records import Record
from penex.lab.tasks.runs import LossSpec, plan
from penex.paper.standins import write_stand_ins
from penex.registry import FIVE

NAMES = ("cifar10_resnet18", "cifar100_resnet18")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("official")
    write_stand_ins(folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_recipe_is_the_appendix(name: str) -> None:
    task = tasks.find(name)
    r = task.recipe
    assert (r.optimizer, r.lr, r.momentum, r.weight_decay) == ("sgd", 0.1, 0.9, 5e-4)
    assert (r.schedule, r.warmup_epochs, r.epochs) == ("cosine", 0, 200)
    assert (r.batch_size, r.clip, r.accumulate, r.augment) == (128, 5.0, 1, "")
    assert (r.matmul_precision, r.dtype, r.autocast) == ("medium", "float32", False)
    assert (task.name, task.model, task.build) == (name, "resnet18", resnet18)
    assert (task.train_size, task.val, task.label_noise) == (40_000, 0.2, None)


@pytest.mark.parametrize(("name", "classes"), [(NAMES[0], 10), (NAMES[1], 100)])
def test_the_data_are_those_of_the_main_task(name: str, classes: int, files: Path) -> None:
    found = tasks.find(name).collect(files)
    clean = tasks.find(name.removesuffix("_resnet18")).collect(files)
    assert (found.train.inputs == clean.train.inputs).all()
    for ours, theirs in ((found.mean, clean.mean), (found.std, clean.std)):
        assert ours is not None
        assert theirs is not None
        assert ours.tolist() == theirs.tolist()
    assert len(found.classes) == classes
    *_, last = tasks.find(name).build((3, 32, 32), len(found.classes)).parameters()
    assert tuple(last.shape) == (classes,)


def test_losses_have_the_default_parameters() -> None:
    task = tasks.find("cifar10_resnet18")
    found = [plan(task, LossSpec(name), 0).loss.resolved for name in FIVE]
    assert [one.get("epsilon") for one in found] == [None, 0.1, None, None, None]
    assert [one.get("lambda_") for one in found] == [None, None, 0.1, None, None]
    assert [one.get("gamma") for one in found] == [None, None, None, 2.0, None]
    assert found[-1]["alpha"] == 0.1


@pytest.mark.slow
def test_the_command_trains_it(files: Path, tmp_path: Path) -> None:
    cli.main(
        ["compare", "cifar10_resnet18", "--data", str(files), "--out", str(tmp_path), "--losses",
         "ce", "penex", "--seeds", "1", "--epochs", "1", "--train-size", "12", "--device", "cpu",
         "--augment", "flip,crop", "--pack", "off"]
    )  # fmt: skip
    folder = tmp_path / "cifar10_resnet18"
    listing = json.loads((folder / "comparison.json").read_text())
    records = [Record(folder / run["folder"]) for run in listing["runs"]]
    assert [record.done()["status"] for record in records] == ["completed"] * 2
    configs = [json.loads((record.folder / "config.json").read_text()) for record in records]
    assert {one["recipe"]["augment"] for one in configs} == {"flip,crop"}
    assert {one["model"] for one in configs} == {"resnet18"}
