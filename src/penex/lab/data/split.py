"""Splits: seeded, and stratified by construction."""

from collections.abc import Sequence

import torch
from torch import Tensor

from penex.lab.errors import LabError


def stratified_order(targets: Tensor, generator: torch.Generator) -> Tensor:
    """A random order in which every stretch has the classes in about their shares.

    The i-th of a class's n members, in random order, gets the place (i + u) / n with u uniform;
    the examples are sorted by place. So the first 100 are stratified, and so are the next 500, and
    a smaller training set is a part of the larger one.

    >>> y = torch.tensor([0] * 6 + [1] * 3)
    >>> order = stratified_order(y, torch.Generator().manual_seed(0))
    >>> [y[part].tolist().count(1) for part in order.split(3)]
    [1, 1, 1]
    """
    place = torch.empty(len(targets), dtype=torch.float64)
    for label in range(int(targets.max()) + 1):
        members = (targets == label).nonzero().flatten()
        rank = torch.randperm(len(members), generator=generator)
        shift = torch.rand(1, generator=generator, dtype=torch.float64)
        place[members] = (rank + shift) / len(members)
    return place.argsort(stable=True)


def stratified_split(targets: Tensor, sizes: Sequence[int], seed: int) -> list[Tensor]:
    """The indices of parts with the given sizes; the last part's size may be -1 for the rest.

    >>> parts = stratified_split(torch.arange(2).repeat(10), (10, 4, -1), seed=0)
    >>> [len(part) for part in parts]
    [10, 4, 6]
    """
    rest = len(targets) - sum(size for size in sizes if size >= 0)
    if rest < 0:
        raise LabError(f"{len(targets)} examples cannot be split into {list(sizes)}.")
    order = stratified_order(targets, torch.Generator().manual_seed(seed))
    wanted = [size if size >= 0 else rest for size in sizes]
    return list(torch.split(order[: sum(wanted)], wanted))
