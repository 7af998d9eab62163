"""Splits are seeded, complete, disjoint and stratified."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penex.lab.data import channel_statistics
from penex.lab.data.split import stratified_order, stratified_split
from penex.lab.errors import LabError


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


def test_parts_are_disjoint_and_of_the_asked_size() -> None:
    targets = torch.arange(10).repeat(50)
    parts = stratified_split(targets, (100, 50, -1), seed=3)
    assert [len(part) for part in parts] == [100, 50, 350]
    assert len(set(torch.cat(parts).tolist())) == 500
    for part in parts:
        counts = torch.bincount(targets[part], minlength=10)
        assert counts.max() - counts.min() <= 1
    again = stratified_split(targets, (100, 50, -1), seed=3)
    other = stratified_split(targets, (100, 50, -1), seed=4)
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))
    assert not torch.equal(parts[0], other[0])


def test_too_few_examples_is_a_sentence() -> None:
    with pytest.raises(LabError, match=r"10 examples cannot be split into \[8, 5\]"):
        stratified_split(torch.zeros(10).long(), (8, 5), seed=0)


def test_a_constant_channel_does_not_divide_by_zero() -> None:
    images = torch.zeros(4, 2, 3, 3)
    images[:, 1] = torch.rand(4, 3, 3)
    mean, std = channel_statistics(images)
    assert mean.shape == std.shape == (2, 1, 1)
    assert std[0] == 1
    torch.testing.assert_close(std[1, 0, 0], images[:, 1].double().std(correction=0))
