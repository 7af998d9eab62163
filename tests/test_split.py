"""Splits are seeded, complete, disjoint and stratified."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from penex.lab.data import Collection, Examples, Part, channel_statistics
from penex.lab.data.noise import LabelNoise
from penex.lab.data.split import _with_every_class, split, stratified_order
from penex.lab.ground.errors import LabError


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(lambda c: sum(c) > 0),
    seed=st.integers(0, 5),
)
def test_every_stretch_has_the_classes_in_their_shares(counts: list[int], seed: int) -> None:
    targets = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    order = stratified_order(targets, torch.Generator().manual_seed(seed))
    assert sorted(order.tolist()) == list(range(len(targets)))
    n = len(targets)
    for start in range(0, n, 7):
        stretch = targets[order[start : start + 7]]
        for label, count in enumerate(counts):
            share = len(stretch) * count / n
            # A stretch [a, b) holds k places of a class whose places are 1/count apart, and its
            # own ends are off by the other classes' rounding: never more than the classes' number.
            assert abs((stretch == label).sum().item() - share) <= len(counts)


def collection(
    targets: Tensor, val: Examples | None = None, test: Examples | None = None
) -> Collection:
    classes = tuple(str(k) for k in range(int(targets.max()) + 1))
    return Collection(Examples(torch.rand(len(targets), 3), targets), classes, val, test)


def test_parts_are_disjoint_and_of_the_asked_size() -> None:
    targets = torch.arange(10).repeat(50)
    data = split(collection(targets), 3, None, val=50, test=0.2)
    parts = [data.train, data.val, data.test]
    assert [len(part) for part in parts] == [350, 50, 100]
    assert len(set(torch.cat([part.index for part in parts]).tolist())) == 500
    for part in parts:
        assert torch.equal(part.targets, targets[part.index])
        counts = torch.bincount(part.targets, minlength=10)
        assert counts.max() - counts.min() <= 1
    again, other = (split(collection(targets), seed, None, val=50) for seed in (3, 4))
    assert torch.equal(again.train.index, data.train.index)
    assert not torch.equal(other.train.index, data.train.index)


def test_the_papers_share_goes_to_validation() -> None:
    data = split(collection(torch.arange(2).repeat(500)), 0, None)
    assert [len(p) for p in (data.train, data.val, data.test)] == [640, 160, 200]


def test_what_came_apart_stays_apart() -> None:
    apart = Examples(torch.rand(7, 3), torch.zeros(7).long())
    data = split(collection(torch.arange(2).repeat(50), test=apart), 0, None)
    assert [len(p) for p in (data.train, data.val, data.test)] == [80, 20, 7]
    assert data.test.inputs is apart.inputs
    data = split(collection(torch.arange(2).repeat(50), test=apart, val=apart), 0, 30)
    assert [len(p) for p in (data.train, data.val, data.test)] == [30, 7, 7]


def test_flipped_labels_are_wrong_and_in_training_only() -> None:
    data = split(collection(torch.arange(10).repeat(2000)), 0, None)
    noisy = LabelNoise(0.1).apply(data, seed=1)
    wrong = noisy.train.targets != data.train.targets
    assert wrong.double().mean().item() == pytest.approx(0.1, abs=0.01)
    assert noisy.facts["labels_changed"] == {"train": int(wrong.sum())}
    assert torch.equal(noisy.val.targets, data.val.targets)
    assert torch.equal(noisy.test.targets, data.test.targets)
    drawn = torch.bincount((noisy.train.targets - data.train.targets)[wrong] % 10, minlength=10)
    assert drawn[0] == 0
    assert drawn[1:].min() > 0.8 * drawn[1:].double().mean()


def test_resampled_labels_may_stay_and_reach_validation() -> None:
    data = split(collection(torch.arange(10).repeat(2000)), 0, None)
    noisy = LabelNoise(0.1, "resample").apply(data, seed=1)
    for name in ("train", "val"):
        wrong = getattr(noisy, name).targets != getattr(data, name).targets
        assert wrong.double().mean().item() == pytest.approx(0.09, abs=0.012)
    assert torch.equal(noisy.test.targets, data.test.targets)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan")])
def test_a_wrong_rate_is_a_sentence(rate: float) -> None:
    with pytest.raises(LabError, match="Label noise is a rate"):
        LabelNoise(rate)


def test_a_constant_channel_does_not_divide_by_zero() -> None:
    images = torch.zeros(4, 2, 3, 3)
    images[:, 1] = torch.rand(4, 3, 3)
    mean, std = channel_statistics(Part(images, torch.arange(4), torch.zeros(4).long()))
    assert mean.shape == std.shape == (2, 1, 1)
    assert std[0] == 1
    torch.testing.assert_close(std[1, 0, 0], images[:, 1].double().std(correction=0))


class Work(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the elements that operations give."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.is_mutable:  # it gives back all of what it wrote some places of
            return result
        every = result if isinstance(result, tuple | list) else [result]
        self.elements += sum(one.numel() for one in every if isinstance(one, Tensor))
        return result


def slow_order(targets: Tensor, generator: torch.Generator) -> Tensor:
    """The definition, class by class."""
    place = torch.empty(len(targets), dtype=torch.float64)
    for label in range(int(targets.max()) + 1):
        members = (targets == label).nonzero().flatten()
        rank = torch.randperm(len(members), generator=generator)
        shift = torch.rand(1, generator=generator, dtype=torch.float64)
        place[members] = (rank + shift) / len(members)
    return place.argsort(stable=True)


def slow_with_every_class(rest: Tensor, targets: Tensor, wanted: int) -> Tensor:
    labels = targets[rest]
    present = sorted(set(labels.tolist()))
    if len(set(labels[:wanted].tolist())) == len(present):
        return rest[:wanted]
    first = [labels.tolist().index(label) for label in present]
    others = [k for k in range(len(labels)) if k not in first]
    return rest[first + others][:wanted]


@given(
    labels=st.lists(st.integers(0, 12), min_size=1, max_size=60),
    seed=st.integers(0, 3),
    wanted=st.integers(1, 60),
)
def test_splits_are_those_of_the_definition(labels: list[int], seed: int, wanted: int) -> None:
    targets = torch.tensor(labels)
    orders = [
        order(targets, torch.Generator().manual_seed(seed))
        for order in (stratified_order, slow_order)
    ]
    assert torch.equal(*orders)
    chosen = [
        choose(orders[0], targets, wanted) for choose in (_with_every_class, slow_with_every_class)
    ]
    assert torch.equal(*chosen)


def test_the_work_does_not_grow_with_the_classes() -> None:
    """Of 4000 examples, some dozens of numbers each, whether in 2 classes or in 2000."""
    for classes in (2, 2000):
        targets = torch.arange(4000) % classes
        with Work() as work:
            order = stratified_order(targets, torch.Generator().manual_seed(0))
            _with_every_class(order, targets, 10)
        assert work.elements < 50 * len(targets)
