"""Three losses that are not in the paper: they show where the effect of PENEX comes from.

Each keeps one part of PENEX's idea. `CrossEntropyZLoss` keeps the penalty on SE and the normaliser;
`UnnormalisedLoss` drops the normaliser and the exponential: it is PENEX as alpha tends to 0;
`LogPenaltyLoss` keeps the exponential and has the logarithm of SE for a penalty, so that it is the
normaliser again.
"""

from typing import ClassVar, Unpack

import torch
from torch import Tensor

from penex import functional as F
from penex.base import NON_NEGATIVE, POSITIVE, Loss, Options, Settings
from penex.baselines import log_probabilities
from penex.penalised import PenalisedLoss
from penex.targets import Batch


class CrossEntropyZLoss(Loss):
    r"""Cross-entropy with a penalty on its normaliser, -log p_y + lambda (log SE)^2 (ours).

    Args:
        lambda_: the weight of the penalty, at least 0.
        options: weight, ignore_index, label_smoothing and reduction, as in torch.

    >>> CrossEntropyZLoss(lambda_=0.1)(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.7412)
    """

    settings: ClassVar[Settings] = {"lambda_": NON_NEGATIVE}
    lambda_: float

    def __init__(self, lambda_: float = 0.01, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.configure(lambda_=lambda_)

    def values(self, batch: Batch) -> Tensor:
        """Cross-entropy and the weighted square of log SE."""
        log_se = torch.logsumexp(batch.logits, dim=batch.dim)
        cross_entropy = batch.expect(torch.neg, log_probabilities(batch))
        return cross_entropy + self.lambda_ * batch.mass * log_se.square()


class UnnormalisedLoss(PenalisedLoss):
    r"""A likelihood without normaliser, E[-f_y] + r E[SE], r an average of 1 / E[SE] (ours).

    (exp(-alpha f) - 1) / alpha tends to -f, and rho* / alpha = EX / SE to 1 / SE: PENEX / alpha as
    alpha tends to 0, up to constants. Its minimiser has P = r exp f, hence the temperature 1.
    r is the buffer `rho`; `rho`, `ema`, the bounds, `order`, `accumulate` and `process_group` are
    those of `penex.PENEX`.

    >>> loss = UnnormalisedLoss()
    >>> loss(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])), loss.rho
    (tensor(1.), tensor(0.3333))
    """

    def terms(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """-f_y, SE, and the examples' own weight: r tends to 1 / E[SE]."""
        return batch.expect(torch.neg, batch.logits), F.saturated_se(batch), batch.mass

    @property
    def gain(self) -> float:
        """1, as r = 1 / E[SE]."""
        return 1.0


class LogPenaltyLoss(Loss):
    r"""EX with a penalty on log SE, E[exp(-alpha f_y)] + rho E[log SE].

    The paper does not have it, but the authors' repository does, as "logsumexp-penalty", with
    tuned values, and takes it for PENEX in one of its scripts. Its minimiser has
    P_j = (rho / alpha) softmax_j(f) exp(alpha f_j), so PENEX's temperature 1 / (1 + alpha). At the
    best common shift of the logits it is log E[exp(-alpha f_y)] / alpha + E[log SE], times rho:
    cross-entropy, with -E[f_y] replaced by an average that heeds the worst examples most.

    Args:
        alpha: the sensitivity, above 0.
        rho: the weight of the penalty, above 0; None for alpha. It only shifts the logits, by
            log(alpha / rho) / alpha, but the model has to learn that: with the repository's 1 it
            takes many steps.
        options: weight, ignore_index, label_smoothing and reduction, as in torch.

    >>> LogPenaltyLoss(alpha=0.5, rho=1)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(2.4948)
    """

    settings: ClassVar[Settings] = {"alpha": POSITIVE, "rho": POSITIVE}
    alpha: float
    rho: float

    def __init__(
        self, alpha: float = 0.1, rho: float | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(**options)
        self.configure(alpha=alpha, rho=alpha if rho is None else rho)

    def values(self, batch: Batch) -> Tensor:
        """exp(-alpha f_y) and the weighted logarithm of SE."""
        log_se = torch.logsumexp(batch.logits, dim=batch.dim)
        return F.saturated_ex(batch, self.alpha) + self.rho * batch.mass * log_se

    @property
    def _sharpness(self) -> float:
        return 1 + self.alpha
