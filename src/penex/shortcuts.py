"""The short ways to PENEX: kernels where they can do a batch, the plain formula elsewhere."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from penex import functional as F
from penex import penalty
from penex.kernels import choice, eager
from penex.penalised import PenalisedLoss

IMPLS = ("auto", "reference", "eager", "triton")

_NEEDS = {
    "eager": "it takes class indices on the CPU, without label smoothing, accumulate, other ranks "
    "or reduction='none', and outside torch.compile and torch.func.",
    "triton": "it takes (N, C) logits in float32, float16 or bfloat16 on a GPU, with Triton "
    "installed, and targets and weights there that are not float64 and need no gradient.",
}


class Shortcuts(PenalisedLoss):
    """PENEX as it is computed; what it is, `penex.PENEX` says."""

    is_itself: ClassVar[bool] = True  # no subclass that computes something else

    alpha: float
    impl: str
    scale: str
    overwrite_logits: bool

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of a batch; in train() mode this is also one step of rho."""
        impl = self.implementation(input, target)
        if impl == "triton":
            return self._fused(input, target)
        if impl == "eager":
            weight = self._buffers["weight"]
            batch = eager.sums(input, target, self.alpha, weight, self.ignore_index)
            if batch is not None:
                self.meet(input.shape[1])
                rho = self._step(batch)
                divisor, shown = batch.total if self.reduction == "mean" else 1.0, None
                if self.scale == "cross_entropy":
                    smallest = F.smallest_size(batch.powers.dtype)
                    size = max(abs(self.alpha) * batch.ex, rho * batch.se, smallest)
                    divisor *= size / batch.total
                    shown = F.level_of_sums(batch.ex, batch.se, batch.total, self.alpha, smallest)
                    shown *= 1.0 if self.reduction == "mean" else batch.total
                return eager.loss(input, batch, self.alpha, rho, divisor, shown)
        return super().forward(input, target)

    def implementation(self, logits: Tensor, target: Tensor) -> str:
        """Which implementation computes a batch: ``reference``, ``eager`` or ``triton``.

        ``eager`` hands a batch that it cannot do (logits so large that exp is saturated) to
        ``reference``, where the numbers are the same.

        Raises:
            ValueError: if `impl` names one that cannot do this batch.

        >>> from penex import PENEX
        >>> PENEX().implementation(torch.zeros(2, 3), torch.tensor([0, 1]))
        'eager'
        """
        if self.impl == "reference" or (self.impl == "auto" and not self.is_itself):
            return "reference"
        if not self.is_itself:
            raise ValueError(
                f"impl={self.impl!r} computes PENEX, and {type(self).__name__} has a formula of "
                "its own: say 'auto' or 'reference'."
            )
        if self.impl != "triton" and self._is_common(logits, target):
            return "eager"
        if self.impl == "triton" and self._is_fusible(logits, target):
            return "triton"
        if self.impl == "auto":
            # `penex bench` found it the fastest on a GPU at every size.
            fast = logits.is_cuda and self._is_fusible(logits, target)
            return "triton" if fast and choice.kernels().works(logits.device) else "reference"
        raise ValueError(f"impl={self.impl!r} cannot do this batch: {_NEEDS[self.impl]}")

    def _is_common(self, logits: Tensor, target: Tensor) -> bool:
        """Whether `kernels.eager` may try: a plain batch on the CPU, by itself."""
        return (
            choice.is_common(logits, target)
            and self._buffers["rho"].is_cpu  # type: ignore[union-attr]
            and self.label_smoothing == 0
            and self.ignore_index < 0
            and self.accumulate == 1
            and self.reduction != "none"
            and not (self.training and self.shares_batches())
        )

    def _is_fusible(self, logits: Tensor, target: Tensor) -> bool:
        """Whether `kernels.fused` can do it: (N, C) logits up to float32 where Triton runs."""
        return (
            0 <= self.label_smoothing <= 1
            and choice.is_fusible(logits, target, self._buffers["weight"])
            and (self.ignore_index < 0 or target.dim() == 1)
        )

    def _fused(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss by the kernels of `kernels.fused`."""
        fused = choice.kernels()
        self.follow(logits)
        self.meet(logits.shape[1])
        weight, buffer = self._buffers["weight"], self._buffers["rho"]
        assert buffer is not None
        if weight is not None:
            weight = weight.contiguous()
        overwrite = self.overwrite_logits and choice.is_disposable(logits)
        rest = fused.Constants(self.alpha, self.ignore_index, self.label_smoothing, overwrite)
        value: Tensor
        if (
            self.reduction != "none"
            and self.accumulate == 1
            and buffer.dtype == torch.float32
            and not (self.training and self.shares_batches())
        ):
            if self.fixed_rho is None and self.moves and not torch.is_grad_enabled():
                self.warn_of_no_gradients()
            value, sums = fused.rows_and_finish(
                logits, target, weight, buffer, *rest[:3],
                self.ema, self.lowest, self.rho_max, self.fixed_rho or 0.0, self.moves,
                self.order == "listing", self.reduction == "mean", self.scale == "cross_entropy",
            )  # fmt: skip
        else:
            sums = fused.rows(logits, target, weight, *rest[:3])
            parts = sums[:-2].view(4, -1)
            settled = self.settle(parts.sum(1), logits.shape[1])
            sums[-2] = settled.rho
            sums[-1] = 1.0 if settled.divisor is None else settled.divisor
            value = F.sign(self.alpha) * parts[0] + settled.rho * parts[1]
            value = self.reduced(value, parts[3], settled)
        if not (logits.requires_grad and torch.is_grad_enabled()):
            return value
        arguments = logits, (value,), target, weight, sums, rest
        if torch.compiler.is_compiling():
            value = fused.WithGradient.apply(*arguments)
            return value
        return eager.apply(fused.WithGradient, *arguments)

    def _step(self, batch: eager.Sums) -> float:
        """What `_penalty` does for a usable batch, in Python's numbers."""
        if self.fixed_rho is not None:
            return self.fixed_rho
        buffer = self._buffers["rho"]
        assert buffer is not None
        before: float = buffer.item()
        moves = self.moves
        if moves and not torch.is_grad_enabled():
            self.warn_of_no_gradients()
        if not moves and 0 < before < math.inf:
            return before
        estimate = penalty.optimal_penalty(batch.ex, batch.se, self.alpha, eps=1e-12 * batch.total)
        rho = penalty.updated_number(
            before, estimate, self.ema, self.lowest, self.rho_max, self.order
        )
        if moves and buffer.dtype == batch.powers.dtype:
            buffer.fill_(rho)  # several times faster than `store`
        elif moves:
            self.store("rho", torch.tensor(rho, dtype=batch.powers.dtype))
        return rho
