"""One step of training: batch, forward, loss, backward, clip, update."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from penex.base import Loss
from penex.lab.data import Data
from penex.lab.engine.learner import Learner
from penex.lab.ground import ranks

# What a step leaves in the history, a column each.
HISTORY = ("loss", "grad_norm", "max_logit", "rho")


def step(learner: Learner, data: Data, index: Tensor, rate: Tensor, row: Tensor) -> None:
    """Train on the examples of `index`, the whole batch even where processes share it.

    It reads and writes the learner's tensors and `row` (see HISTORY) and keeps nothing on the
    host: no number is read back, so it can be captured and replayed.

    Args:
        learner: what is trained.
        data: the training part is indexed.
        index: the batch, on the learner's device.
        rate: the learning rate, a 0-dim tensor.
        row: where the step's numbers go.
    """
    learner.zero_grad()
    micros = micro_batches(index, learner.recipe.accumulate)
    learner.count.add_(1)
    first = 0
    values: list[Tensor] = []
    largest: list[Tensor] = []
    for some in [micros] if learner.joins else [[micro] for micro in micros]:
        is_last = len(values) + len(some) == len(micros)
        with nullcontext() if is_last else _no_sync(learner):
            found, logits = _forward(learner, data, some, index, first)
            torch.autograd.backward(torch.stack(found).sum())
        first += sum(map(len, some))
        values += [value.detach() for value in found]
        largest.append(logits.detach().abs().amax() if logits.numel() else logits.new_zeros(()))
    # A loss that counts micro-batches must see the empty ones too.
    for _ in range(len(micros), learner.recipe.accumulate):
        none = index[:0]
        learner.loss(logits.detach()[:0], data.train.targets[none], **learner.loss.asked(none))
    norm = learner.clip()
    learner.update(rate)
    numbers = (torch.stack(values).sum(), norm, torch.stack(largest).amax(), learner.rho)
    row.copy_(torch.stack([number.to(row.dtype) for number in numbers]))


def micro_batches(index: Tensor, accumulate: int) -> list[Tensor]:
    """The micro-batches of a batch that have examples.

    >>> [len(micro) for micro in micro_batches(torch.arange(5), 2)]
    [3, 2]
    """
    return list(index.tensor_split(accumulate))[: len(index)]


def own(micro: Tensor) -> Tensor:
    """The rows of a micro-batch that are this process's."""
    start, stop = ranks.bounds(len(micro))
    return micro[start:stop]


def _no_sync(learner: Learner) -> AbstractContextManager[None]:
    """Keep DistributedDataParallel from averaging a gradient that is not complete yet."""
    if not isinstance(learner.model, nn.parallel.DistributedDataParallel):
        return nullcontext()
    return learner.model.no_sync()


def _forward(
    learner: Learner, data: Data, micros: list[Tensor], batch: Tensor, first: int
) -> tuple[list[Tensor], Tensor]:
    """Each micro-batch's share of the loss, and the logits of all of these, which go in together.

    The shares add up to the batch's loss.
    """
    every = [own(micro) for micro in micros]
    first += ranks.bounds(len(micros[0]))[0]
    for layer in learner.dropouts:
        layer.first = first
    if learner.dropouts and learner.dropouts[0].offset is not None:
        learner.dropouts[0].offset.fill_(first)  # one for all
    images = learner.augmentation(data.train.batch(torch.cat(every)), first)
    logits = learner.logits(data.normalise(images, learner.dtype))
    parts = torch.split(logits, [len(rows) for rows in every])
    each = zip(micros, every, parts, strict=True)
    return [_share(learner, data, *one, batch) for one in each], logits


def _share(
    learner: Learner, data: Data, micro: Tensor, rows: Tensor, logits: Tensor, batch: Tensor
) -> Tensor:
    """A micro-batch's share of the loss, weighed so that the shares add up to the batch's.

    A loss that shares batches over processes divides by D_micro / processes; any other divides by
    its own rows' D. Both are multiplied up to D_own / (D_batch / processes), for
    DistributedDataParallel then takes the mean over processes.
    """
    loss, targets = learner.loss, data.train.targets[rows]
    shares = isinstance(loss, Loss) and loss.shares_batches()
    if not len(rows) and not shares:
        return logits.sum() * 0.0
    value: Tensor = loss(logits, targets, **loss.asked(rows))
    if len(micro) == len(batch) and (shares or ranks.world() == 1):
        return value
    mass = _mass(learner, data, micro if shares else rows) / _mass(learner, data, batch)
    return value * (mass if shares else mass * ranks.world())


def _mass(learner: Learner, data: Data, index: Tensor) -> Tensor | int:
    """D of some examples: the sum of their targets' class weights, or their number."""
    weight = learner.loss.weight
    if weight is None:
        return len(index)
    return weight[data.train.targets[index]].sum()
