"""Splits: seeded, and stratified by construction."""

from dataclasses import replace

import torch
from torch import Tensor

from penex.lab.data import Collection, Data, Examples, Part, channel_statistics
from penex.lab.ground.errors import LabError


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
    by_class = targets.argsort(stable=True)
    for members in torch.split(by_class, torch.bincount(targets).tolist()):
        rank = torch.randperm(len(members), generator=generator)
        shift = torch.rand(1, generator=generator, dtype=torch.float64)
        place[members] = (rank + shift) / len(members)
    return place.argsort(stable=True)


def split(
    collection: Collection,
    seed: int,
    train_size: int | None,
    *,
    val: float = 0.2,
    test: float = 0.2,
) -> Data:
    """Split a data set by a seed: test first, then validation, then training.

    What came apart stays apart. A smaller training set is a part of the larger one, and the other
    parts do not depend on its size.

    Args:
        collection: the data.
        seed: decides who goes where.
        train_size: how many examples to train on; None for all that are left.
        val: how many to validate on, or, below 1, which share of what is not for testing.
        test: how many to test on, or, below 1, which share.
    """
    order = _order(collection, seed)
    tested = 0 if collection.test else _count(test, len(order))
    return _cut(collection, order, tested, train_size, val)


def fold(
    collection: Collection, seed: int, folds: int, train_size: int | None, *, val: float = 0.2
) -> Data:
    """Split a data set by a seed such that some seeds in a row test every example once.

    Seeds 0 to `folds` - 1 cut the pool into so many stratified parts and test on one each; the next
    ones do so again, in another order. A test set that came apart is left out.

    Args:
        collection: the data.
        seed: which fold.
        folds: how many there are.
        train_size: how many examples to train on; None for all that are left.
        val: how many to validate on, or, below 1, which share of what is not for testing.
    """
    again, number = divmod(seed, folds)
    order = _order(collection, again)
    start, stop = (len(order) * k // folds for k in (number, number + 1))
    order = torch.cat([order[start:stop], order[:start], order[stop:]])
    validated = _count(val, _beside(collection, folds))  # in all folds alike: they may be packed
    return _cut(replace(collection, test=None), order, stop - start, train_size, validated)


def fold_size(collection: Collection, folds: int, val: float = 0.2) -> int:
    """How many examples are left to train on in every fold.

    >>> pool = Examples(torch.zeros(11, 1), torch.arange(11) % 2)
    >>> fold_size(Collection(pool, ("a", "b")), 5)
    6
    """
    least = _beside(collection, folds)
    return least - (0 if collection.val else _count(val, least))


def _beside(collection: Collection, folds: int) -> int:
    """How many examples are not in the largest fold."""
    n = len(collection.train.targets)
    return n - -(-n // folds)


def _order(collection: Collection, seed: int) -> Tensor:
    targets = collection.train.targets
    order = stratified_order(targets.cpu(), torch.Generator().manual_seed(seed))
    return order.to(targets.device)


def _cut(
    collection: Collection, order: Tensor, tested: int, train_size: int | None, val: float
) -> Data:
    """The parts of an order: first those for testing, then for validation, then for training."""
    pool = collection.train
    validated = 0 if collection.val else _count(val, len(order) - tested)
    left = len(order) - tested - validated
    wanted = left if train_size is None else train_size
    if not len(collection.classes) <= wanted <= left:
        raise LabError(
            f"There are {left} examples to train on, and each of the {len(collection.classes)} "
            f"classes needs one; got a training size of {wanted}."
        )
    cut = tested + validated
    train = _part(pool, _with_every_class(order[cut:], pool.targets, wanted))
    mean, std = collection.mean, collection.std
    if mean is None or std is None:
        mean, std = channel_statistics(train)
    return Data(
        train=train,
        val=whole(collection.val) if collection.val else _part(pool, order[tested:cut]),
        test=whole(collection.test) if collection.test else _part(pool, order[:tested]),
        classes=collection.classes,
        mean=mean.to(train.targets.device),
        std=std.to(train.targets.device),
        facts=collection.facts,
    )


def _with_every_class(rest: Tensor, targets: Tensor, wanted: int) -> Tensor:
    """The first of the rest; where a rare class is not among them, one of each class goes first."""
    labels = targets[rest]
    present = labels.unique()  # type: ignore[no-untyped-call]
    if len(labels[:wanted].unique()) == len(present):  # type: ignore[no-untyped-call]
        return rest[:wanted]
    by_class = labels.argsort(stable=True)
    ends = torch.bincount(labels)[present].cumsum(0)
    first = by_class[torch.cat([ends.new_zeros(1), ends[:-1]])]
    others = torch.ones_like(labels, dtype=torch.bool)
    others[first] = False
    return torch.cat([rest[first], rest[others]])[:wanted]


def _count(wanted: float, n: int) -> int:
    return round(wanted * n) if wanted < 1 else int(wanted)


def _part(examples: Examples, index: Tensor) -> Part:
    return Part(examples.inputs, index, examples.targets[index], stream=examples.stream)


def whole(examples: Examples) -> Part:
    """All examples as a part."""
    index = torch.arange(len(examples.targets), device=examples.targets.device)
    return Part(examples.inputs, index, examples.targets, examples.votes, examples.stream)
