"""The exponential loss without PENEX's penalty: alone, and under the zero-sum constraint (CONEX).

EX(f) = E[exp(-alpha f_y)] falls without end if all logits grow. CONEX (the paper's eq:L_CEL) keeps
them apart by h = sum_j f_j = 0: by a squared penalty, by an augmented Lagrangian, or built into
the model. None of these is ever saturated: where they diverge, that is the result. A class masked
with -inf has no place under the constraint and makes the loss infinite. The paper gives no rule
for prediction, so the temperature is 1.
"""

from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from penex import functional as F
from penex import targets
from penex.base import NON_NEGATIVE, POSITIVE, POSITIVE_OR_NONE, Group, Loss, Options, Settings
from penex.targets import Batch


class ExponentialLoss(Loss):
    r"""EX alone, E[exp(-alpha f_y)] (the paper's eq:EL): without a barrier, for comparison.

    Args:
        alpha: the sensitivity, above 0; None for 1 / (K - 1), as in CONEX with K classes.
        options: weight, ignore_index, label_smoothing and reduction, as in torch.

    >>> ExponentialLoss(alpha=0.5)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.3679)
    """

    settings: ClassVar[Settings] = {"alpha": POSITIVE_OR_NONE}
    alpha: float | None

    def __init__(self, alpha: float | None = None, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.configure(alpha=alpha)

    def values(self, batch: Batch) -> Tensor:
        """exp(-alpha f_y) of each position."""
        return _exponential(batch, self.alpha)


class SquaredPenaltyLoss(Loss):
    r"""CONEX by a squared penalty, EX + (rho / 2) E[h^2]^2 with h = sum_j f_j (app. Ablations).

    An example's share of the penalty is (rho / 2) E[h^2] h^2, so that reductions add up. In
    train() mode E[h^2] is that of the whole batch over all ranks.

    Args:
        rho: the weight of the penalty, at least 0. The optimum tends to CONEX's as it grows.
        alpha: the sensitivity, above 0; None for 1 / (K - 1).
        process_group: whose ranks share a batch, as in `penex.PENEX`.
        options: weight, ignore_index, label_smoothing and reduction, as in torch.

    >>> SquaredPenaltyLoss(rho=2.0)(torch.tensor([[1.0, 1.0]]), torch.tensor([0]))
    tensor(16.3679)
    """

    settings: ClassVar[Settings] = {"rho": NON_NEGATIVE, "alpha": POSITIVE_OR_NONE}
    rho: float
    alpha: float | None

    def __init__(
        self,
        rho: float,
        alpha: float | None = None,
        *,
        process_group: Group = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.configure(rho=rho, alpha=alpha)
        self.process_group = process_group

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of a batch."""
        batch = self.read(input, target)
        ex = _exponential(batch, self.alpha)
        h2 = batch.mass * batch.logits.sum(batch.dim).square()
        with torch.no_grad():
            sums = torch.stack([h2.sum(), batch.mass.sum(), batch.total])
            sums, ranks = self.sum_over_ranks(sums)
            total = targets.divisor(sums[1], sums[2])
            violation = sums[0] / total
            multiplier = self.multiplier(violation)
        if ranks == 1:
            penalty = (self.rho / 2 * (h2.sum() / total) + multiplier) * h2
        else:
            # The mean over ranks of these gradients is rho E[h^2] grad E[h^2], as of one process;
            # the second part carries no gradient and makes the value (rho / 2) E[h^2] h^2.
            penalty = (self.rho * violation + multiplier) * h2
            penalty = penalty - (self.rho / 2 * violation * h2).detach()
        return targets.reduce(ex + penalty, total / ranks, self.reduction)

    def multiplier(self, violation: Tensor) -> Tensor | float:
        """What E[h^2] is multiplied with besides its own penalty: nothing here."""
        return 0.0


class AugmentedLagrangianLoss(SquaredPenaltyLoss):
    r"""CONEX by an augmented Lagrangian, EX + (rho / 2) E[h^2]^2 + lambda E[h^2] (app. Ablations).

    In train() mode, each batch that was used with lambda then adds (rho / nu) E[h^2] to it.

    Args:
        rho: the weight of the squared penalty, at least 0.
        nu: the inverse scale of the steps of lambda, above 0.
        alpha: the sensitivity, above 0; None for 1 / (K - 1).
        process_group: whose ranks share a batch, as in `penex.PENEX`.
        options: weight, ignore_index, label_smoothing and reduction, as in torch.

    Attributes:
        lambda_: the dual variable, a 0-dim buffer that starts at 0. A batch that would make it
            anything but a finite number does not move it.

    >>> loss = AugmentedLagrangianLoss(rho=2.0, nu=4.0)
    >>> loss(torch.tensor([[1.0, 1.0]]), torch.tensor([0])), loss.lambda_
    (tensor(16.3679), tensor(2.))
    """

    settings: ClassVar[Settings] = {**SquaredPenaltyLoss.settings, "nu": POSITIVE}
    nu: float
    statistics = ("lambda_",)
    lambda_: Tensor

    def __init__(
        self,
        rho: float,
        nu: float,
        alpha: float | None = None,
        *,
        process_group: Group = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(rho, alpha, process_group=process_group, **options)
        self.configure(nu=nu)
        self.register_buffer("lambda_", torch.tensor(0.0, dtype=torch.float32))

    def multiplier(self, violation: Tensor) -> Tensor:
        """Lambda as this batch uses it; moves the buffer in train() mode."""
        before = self.lambda_.nan_to_num(0.0, 0.0, 0.0)  # never the buffer, which moves
        if self.training:
            if not self.moves:
                raise RuntimeError(
                    f"{type(self).__name__} cannot be computed again in a backward pass, as "
                    "activation checkpointing does: lambda has moved since. Compute the loss "
                    "outside of the checkpointed part."
                )
            moved = before + self.rho / self.nu * violation
            self.store("lambda_", torch.where(moved.isfinite(), moved, before))
        return before.to(violation.dtype)


class ZeroSumHead(nn.Module):
    r"""K - 1 outputs of a model as K logits that sum to zero: f_K = -sum_{j < K} f_j.

    The constraint of CONEX built into the model; train it with `ExponentialLoss`. Half precision
    comes out in float32, for the sum of many logits may not fit it.

    >>> ZeroSumHead()(torch.tensor([[1.0, 2.0]]))
    tensor([[ 1.,  2., -3.]])
    """

    def forward(self, outputs: Tensor) -> Tensor:
        """(N, K - 1, ...) to (N, K, ...), or (K - 1) to (K)."""
        dim = targets.class_dim(outputs)
        outputs = outputs.to(targets.statistics_dtype(outputs))
        return torch.cat([outputs, -outputs.sum(dim, keepdim=True)], dim=dim)


def _exponential(batch: Batch, alpha: float | None) -> Tensor:
    if alpha is None:
        classes = batch.logits.shape[batch.dim]
        if classes < 2:
            raise ValueError(
                f"alpha = 1 / (K - 1) needs at least two classes; the logits have {classes}."
            )
        alpha = 1 / (classes - 1)
    return F.exact_ex(batch, alpha)
