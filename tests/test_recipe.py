"""The paper's recipes and network, number by number as its appendix prints them."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from penex.lab import tasks
from penex.lab.data import Data
from penex.lab.data.split import split
from penex.lab.engine.recipe import Recipe
from penex.lab.ground.errors import LabError
from penex.lab.models.cnn import cnn

# The table of the appendix "Training": rate, optimiser, epochs, effective batch, schedule,
# clip, accumulation, precision.
APPENDIX = {
    "cifar10": (1e-4, "adam", 200, 64, "constant", 5.0, 1, "medium"),
    "cifar10_noisy": (1e-4, "adam", 200, 64, "constant", 5.0, 1, "medium"),
    "cifar100": (1e-4, "adam", 200, 64, "constant", 15.0, 1, "medium"),
    "pathmnist": (1e-4, "adam", 200, 64, "constant", 10.0, 1, "medium"),
}


@pytest.mark.parametrize("name", APPENDIX)
def test_the_recipe_is_the_appendix(name: str) -> None:
    r = tasks.find(name).recipe
    seen = (
        r.lr, r.optimizer, r.epochs, r.batch_size, r.schedule, r.clip, r.accumulate,
        r.matmul_precision,
    )  # fmt: skip
    assert seen == APPENDIX[name]


def test_the_rest_of_the_appendix() -> None:
    for r in (tasks.find(name).recipe for name in APPENDIX):
        assert (r.warmup_epochs, r.weight_decay, r.momentum) == (0, 0, 0)
        assert r.dtype == "float32"
        assert not r.autocast


# Convolutions 32, 64, 128 of 3 x 3; flattened c x c x 128; 256; n_out: counted by hand.
@pytest.mark.parametrize(
    ("shape", "n_out", "flat", "parameters"),
    [
        ((3, 32, 32), 10, 2048, 896 + 18_496 + 73_856 + 524_544 + 2_570),  # CIFAR-10
        ((3, 32, 32), 9, 2048, 896 + 18_496 + 73_856 + 524_544 + 2_313),  # its zero-sum ablation
        ((3, 32, 32), 100, 2048, 896 + 18_496 + 73_856 + 524_544 + 25_700),  # CIFAR-100
        ((3, 64, 64), 9, 8192, 896 + 18_496 + 73_856 + 2_097_408 + 2_313),  # PathMNIST
        ((3, 28, 28), 9, 1152, 896 + 18_496 + 73_856 + 295_168 + 2_313),  # PathMNIST, small files
        ((1, 8, 8), 10, 128, 320 + 18_496 + 73_856 + 33_024 + 2_570),  # digits
    ],
)
def test_the_network_is_the_appendix(
    shape: Sequence[int], n_out: int, flat: int, parameters: int
) -> None:
    model = cnn(shape, n_out)
    assert sum(p.numel() for p in model.parameters()) == parameters
    x = torch.zeros(2, *shape)
    seen: list[tuple[str, tuple[int, ...]]] = []
    for layer in model:
        x = layer(x)
        seen.append((type(layer).__name__, tuple(x.shape[1:])))
    _, h, w = shape
    expected: list[tuple[str, tuple[int, ...]]] = []
    for filters in (32, 64, 128):
        expected += [("Conv2d", (filters, h, w)), ("ReLU", (filters, h, w))]
        h, w = h // 2, w // 2
        expected.append(("MaxPool2d", (filters, h, w)))
    expected += [("Flatten", (flat,)), ("Dropout", (flat,)), ("Linear", (256,)), ("ReLU", (256,))]
    assert seen == [*expected, ("Linear", (n_out,))]
    assert model[10].p == 0.5


@pytest.mark.parametrize("shape", [(3, 7, 8), (64,), (3, 32)])
def test_an_image_too_small_is_a_sentence(shape: Sequence[int]) -> None:
    with pytest.raises(LabError, match="at least 8 pixels"):
        cnn(shape, 10)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epochs": 0}, "epochs must be at least 1 and at most 1,000,000; got 0"),
        ({"lr": float("nan")}, "lr must be a finite number above 0"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"momentum": -1.0}, "momentum must be a finite number of at least 0"),
        ({"optimizer": "adan"}, "Did you mean 'adam'"),
        ({"accumulate": 65}, "A batch of 64 cannot be cut into 65"),
    ],
)
def test_a_wrong_recipe_is_a_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(LabError, match=words):
        Recipe(**{"epochs": 1, "lr": 0.1, **changes})


def digits(seed: int, size: int | None) -> Data:
    task = tasks.find("digits")
    return split(task.collect(), seed, size, val=task.val, test=task.test)


def test_digits_is_the_low_data_regime() -> None:
    task = tasks.find("digits")
    data = digits(0, task.train_size)
    assert (len(data.train), len(data.val), len(data.test)) == (300, 197, 700)
    assert data.train.inputs.dtype == torch.uint8
    assert data.shape == (1, 8, 8)
    assert len(data.classes) == 10
    assert task.search["penex"][0].high == 1.0
    batch = data.normalise(next(data.train.batches(1000)), torch.float64)
    assert batch.mean().item() == pytest.approx(0, abs=1e-12)
    assert batch.std(correction=0).item() == pytest.approx(1)


def test_the_seed_decides_the_split_and_sizes_are_nested() -> None:
    small, large, other = digits(0, 100), digits(0, 900), digits(1, 100)
    assert torch.equal(small.train.index, large.train.index[:100])
    assert torch.equal(small.test.index, large.test.index)
    assert not torch.equal(small.test.index, other.test.index)


@pytest.mark.parametrize("size", [9, 901])
def test_a_train_size_that_is_not_there(size: int) -> None:
    with pytest.raises(LabError, match=f"900 examples to train on.* got a training size of {size}"):
        digits(0, size)
