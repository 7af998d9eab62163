"""PENEX as a module: the thin shell around `penex.functional` in which rho lives."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penex import functional as F
from penex import targets

IMPLS = ("auto", "reference")

_HALF = (torch.float16, torch.bfloat16)


class PENEX(nn.Module):
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
        impl: ``auto`` picks the fastest implementation, ``reference`` the plain formula.

    Attributes:
        alpha: the sensitivity; it travels in the state_dict.
        rho: the penalty, a 0-dim buffer; 0 until the first usable batch. A batch is unusable when
            its sums are not finite or nothing is left after ignoring: rho then stays as it was.

    >>> loss = PENEX(alpha=0.1)
    >>> loss(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
    tensor(1.1000)
    >>> loss.rho
    tensor(0.0333)
    """

    rho: Tensor
    window: Tensor
    weight: Tensor | None

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
        process_group: dist.ProcessGroup | bool | None = None,
        impl: str = "auto",
    ) -> None:
        super().__init__()
        self.alpha = _positive("alpha", alpha)
        if not 0 < ema <= 1:
            raise ValueError(f"ema must be above 0 and at most 1; got {ema}.")
        if not 0 < rho_min < rho_max:
            raise ValueError(
                f"The bounds of rho must satisfy 0 < rho_min < rho_max; got rho_min={rho_min} and "
                f"rho_max={rho_max}."
            )
        F.check_order(order)
        targets.check_reduction(reduction)
        if accumulate < 1 or accumulate != int(accumulate):
            raise ValueError(f"accumulate must be a whole number from 1 on; got {accumulate}.")
        if process_group is True:
            raise ValueError("process_group must be None, False or a process group; got True.")
        if impl not in IMPLS:
            raise ValueError(f"impl must be one of {', '.join(IMPLS)}; got {impl!r}.")
        self.fixed = None if rho is None else _positive("rho", rho)
        self.ema = ema
        self.rho_min = rho_min
        self.rho_max = rho_max
        self.order = order
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.reduction = reduction
        self.accumulate = int(accumulate)
        self.process_group = process_group
        self.impl = impl
        self.register_buffer("rho", torch.tensor(self.fixed or 0.0))
        # What the running window of micro-batches has summed: ex, se, D, and how many there were.
        self.register_buffer("window", torch.zeros(4))
        self.register_buffer("weight", weight)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of a batch; in train() mode this is also one step of rho."""
        batch = targets.read(
            logits,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )
        ex, se = F.terms(batch, self.alpha)
        with torch.no_grad():
            sums, ranks = self._sum_over_ranks(torch.stack([ex.sum(), se.sum(), batch.total]))
            rho = self._penalty(sums).to(ex.dtype) if self.fixed is None else self.fixed
            # DistributedDataParallel averages gradients over ranks: D / ranks makes that average
            # the gradient of one process on the whole batch.
            total = F.mean_divisor(sums[0] + sums[1], sums[2] / ranks)
        return targets.reduce(ex + rho * se, total, self.reduction)

    @property
    def temperature(self) -> float:
        """1 / (1 + alpha), at which a softmax of the logits is calibrated."""
        return 1 / (1 + self.alpha)

    def rescale(self, logits: Tensor) -> Tensor:
        """(1 + alpha) f: logits that any softmax turns into calibrated probabilities."""
        return (1 + self.alpha) * logits

    def probabilities(self, logits: Tensor) -> Tensor:
        """softmax((1 + alpha) f) over the classes, the model's prediction (prop:self_calibration).

        >>> PENEX(alpha=1.0).probabilities(torch.tensor([[0.0, 1.0]]))
        tensor([[0.1192, 0.8808]])
        """
        return F.probabilities(logits, self.alpha)

    def extra_repr(self) -> str:
        """The arguments that decide the mathematics."""
        rho = "" if self.fixed is None else f", rho={self.fixed:g}"
        return f"alpha={self.alpha:g}{rho}, ema={self.ema:g}, order={self.order!r}"

    def __deepcopy__(self, memo: dict[int, Any]) -> "PENEX":
        memo[id(self.process_group)] = self.process_group  # a group is shared, never copied
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def get_extra_state(self) -> Tensor:
        """In float64, so that they survive to the last digit: alpha, and the fixed rho or 0."""
        return torch.tensor([self.alpha, self.fixed or 0.0], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the saved alpha, and whether rho was held fixed."""
        alpha, fixed = state.tolist()
        self.alpha = _positive("alpha", alpha)
        self.fixed = fixed or None

    def _sum_over_ranks(self, sums: Tensor) -> tuple[Tensor, int]:
        """The sums over the ranks that share the batch, and how many these are."""
        if not self.training or self.process_group is False:
            return sums, 1
        if not (dist.is_available() and dist.is_initialized()):
            return sums, 1
        group = None if self.process_group is None else self.process_group
        ranks = dist.get_world_size(group)
        if ranks > 1:
            dist.all_reduce(sums, group=group)
        return sums, ranks

    def _penalty(self, sums: Tensor) -> Tensor:
        """The rho this batch is to use; moves the buffers in train() mode.

        The result is never a buffer itself: the next batch may overwrite that before this one's
        backward pass has read it.
        """
        if not self.training:
            return torch.where(self.rho == 0, self._moved(sums), self.rho)
        self._widen(sums.dtype)
        if self.accumulate == 1:
            rho = self._moved(sums)
            self.rho.copy_(rho)
            return rho

        sums = torch.where(_usable(sums), sums, torch.zeros_like(sums))
        window = self.window + torch.cat([sums, sums.new_ones(1)])
        moved = self._moved(window[:3])
        rho = torch.where(self.rho == 0, moved, self.rho)
        full = window[3] >= self.accumulate
        self.rho.copy_(torch.where(full, moved, self.rho))
        self.window.copy_(torch.where(full, torch.zeros_like(window), window))
        return rho

    def _moved(self, sums: Tensor) -> Tensor:
        """One step of rho from the sums of ex, se and D; none if they are unusable."""
        ex, se, total = sums.unbind()
        estimate = F.optimal_penalty(ex / total, se / total, self.alpha)
        moved = F.update_penalty(
            self.rho, estimate, self.ema, self.rho_min, self.rho_max, self.order
        )
        return torch.where(_usable(sums), moved, self.rho)

    def _widen(self, dtype: torch.dtype) -> None:
        """float64 logits get a float64 rho."""
        if dtype == torch.float64 and self.rho.dtype != torch.float64:
            self.rho, self.window = self.rho.double(), self.window.double()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "PENEX":
        """Follow .to() and its kin, except that rho never goes to half precision."""
        before = {"rho": self.rho, "window": self.window}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, kept in before.items():
            moved = getattr(self, name)
            if moved.dtype in _HALF:
                setattr(self, name, kept.to(moved.device))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(prefix + "rho")
        if isinstance(saved, Tensor):
            self._widen(saved.dtype)  # copying into a float32 buffer would round a float64 rho
        super()._load_from_state_dict(state_dict, prefix, *args)


def _usable(sums: Tensor) -> Tensor:
    """Whether rho can be estimated from these sums of ex, se and D.

    exp(-alpha f) and exp(f) cannot both underflow, so ex + se is 0 only if nothing is left.
    """
    left = sums[0] + sums[1]
    return torch.isfinite(left) & (left > 0)


def _positive(name: str, value: float) -> float:
    value = float(value)
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a finite number above 0; got {value}.")
    return value
