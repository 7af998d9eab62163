"""Losses with a penalty on sum_j exp f_j whose weight, rho, is estimated batch by batch."""

import operator
import warnings
from typing import ClassVar, NamedTuple, Unpack

import torch
from torch import Tensor

from penex import penalty, targets
from penex.base import POSITIVE_OR_NONE, Group, Loss, Options, Settings

_LARGEST = 1e38  # float32 ends at three times that


class Settled(NamedTuple):
    """What the sums of a batch decide.

    Attributes:
        rho: the penalty.
        divisor: what the loss is divided by, if by anything.
        level: what its mean is to read as, if not as itself.
        total: this rank's D.
    """

    rho: Tensor | float
    divisor: Tensor | None
    level: Tensor | None
    total: Tensor


class PenalisedLoss(Loss):
    r"""A term of its own plus rho E[sum_j exp f_j], with rho estimated batch by batch.

    rho tends to gain E[evidence] / E[SE]; what evidence and gain are, a subclass says in
    `terms` and `gain`. The arguments are those of `PENEX`.
    """

    settings: ClassVar[Settings] = {"fixed_rho": POSITIVE_OR_NONE}
    _has_warned = False
    classes = 0  # of the last batch
    statistics = ("rho", "window")
    fixed_rho: float | None
    rho: Tensor
    window: Tensor

    def __init__(
        self,
        *,
        rho: float | None = None,
        ema: float = 0.1,
        rho_min: float = 1e-6,
        rho_max: float = 100.0,
        order: str = "algorithm",
        accumulate: int = 1,
        process_group: Group = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        if not 0 < ema <= 1:
            raise ValueError(f"ema must be above 0 and at most 1; got {ema}.")
        if not 0 < rho_min < rho_max:
            raise ValueError(
                f"The bounds of rho must satisfy 0 < rho_min < rho_max; got rho_min={rho_min} and "
                f"rho_max={rho_max}."
            )
        penalty.check_order(order)
        if not hasattr(accumulate, "__index__") or accumulate < 1:  # numpy's have it too
            raise ValueError(f"accumulate must be a whole number from 1 on; got {accumulate}.")
        self.configure(fixed_rho=rho)
        self.ema = ema
        self.rho_min = rho_min
        self.rho_max = min(rho_max, _LARGEST)  # so that rho is always a number
        self.order = order
        self.accumulate = operator.index(accumulate)
        self.process_group = process_group
        self.register_buffer("rho", torch.tensor(self.initial("rho"), dtype=torch.float32))
        # What the running window of micro-batches has summed: evidence, se, D, and their number.
        self.register_buffer("window", torch.zeros(4, dtype=torch.float32))

    def terms(self, batch: targets.Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The loss's own term, se and the evidence for rho, each for every position."""
        raise NotImplementedError

    @property
    def gain(self) -> float:
        """What rho is in units of E[evidence] / E[SE]."""
        raise NotImplementedError

    @property
    def lowest(self) -> float:
        """The lower bound of rho, for as many classes as the last batch had."""
        return penalty.bound_for(self.classes, self.rho_min)

    def initial(self, statistic: str) -> float:
        """The fixed rho, if there is one; 0 stands for no usable batch yet."""
        return self.fixed_rho or 0.0 if statistic == "rho" else 0.0

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of a batch; in train() mode this is also one step of rho."""
        batch = self.read(input, target)
        own, se, evidence = self.terms(batch)
        with torch.no_grad():
            parts = evidence.sum(), se.sum(), batch.total, batch.mass.sum()
            sums = torch.stack(parts).detach()  # forward-mode derivatives are not off by no_grad
        settled = self.settle(sums, batch.logits.shape[batch.dim])
        return self.reduced(own + settled.rho * se, batch.mass, settled)

    def reduced(self, values: Tensor, mass: Tensor, settled: Settled) -> Tensor:
        """The loss from its terms at every position, with a value that says how far a model is.

        Args:
            values: at every position.
            mass: sum_j u_ij at every position.
            settled: what `settle` said of the batch.
        """
        values = values if self.reduction == "none" else values.sum()
        values = values if settled.divisor is None else values / settled.divisor
        if settled.level is None:
            return values
        # What is added has no gradient: the numbers change, and nothing that is learned from them.
        if self.reduction == "none":
            short = settled.level * settled.total - values.detach().sum()
            return values + mass.detach() * (short / targets.divisor(mass, mass.detach().sum()))
        shown = settled.level if self.reduction == "mean" else settled.level * settled.total
        return (values - values.detach()) + shown

    def settle(self, sums: Tensor, classes: int) -> Settled:
        """What the sums of a batch decide, from this rank's. In train() mode a step of rho.

        Args:
            sums: of evidence, se, D and mass.
            classes: how many there are.
        """
        self.meet(classes)
        own_total = sums[2].clone()  # the ranks' sums are written over these
        moves, has_gradients = self.moves, torch.is_grad_enabled()
        counts = moves and (self.accumulate == 1 or has_gradients)
        with torch.no_grad():
            sums, ranks = self.sum_over_ranks(sums)
            rho: Tensor | float
            if self.fixed_rho is not None:
                rho = self.fixed_rho
            else:
                if moves and not has_gradients:
                    self.warn_of_no_gradients()
                rho = self._penalty(sums[:3], counts).to(sums.dtype)
            return Settled(rho, self.divisor(sums, rho, ranks), self.level(sums), own_total)

    def meet(self, classes: int) -> None:
        """Note how many classes a batch has; a symbol of a compiler's is no number yet."""
        # A module's attribute takes long to set; a compiler would compile anew for one it reads.
        if type(classes) is int and (torch.compiler.is_compiling() or classes != self.classes):
            self.classes = classes

    def divisor(self, sums: Tensor, rho: Tensor | float, ranks: int) -> Tensor | None:
        """What the loss of a batch is divided by: for a mean D, shared among the ranks.

        DistributedDataParallel averages gradients over ranks: D / ranks makes that average the
        gradient of one process on the whole batch.

        Args:
            sums: of evidence, se, D and mass, over all ranks.
            rho: the penalty of this batch.
            ranks: how many share it.
        """
        if self.reduction != "mean":
            return None
        return targets.divisor(sums[0] + sums[1], sums[2] / ranks)

    def level(self, sums: Tensor) -> Tensor | None:
        """What the mean over a batch is to read as; None for the loss itself."""
        return None

    @torch.no_grad()
    def end_step(self) -> None:
        """Close a window of `accumulate` that is not full: rho moves by what it has so far.

        For after an optimiser step that came early, as frameworks do at the end of an epoch. It
        does nothing if no micro-batch has come since the last step, if accumulate is 1 and if rho
        is fixed. A window has the sums of all ranks, so this makes no collective call; each rank
        has to call it.

        >>> from penex import PENEX
        >>> loss = PENEX(alpha=0.1, accumulate=4)
        >>> value = loss(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
        >>> before = loss.rho.item()
        >>> loss.end_step()
        >>> before, loss.rho
        (0.0, tensor(0.0333))
        """
        if self.fixed_rho is None and self.accumulate > 1:
            self.store("rho", self._moved(self._counted()[:3]))
            self.window.zero_()

    def _penalty(self, sums: Tensor, counts: bool) -> Tensor:
        """The rho this batch is to use; moves the buffers if it counts.

        The result is never a buffer itself: the next batch may overwrite that before this one's
        backward pass has read it.
        """
        if self.accumulate == 1 or not self.training:
            moved = self._moved(sums)
            if counts:
                self.store("rho", moved)
                return moved
            return torch.where(penalty.is_set(self.rho), self.rho, moved)
        if not self.moves and self.window[3] > 0:  # computed again: the window has it already
            return torch.where(penalty.is_set(self.rho), self.rho, self._moved(self._counted()[:3]))

        sums = torch.where(_usable(sums), sums, torch.zeros_like(sums))
        window = self._counted() + torch.cat([sums, sums.new_ones(1)])
        moved = self._moved(window[:3])
        rho = torch.where(penalty.is_set(self.rho), self.rho, moved)
        if counts:
            full = window[3] >= self.accumulate
            self.store("rho", torch.where(full, moved, self.rho))
            self.store("window", torch.where(full, torch.zeros_like(window), window))
        return rho

    def _counted(self) -> Tensor:
        """The sums of the running window; what is no number counts as none."""
        return self.window.nan_to_num(0.0, 0.0, 0.0)

    def _moved(self, sums: Tensor) -> Tensor:
        """One step of rho from the sums of evidence, se and D; none if they are unusable."""
        evidence, se, total = sums.unbind()
        estimate = penalty.optimal_penalty(evidence, se, self.gain, eps=1e-12 * total)
        moved = penalty.update_penalty(
            self.rho, estimate, self.ema, self.lowest, self.rho_max, self.order
        )
        return torch.where(_usable(sums), moved, torch.where(penalty.is_set(self.rho), self.rho, 0))

    def warn_of_no_gradients(self) -> None:
        """Say, once, that whoever evaluates in train() mode moves rho, or fills no window."""
        if self._has_warned or torch.compiler.is_compiling():
            return
        self._has_warned = True
        effect = "rho moves with the batch, as batch norm's statistics do"
        if self.accumulate > 1:
            effect = f"with accumulate={self.accumulate} such a batch is no part of a window"
        warnings.warn(
            f"{type(self).__name__} was called in train() mode without gradients: {effect}. To "
            "evaluate, call eval() first, or give metric code loss.frozen(); for activation "
            "checkpointing around the loss, say use_reentrant=False.",
            stacklevel=2,
        )


def _usable(sums: Tensor) -> Tensor:
    """Whether rho can be estimated from these sums of evidence, se and D.

    For alpha above 0, exp(-alpha f) and exp(f) cannot both underflow: their sum is 0 only if
    nothing is left. Below 0 they can, and then loss and gradient are 0 as well.
    """
    left = sums[0] + sums[1]
    return torch.isfinite(left) & (left > 0)
