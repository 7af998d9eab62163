"""Losses that others made for wrong labels or for honest probabilities, to hold PENEX against.

All take the options of torch.nn.CrossEntropyLoss (`penex.base.Options`) besides their own numbers.
Their papers define them for one label y; for weights u_ij they are the expectation over labels,
sum_j u_ij loss(f_i, j), as every loss here is.
"""

import math
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from penex import targets
from penex.base import NON_NEGATIVE, Group, Legal, Loss, Options, Settings
from penex.baselines import log_probabilities
from penex.targets import Batch

# The published code of NCE + RCE takes the logarithm of a label's zeros at 1e-4.
_LOG_OF_NO_LABEL = math.log(1e-4)

# A class with a logarithm this low is masked: it does not count among those that are summed over.
_LOWEST_LOG = -1e9

# What the published code of early-learning regularisation keeps probabilities away from 0 and 1 by.
_MARGIN = 1e-4


class Brier(Loss):
    r"""The squared distance of the probabilities from the label (Brier, 1950).

    sum_j (p_j - 1[j = y])^2, with p = softmax(f). It is proper: its minimiser predicts P at
    temperature 1. An example that is certain and wrong has next to no gradient.

    Args:
        options: weight, ignore_index, label_smoothing and reduction, as in torch.

    >>> Brier()(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.5000)
    """

    def values(self, batch: Batch) -> Tensor:
        """The expected squared distance from a label."""
        p = torch.softmax(batch.logits, dim=batch.dim)
        likely = p > 0.5  # one class at most
        others = p.masked_fill(likely, 0.0)
        # 1 + |p|^2 - 2 p_y is at least 1/4 for p_y up to 1/2. Above that it would cancel: 1 - p_y
        # is the sum of the others instead.
        near = others.sum(batch.dim, keepdim=True).square()
        near = near + others.square().sum(batch.dim, keepdim=True)
        far = 1 + p.square().sum(batch.dim, keepdim=True) - 2 * p
        return batch.expect(_itself, torch.where(likely, near, far))


class GeneralisedCrossEntropy(Loss):
    r"""Between cross-entropy and the mean absolute error (Zhang and Sabuncu, 2018).

    (1 - p_y^q) / q, with p = softmax(f): cross-entropy as q tends to 0, 1 - p_y at q = 1. A wrong
    label pulls less, as its probability falls, than under cross-entropy.

    sum_j P_j (1 - p_j^q) / q is smallest where P_j p_j^(q - 1) is the same for all j, so
    P is proportional to p^(1 - q): a model that has reached the minimum predicts P at the
    temperature 1 / (1 - q). There is none at q = 1, where the likeliest class takes all.

    Args:
        q: above 0 and below 1.
        options: weight, ignore_index, label_smoothing and reduction, as in torch.

    >>> loss = GeneralisedCrossEntropy(q=0.5)
    >>> loss(torch.zeros(1, 4), torch.tensor([0])), loss.temperature
    (tensor(1.), 2.0)
    """

    settings: ClassVar[Settings] = {"q": Legal(high=1.0, above=True, below=True)}
    q: float

    def __init__(self, q: float = 0.7, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.configure(q=q)

    def values(self, batch: Batch) -> Tensor:
        """(1 - p^q) / q; expm1 keeps its digits where p is near 1 or q near 0."""
        return batch.expect(lambda v: -torch.expm1(self.q * v) / self.q, log_probabilities(batch))

    @property
    def _sharpness(self) -> float:
        return 1 - self.q


class ActivePassive(Loss):
    r"""Normalised and reverse cross-entropy, a NCE + b RCE (Ma et al., 2020).

    NCE = log p_y / sum_j log p_j raises p_y, RCE = A (1 - p_y) lowers the others; each alone is
    robust to symmetric label noise. A = -log 1e-4 = 9.21, as in the published code, which takes the
    logarithm of a label's zeros there. It is not proper, so no temperature makes probabilities of
    its minimiser: it predicts at temperature 1, as it was published. A class masked with -inf does
    not count in the sum.

    Args:
        a: the weight of NCE, at least 0; published: 1 for CIFAR-10, 10 for CIFAR-100.
        b: the weight of RCE, at least 0; published: 1 for CIFAR-10, 0.1 for CIFAR-100.
        options: weight, ignore_index, label_smoothing and reduction, as in torch.

    >>> ActivePassive(a=1, b=0)(torch.zeros(1, 4), torch.tensor([0]))
    tensor(0.2500)
    """

    settings: ClassVar[Settings] = {"a": NON_NEGATIVE, "b": NON_NEGATIVE}
    a: float
    b: float

    def __init__(self, a: float = 1.0, b: float = 1.0, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.configure(a=a, b=b)

    def values(self, batch: Batch) -> Tensor:
        """The weighted sum of both."""
        log_p = log_probabilities(batch)
        every = log_p.masked_fill(log_p < _LOWEST_LOG, 0.0).sum(batch.dim)
        # The sum is -K log K at most, below -1 for two classes or more; one class has 0 / 0.
        normalised = batch.expect(_itself, log_p) / every.clamp(max=-1.0)
        reverse = _LOG_OF_NO_LABEL * batch.expect(torch.expm1, log_p)
        return self.a * normalised + self.b * reverse


class EarlyLearning(Loss):
    r"""Cross-entropy held to what the model said of an example before (Liu et al., 2020).

    -log p_y + lambda log(1 - <p, t>): t is a moving average of the example's own predictions, which
    a model gets right before it learns wrong labels by heart. In train() mode a batch first moves
    t <- beta t + (1 - beta) p and then uses it; as in the published code t starts at 0, p is kept
    between 1e-4 and 1 - 1e-4 in the penalty and in t, where it sums to 1 again.

    It must know which examples a batch has: `remember` makes room for them once, and every call in
    train() mode has their numbers as ``index``, in the shape of class indices (one of each position
    of an image, that is). In eval() mode nothing moves, and without an index, for examples that are
    not among the remembered ones, it is cross-entropy. It predicts at temperature 1.

    Args:
        lambda_: the weight of the penalty, at least 0; published: 3 for CIFAR-10, 7 for CIFAR-100.
        beta: how slowly t moves, at least 0 and below 1; published: 0.7 and 0.9.
        process_group: whose ranks share a batch, as in `penex.PENEX`; they all remember all of it.
        options: weight, ignore_index, label_smoothing and reduction, as in torch.

    Attributes:
        memory: t of each example, (examples, classes). What is ignored does not move it, nor does
            a batch with a logit that is no number.

    >>> loss = EarlyLearning(lambda_=3.0, beta=0.7)
    >>> loss.remember(examples=100, classes=2)
    >>> loss(torch.zeros(1, 2), torch.tensor([0]), index=torch.tensor([7])), loss.memory[7]
    (tensor(0.2056), tensor([0.1500, 0.1500]))
    """

    settings: ClassVar[Settings] = {"lambda_": NON_NEGATIVE, "beta": Legal(high=1.0, below=True)}
    lambda_: float
    beta: float
    statistics = ("memory",)
    memory: Tensor
    wants_index = True

    def __init__(
        self,
        lambda_: float = 3.0,
        beta: float = 0.7,
        *,
        process_group: Group = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.configure(lambda_=lambda_, beta=beta)
        self.process_group = process_group
        self.register_buffer("memory", torch.zeros(0, 0, dtype=torch.float32))

    def remember(self, examples: int, classes: int) -> None:
        """Make room for so many examples, once before training; nothing is known of them yet.

        Args:
            examples: how many there are to train on; ``index`` numbers them from 0.
            classes: how many there are.
        """
        self.memory = self.memory.new_zeros(examples, classes)

    def forward(self, input: Tensor, target: Tensor, index: Tensor | None = None) -> Tensor:
        """The loss of a batch; in train() mode the memory of its examples moves before.

        Args:
            input: the logits, as in torch.
            target: the labels, as in torch.
            index: the numbers of the examples, in the shape of class indices.
        """
        batch = self.read(input, target)
        log_p = log_probabilities(batch)
        values = batch.expect(torch.neg, log_p)
        sums, ranks = torch.stack([batch.mass.detach().sum(), batch.total]), 1
        if index is not None or self.training:
            index = self._checked(index, batch)
            p = log_p.exp().clamp(_MARGIN, 1 - _MARGIN).movedim(batch.dim, -1)
            with torch.no_grad():
                t, sums, ranks = self._remembered(p, batch.mass != 0, index, sums)
            agreement = (p * t.to(p.dtype)).sum(-1)
            values = values + self.lambda_ * batch.mass * torch.log1p(-agreement)
        return targets.reduce(values, targets.divisor(sums[0], sums[1] / ranks), self.reduction)

    def _checked(self, index: Tensor | None, batch: Batch) -> Tensor:
        """The index, on the logits' device, or a ValueError that says what is wrong."""
        examples, classes = self.memory.shape
        if index is None or not examples:
            raise ValueError(
                "EarlyLearning must know which examples a batch has: call loss.remember(examples, "
                "classes) once and then loss(input, target, index=...) with the examples' numbers. "
                "In eval() mode, without an index, it is cross-entropy."
            )
        if index.shape != batch.mass.shape or index.dtype != torch.int64:
            raise ValueError(
                f"index must hold an int64 number for each target, in the shape "
                f"{tuple(batch.mass.shape)}; got {index.dtype} in the shape {tuple(index.shape)}."
            )
        if classes != batch.logits.shape[batch.dim]:
            raise ValueError(
                f"The loss remembers {classes} classes, the logits have "
                f"{batch.logits.shape[batch.dim]}: call loss.remember(examples, classes) again."
            )
        return index.to(batch.logits.device)

    def _remembered(
        self, p: Tensor, kept: Tensor, index: Tensor, sums: Tensor
    ) -> tuple[Tensor, Tensor, int]:
        """What is remembered of each position; the sums over ranks, and how many ranks there are.

        In train() mode the memory moves first, to the same on every rank.

        Args:
            p: the predictions, classes last.
            kept: which positions are not ignored.
            index: their numbers.
            sums: of this rank.
        """
        memory = self.memory.to(p.device, torch.promote_types(self.memory.dtype, p.dtype))
        t = memory[index]
        if not self.moves:
            return t, *self.sum_over_ranks(sums)
        moved = self.beta * t + (1 - self.beta) * (p / p.sum(-1, keepdim=True))
        moved = torch.where(kept.unsqueeze(-1), moved, t)
        broken = (~moved.isfinite().all()).to(sums.dtype)
        shared, ranks = self.sum_over_ranks(torch.cat([sums, broken.view(1)]))
        moved = torch.where(shared[-1] > 0, t, moved)
        rows, places = moved.reshape(-1, moved.shape[-1]), index.reshape(-1)
        if ranks == 1:
            self.store("memory", memory.index_copy(0, places, rows))
        else:
            # Ranks have different numbers of rows: what they add up is the whole memory, with how
            # often each example was seen, for an example may be on two ranks.
            counted = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
            table = memory.new_zeros(len(memory), counted.shape[1])
            table, _ = self.sum_over_ranks(table.index_add(0, places, counted))
            seen = table[:, -1:]
            self.store("memory", torch.where(seen > 0, table[:, :-1] / seen.clamp(min=1), memory))
        return moved, shared[:-1], ranks

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *args: Any
    ) -> None:
        saved = state_dict.get(prefix + "memory")
        if isinstance(saved, Tensor) and saved.dim() == 2 and not len(self.memory):
            self.remember(*saved.shape)  # so that a loss that was just made takes what was saved
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)


def _itself(values: Tensor) -> Tensor:
    return values
