"""Losses with a penalty on sum_j exp f_j whose weight, rho, is estimated batch by batch."""

from typing import ClassVar, Unpack

import torch
from torch import Tensor

from penex import functional as F
from penex import targets
from penex.base import POSITIVE_OR_NONE, Group, Loss, Options, Settings


class PenalisedLoss(Loss):
    r"""A term of its own plus rho E[sum_j exp f_j], with rho estimated batch by batch.

    rho tends to scale E[evidence] / E[SE]; what evidence and scale are, a subclass says in
    `terms` and `scale`. The arguments are those of `PENEX`.
    """

    settings: ClassVar[Settings] = {"fixed_rho": POSITIVE_OR_NONE}
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
        F.check_order(order)
        if not isinstance(accumulate, int) or accumulate < 1:
            raise ValueError(f"accumulate must be a whole number from 1 on; got {accumulate}.")
        self.configure(fixed_rho=rho)
        self.ema = ema
        self.rho_min = rho_min
        self.rho_max = rho_max
        self.order = order
        self.accumulate = accumulate
        self.process_group = process_group
        self.register_buffer("rho", torch.tensor(self.fixed_rho or 0.0, dtype=torch.float32))
        # What the running window of micro-batches has summed: evidence, se, D, and their number.
        self.register_buffer("window", torch.zeros(4, dtype=torch.float32))

    def terms(self, batch: targets.Examples) -> tuple[Tensor, Tensor, Tensor]:
        """The loss's own term, se and the evidence for rho, each for every position."""
        raise NotImplementedError

    @property
    def scale(self) -> float:
        """What rho is in units of E[evidence] / E[SE]."""
        raise NotImplementedError

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of a batch; in train() mode this is also one step of rho."""
        batch = self.read(logits, target)
        own, se, evidence = self.terms(batch)
        with torch.no_grad():
            sums = torch.stack([evidence.sum(), se.sum(), batch.total])
            # The logits decide rho's precision; targets or weights may be wider.
            rho, total = self.settle(sums, targets.statistics_dtype(logits))
            if isinstance(rho, Tensor):
                rho = rho.to(se.dtype)
        return targets.reduce(own + rho * se, total, self.reduction)

    @torch.no_grad()
    def settle(self, sums: Tensor, dtype: torch.dtype) -> tuple[Tensor | float, Tensor]:
        """The rho of a batch and what its mean divides by, from this rank's sums.

        In train() mode this is a step of rho.

        Args:
            sums: of evidence, se and D.
            dtype: of rho.
        """
        sums, ranks = self.sum_over_ranks(sums)
        rho: Tensor | float
        rho = self._penalty(sums.to(dtype)) if self.fixed_rho is None else self.fixed_rho
        # DistributedDataParallel averages gradients over ranks: D / ranks makes that average
        # the gradient of one process on the whole batch.
        return rho, targets.divisor(sums[0] + sums[1], sums[2] / ranks)

    def _penalty(self, sums: Tensor) -> Tensor:
        """The rho this batch is to use; moves the buffers in train() mode.

        The result is never a buffer itself: the next batch may overwrite that before this one's
        backward pass has read it.
        """
        if not self.training:
            return torch.where(self.rho == 0, self._moved(sums), self.rho)
        if self.accumulate == 1:
            rho = self._moved(sums)
            self.store("rho", rho)
            return rho

        sums = torch.where(_usable(sums), sums, torch.zeros_like(sums))
        window = self.window + torch.cat([sums, sums.new_ones(1)])
        moved = self._moved(window[:3])
        rho = torch.where(self.rho == 0, moved, self.rho)
        full = window[3] >= self.accumulate
        self.store("rho", torch.where(full, moved, self.rho))
        self.store("window", torch.where(full, torch.zeros_like(window), window))
        return rho

    def _moved(self, sums: Tensor) -> Tensor:
        """One step of rho from the sums of evidence, se and D; none if they are unusable."""
        evidence, se, total = sums.unbind()
        estimate = F.optimal_penalty(evidence, se, self.scale, eps=1e-12 * total)
        moved = F.update_penalty(
            self.rho, estimate, self.ema, self.rho_min, self.rho_max, self.order
        )
        return torch.where(_usable(sums), moved, self.rho)


def _usable(sums: Tensor) -> Tensor:
    """Whether rho can be estimated from these sums of evidence, se and D.

    exp(-alpha f) and exp(f) cannot both underflow, so their sum is 0 only if nothing is left.
    """
    left = sums[0] + sums[1]
    return torch.isfinite(left) & (left > 0)
