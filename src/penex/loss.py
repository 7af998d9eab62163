"""PENEX as a module: the thin shell around `penex.functional` in which rho lives."""

from typing import ClassVar, Unpack

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

from penex import functional as F
from penex import targets
from penex.base import POSITIVE, POSITIVE_OR_NONE, Group, Loss, Options, Settings
from penex.kernels import eager

IMPLS = ("auto", "reference")

_PLAIN = (Tensor, nn.Parameter)


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
            sums, ranks = self.sum_over_ranks(sums)
            rho: Tensor | float | None = self.fixed_rho
            if rho is None:
                # The logits decide rho's precision; targets or weights may be wider.
                rho = self._penalty(sums.to(targets.statistics_dtype(logits))).to(se.dtype)
            # DistributedDataParallel averages gradients over ranks: D / ranks makes that average
            # the gradient of one process on the whole batch.
            total = targets.divisor(sums[0] + sums[1], sums[2] / ranks)
        return targets.reduce(own + rho * se, total, self.reduction)

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


class PENEX(PenalisedLoss):
    r"""The penalised exponential loss, wherever torch.nn.CrossEntropyLoss stands.

    L = E[exp(-alpha f_y)] + rho E[sum_j exp f_j], with rho estimated batch by batch in train()
    (the paper's eq:PEL and alg:penex_training). For predictions use `probabilities`, which applies
    the temperature 1 / (1 + alpha), not a plain softmax.

    Args:
        alpha: the sensitivity, above 0. 0.1 is the paper's default; take less under label noise.
            It scales the gradient: Adam hardly notices, SGD wants a rate about 1 / alpha higher.
        rho: None to estimate the penalty online; a number above 0 to hold it fixed.
        ema: the weight of a new batch in rho, in (0, 1].
        rho_min: the lower bound of rho.
        rho_max: the upper bound of rho.
        order: ``algorithm`` averages, then clips (the paper's Algorithm 1); ``listing`` clips,
            then averages (the paper's code).
        weight: a weight for each class.
        ignore_index: the class index that takes an example out.
        label_smoothing: between 0 and 1.
        reduction: ``mean``, ``sum`` or ``none``.
        accumulate: how many micro-batches make one batch. Their sums are pooled and rho moves
            once, after the last; the new value serves from the next batch on. The first batch uses
            its running estimate.
        process_group: whose ranks share a batch, in train(): None for the default group where
            torch.distributed is initialised, False for no one, or a group.
        impl: ``auto`` takes `penex.kernels.eager` where it applies (plain batches on the CPU) and
            the plain formula elsewhere; ``reference`` takes the plain formula always.

    Attributes:
        alpha: the sensitivity; it travels in the state_dict.
        rho: the penalty, a 0-dim buffer; 0 until the first usable batch. A batch is unusable when
            its sums are not finite or nothing is left after ignoring: rho then stays as it was.

    >>> loss = PENEX(alpha=0.1)
    >>> loss(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
    tensor(1.1000)
    >>> loss.rho
    tensor(0.0333)
    >>> PENEX(alpha=1.0).probabilities(torch.tensor([[0.0, 1.0]]))
    tensor([[0.1192, 0.8808]])
    """

    settings: ClassVar[Settings] = {"alpha": POSITIVE, **PenalisedLoss.settings}
    alpha: float

    def __init__(
        self,
        alpha: float = 0.1,
        *,
        rho: float | None = None,
        ema: float = 0.1,
        rho_min: float = 1e-6,
        rho_max: float = 100.0,
        order: str = "algorithm",
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        accumulate: int = 1,
        process_group: Group = None,
        impl: str = "auto",
    ) -> None:
        super().__init__(
            rho=rho,
            ema=ema,
            rho_min=rho_min,
            rho_max=rho_max,
            order=order,
            weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
            accumulate=accumulate,
            process_group=process_group,
        )
        self.configure(alpha=alpha)
        if impl not in IMPLS:
            raise ValueError(f"impl must be one of {', '.join(IMPLS)}; got {impl!r}.")
        self.impl = impl

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of a batch; in train() mode this is also one step of rho."""
        if self.impl == "auto" and self._is_common(logits, target):
            weight = self._buffers["weight"]
            batch = eager.sums(logits, target, self.alpha, weight, self.ignore_index)
            if batch is not None:
                rho = self._step(batch)
                divisor = batch.total if self.reduction == "mean" else 1.0
                return eager.loss(logits, batch, self.alpha, rho, divisor)
        return super().forward(logits, target)

    def _is_common(self, logits: Tensor, target: Tensor) -> bool:
        """Whether `kernels.eager` may try: a plain batch on the CPU, by itself."""
        return (
            not torch.compiler.is_compiling()
            and type(logits) in _PLAIN
            and type(target) is Tensor
            and logits.is_cpu
            and target.is_cpu
            and logits.dim() > 1
            and logits.dtype in targets.LOGIT_DTYPES
            and target.dtype == torch.int64
            and target.numel() * logits.shape[1] == logits.numel()
            and target.shape[1:] == logits.shape[2:]
            and self._buffers["rho"].is_cpu  # type: ignore[union-attr]
            and self.label_smoothing == 0
            and self.ignore_index < 0
            and self.accumulate == 1
            and self.reduction != "none"
            and not (self.training and self.shares_batches())
            and not _is_transformed(logits, target)
        )

    def _step(self, batch: eager.Sums) -> float:
        """What `_penalty` does for a usable batch, in Python's numbers."""
        if self.fixed_rho is not None:
            return self.fixed_rho
        buffer = self._buffers["rho"]
        assert buffer is not None
        before: float = buffer.item()
        if not self.training and before != 0:
            return before
        estimate = F.optimal_penalty(batch.ex, batch.se, self.alpha, eps=1e-12 * batch.total)
        rho = F.updated_number(before, estimate, self.ema, self.rho_min, self.rho_max, self.order)
        if self.training and buffer.dtype == batch.powers.dtype:
            buffer.fill_(rho)  # several times faster than `store`
        elif self.training:
            self.store("rho", torch.tensor(rho, dtype=batch.powers.dtype))
        return rho

    def terms(self, batch: targets.Examples) -> tuple[Tensor, Tensor, Tensor]:
        """EX, SE, and EX again: rho tends to alpha EX / SE."""
        ex, se = F.terms(batch, self.alpha)
        return ex, se, ex

    @property
    def scale(self) -> float:
        """alpha, as rho* = alpha EX / SE."""
        return self.alpha

    @property
    def _sharpness(self) -> float:
        return 1 + self.alpha


def _is_transformed(logits: Tensor, target: Tensor) -> bool:
    """Whether torch.func or forward-mode differentiation is at work: they need plain operations."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return forward_ad._current_level >= 0 or wrapped(logits) or wrapped(target)


def _usable(sums: Tensor) -> Tensor:
    """Whether rho can be estimated from these sums of evidence, se and D.

    exp(-alpha f) and exp(f) cannot both underflow, so their sum is 0 only if nothing is left.
    """
    left = sums[0] + sums[1]
    return torch.isfinite(left) & (left > 0)
