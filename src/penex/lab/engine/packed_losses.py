"""The losses of many models at once, each with its own parameters and state.

The same mathematics as in the library, for class indices without weights; the tests hold each to
its original. Models of the same kind of loss are computed together.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from penex import functional as F
from penex.base import Loss
from penex.baselines import (
    ConfidencePenaltyLoss,
    CrossEntropyLoss,
    FocalLoss,
    LabelSmoothingLoss,
)
from penex.conex import AugmentedLagrangianLoss, ExponentialLoss, SquaredPenaltyLoss
from penex.extras import CrossEntropyZLoss, LogPenaltyLoss, UnnormalisedLoss
from penex.lab.engine.learner import AnyLoss
from penex.lab.engine.packed_layers import CannotPack
from penex.loss import PENEX
from penex.penalised import PenalisedLoss

State = dict[str, Tensor]

_SMALLEST_MISS = 1e-30
_LOWEST_LOG = -1e9
_EPS = 1e-12


class Family:
    """Losses of one kind, those of some models of a pack.

    Args:
        losses: one a model; their state is taken, and given back by `scatter`.
        place: their models' places in the pack.
        device: where they are computed.
        dtype: of their numbers.
    """

    def __init__(
        self,
        losses: Sequence[AnyLoss],
        place: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.losses = list(losses)
        self.place = torch.tensor(place, device=device)
        self.kind = type(losses[0])
        self.numbers = {
            name: torch.tensor(
                [float(getattr(loss, name) or 0.0) for loss in losses], dtype=dtype, device=device
            )
            for name in getattr(losses[0], "settings", {})
        }
        self.state = {
            name: torch.stack([getattr(loss, name).to(device, dtype) for loss in losses])
            for name in getattr(losses[0], "statistics", ())
            if name != "window"
        }
        first = losses[0]
        self.detach = isinstance(first, FocalLoss) and bool(first.detach)

    def scatter(self) -> None:
        """Give every loss its state back."""
        for name, values in self.state.items():
            for loss, value in zip(self.losses, values, strict=True):
                buffer = getattr(loss, name)
                buffer.copy_(value.to(buffer.device))

    def values(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, State]:
        """The mean loss of each model's batch, (m), from (m, B, K) logits; what it moves to where.

        It is for `keep` to move it, after the backward pass: a compiled one may read a state that
        was moved in the forward pass, and take it for what it was.
        """
        moved: State = {}
        return _VALUES[self.kind](self, logits, targets, moved), moved

    def keep(self, moved: State) -> None:
        """Move the state."""
        for name, value in moved.items():
            self.state[name].copy_(value)

    def rho(self) -> Tensor:
        """The penalty weight of each model; NaN where there is none."""
        if "rho" in self.state:
            return self.state["rho"]
        nothing = torch.full((len(self.losses),), torch.nan, device=self.place.device)
        return self.numbers.get("rho", nothing)


def families(losses: Sequence[AnyLoss], device: torch.device, dtype: torch.dtype) -> list[Family]:
    """The losses of a pack by kind; a CannotPack if one has an option that is not known here."""
    kinds: dict[tuple[object, ...], list[int]] = {}
    for place, loss in enumerate(losses):
        kinds.setdefault(_key(loss), []).append(place)
    return [
        Family([losses[place] for place in places], places, device, dtype)
        for places in kinds.values()
    ]


def _key(loss: AnyLoss) -> tuple[object, ...]:
    smooth = loss.label_smoothing if not isinstance(loss, LabelSmoothingLoss) else 0.0
    if loss.weight is not None or smooth:
        raise CannotPack(
            "a loss with class weights or label smoothing is not one that can be packed"
        )
    if type(loss) not in _VALUES:
        raise CannotPack(f"a {type(loss).__name__} is not one that can be packed")
    if isinstance(loss, PenalisedLoss):
        if loss.accumulate != 1:
            raise CannotPack("micro-batches are not packed")
        fixed = loss.fixed_rho is not None
        return type(loss), loss.ema, loss.rho_min, loss.rho_max, loss.order, fixed
    if isinstance(loss, FocalLoss):
        return type(loss), loss.detach
    if isinstance(loss, Loss) and "alpha" in loss.settings:
        return type(loss), getattr(loss, "alpha") is None  # noqa: B009  (mypy does not know it)
    return (type(loss),)


def _own(values: Tensor, targets: Tensor) -> Tensor:
    """The value at each example's class."""
    return values.gather(2, targets.unsqueeze(2)).squeeze(2)


def _cross_entropy(family: Family, logits: Tensor, targets: Tensor, moved: State) -> Tensor:
    return -_own(torch.log_softmax(logits, 2), targets).mean(1)


def _label_smoothing(family: Family, logits: Tensor, targets: Tensor, moved: State) -> Tensor:
    log_p = torch.log_softmax(logits, 2)
    epsilon = family.numbers["epsilon"].unsqueeze(1)
    return -((1 - epsilon) * _own(log_p, targets) + epsilon * log_p.mean(2)).mean(1)


def _confidence_penalty(family: Family, logits: Tensor, targets: Tensor, moved: State) -> Tensor:
    log_p = torch.log_softmax(logits, 2)
    entropy = -(log_p.exp() * log_p.clamp(min=_LOWEST_LOG)).sum(2)
    return -(_own(log_p, targets) + family.numbers["lambda_"].unsqueeze(1) * entropy).mean(1)


def _focal(family: Family, logits: Tensor, targets: Tensor, moved: State) -> Tensor:
    log_p = _own(torch.log_softmax(logits, 2), targets)
    miss = (-torch.expm1(log_p)).clamp(min=_SMALLEST_MISS)
    factor = miss ** family.numbers["gamma"].unsqueeze(1)
    return -((factor.detach() if family.detach else factor) * log_p).mean(1)


def _z_loss(family: Family, logits: Tensor, targets: Tensor, moved: State) -> Tensor:
    log_se = torch.logsumexp(logits, 2)
    squares = family.numbers["lambda_"].unsqueeze(1) * log_se.square()
    return (log_se - _own(logits, targets) + squares).mean(1)


def _log_penalty(family: Family, logits: Tensor, targets: Tensor, moved: State) -> Tensor:
    limit = F.exp_limit(logits[0].numel(), logits.dtype)
    alpha, rho = (family.numbers[name].unsqueeze(1) for name in ("alpha", "rho"))
    ex = F.saturated_exp(-alpha * _own(logits, targets), limit)
    return (ex + rho * torch.logsumexp(logits, 2)).mean(1)


def _penalised(
    family: Family, own: Tensor, se: Tensor, evidence: Tensor, scale: Tensor, moved: State
) -> Tensor:
    """Own + rho SE, after one step of rho by the batch's sums (Algorithm 1)."""
    first = family.losses[0]
    assert isinstance(first, PenalisedLoss)
    if first.fixed_rho is not None:
        rho = family.numbers["fixed_rho"]  # the buffer may have rounded it
    else:
        before = family.state["rho"]
        sums = evidence.detach().sum(1), se.detach().sum(1)
        estimate = scale * sums[0] / (sums[1] + _EPS * se.shape[1])  # F.optimal_penalty
        rho = F.update_penalty(
            before, estimate, first.ema, first.rho_min, first.rho_max, first.order
        )
        left = sums[0] + sums[1]
        moved["rho"] = rho = torch.where(left.isfinite() & (left > 0), rho, before)
    return (own + rho.unsqueeze(1) * se).mean(1)


def _penex(family: Family, logits: Tensor, targets: Tensor, moved: State) -> Tensor:
    limit = F.exp_limit(logits[0].numel(), logits.dtype)
    alpha = family.numbers["alpha"]
    ex = F.saturated_exp(-alpha.unsqueeze(1) * _own(logits, targets), limit)
    se = F.saturated_exp(logits, limit).sum(2)
    return _penalised(family, ex, se, ex, alpha, moved)


def _unnormalised(family: Family, logits: Tensor, targets: Tensor, moved: State) -> Tensor:
    limit = F.exp_limit(logits[0].numel(), logits.dtype)
    se = F.saturated_exp(logits, limit).sum(2)
    one = torch.ones_like(se)
    return _penalised(family, -_own(logits, targets), se, one, torch.ones_like(se[:, 0]), moved)


def _alpha(family: Family, classes: int) -> Tensor:
    first = family.losses[0]
    given = family.numbers["alpha"]
    missing = getattr(first, "alpha") is None  # noqa: B009
    return torch.full_like(given, 1 / (classes - 1)) if missing else given


def _exponential(family: Family, logits: Tensor, targets: Tensor, moved: State) -> Tensor:
    alpha = _alpha(family, logits.shape[2])
    return torch.exp(-alpha.unsqueeze(1) * _own(logits, targets)).mean(1)


def _squared_penalty(family: Family, logits: Tensor, targets: Tensor, moved: State) -> Tensor:
    violation = logits.sum(2).square().mean(1)
    ex = _exponential(family, logits, targets, moved)
    value = ex + family.numbers["rho"] / 2 * violation.square()
    if "lambda_" not in family.state:
        return value
    before = family.state["lambda_"]
    after = before + family.numbers["rho"] / family.numbers["nu"] * violation.detach()
    moved["lambda_"] = torch.where(after.isfinite(), after, before)
    return value + before * violation


_VALUES: dict[type, Callable[[Family, Tensor, Tensor, State], Tensor]] = {
    CrossEntropyLoss: _cross_entropy,
    LabelSmoothingLoss: _label_smoothing,
    ConfidencePenaltyLoss: _confidence_penalty,
    FocalLoss: _focal,
    PENEX: _penex,
    ExponentialLoss: _exponential,
    SquaredPenaltyLoss: _squared_penalty,
    AugmentedLagrangianLoss: _squared_penalty,
    CrossEntropyZLoss: _z_loss,
    UnnormalisedLoss: _unnormalised,
    LogPenaltyLoss: _log_penalty,
}
