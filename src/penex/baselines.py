"""What PENEX is compared with: cross-entropy and three ways to regularise it.

All take the options of torch.nn.CrossEntropyLoss (`penex.base.Options`) besides their own
parameter, and predict at temperature 1.
"""

from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from penex.base import NON_NEGATIVE, Legal, Loss, Options, Predictor, Settings, Trained
from penex.targets import Batch

# 1 - p is kept above this: its power has an infinite slope at 0 for gamma below 1.
_SMALLEST_MISS = 1e-30

# p log p is 0 where p is 0: a logarithm that low is as good as minus infinity, and 0 times it is 0.
_LOWEST_LOG = -1e9


class CrossEntropyLoss(Predictor, Trained, nn.CrossEntropyLoss):
    r"""torch's own cross-entropy, -log softmax(f)_y, with the interface of our losses.

    >>> loss = CrossEntropyLoss()
    >>> loss(torch.zeros(1, 2), torch.tensor([0])), loss.temperature
    (tensor(0.6931), 1.0)
    """

    @property
    def smoothing(self) -> float:
        """How much of the targets is spread over all classes."""
        return self.label_smoothing


class LabelSmoothingLoss(Loss):
    r"""Cross-entropy against targets mixed with the uniform distribution (Szegedy et al., 2016).

    -sum_j ((1 - epsilon) 1[j = y] + epsilon / K) log p_j, as torch's label_smoothing.

    Args:
        epsilon: the share of the uniform distribution, between 0 and 1.
        options: weight, ignore_index and reduction, as in torch.

    >>> LabelSmoothingLoss(epsilon=0.1)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.2269)
    """

    settings: ClassVar[Settings] = {"epsilon": Legal(high=1.0)}
    epsilon: float

    def __init__(self, epsilon: float = 0.1, **options: Unpack[Options]) -> None:
        if "label_smoothing" in options:
            raise TypeError(
                "LabelSmoothingLoss has epsilon; it takes no label_smoothing beside it."
            )
        super().__init__(**options)
        self.configure(epsilon=epsilon)

    @property
    def smoothing(self) -> float:
        """How much of the targets is spread over all classes: epsilon."""
        return self.epsilon

    def values(self, batch: Batch) -> Tensor:
        """Cross-entropy; the smoothing is in the batch's weights."""
        return batch.expect(torch.neg, log_probabilities(batch))


class ConfidencePenaltyLoss(Loss):
    r"""Cross-entropy less lambda times the entropy of the prediction (Pereyra et al., 2017).

    -log p_y - lambda H(p), with H(p) = -sum_j p_j log p_j.

    Args:
        lambda_: the weight of the entropy, at least 0.
        options: weight, ignore_index, label_smoothing and reduction, as in torch.

    >>> ConfidencePenaltyLoss(lambda_=0.1)(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.6238)
    """

    settings: ClassVar[Settings] = {"lambda_": NON_NEGATIVE}
    lambda_: float

    def __init__(self, lambda_: float = 0.1, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.configure(lambda_=lambda_)

    def values(self, batch: Batch) -> Tensor:
        """Cross-entropy less the weighted entropy."""
        log_p = log_probabilities(batch)
        entropy = -(log_p.exp() * log_p.clamp(min=_LOWEST_LOG)).sum(batch.dim)
        return batch.expect(torch.neg, log_p) - self.lambda_ * batch.mass * entropy


class FocalLoss(Loss):
    r"""Cross-entropy that fades for examples already right (Lin et al., 2017), for several classes.

    -(1 - p_y)^gamma log p_y; for probabilities q, -sum_j q_j (1 - p_j)^gamma log p_j.

    Args:
        gamma: how fast it fades, at least 0.
        detach: True to hold the factor (1 - p)^gamma constant in the gradient, as the code behind
            the paper's tables does.
        options: weight, ignore_index, label_smoothing and reduction, as in torch.

    >>> FocalLoss(gamma=2.0)(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.1733)
    """

    settings: ClassVar[Settings] = {"gamma": NON_NEGATIVE, "detach": Legal(high=1.0)}
    gamma: float
    detach: float

    def __init__(
        self, gamma: float = 2.0, *, detach: bool = False, **options: Unpack[Options]
    ) -> None:
        super().__init__(**options)
        self.configure(gamma=gamma, detach=detach)

    def values(self, batch: Batch) -> Tensor:
        """The focal term of each position."""

        def focal(log_p: Tensor) -> Tensor:
            factor = (-torch.expm1(log_p)).clamp(min=_SMALLEST_MISS) ** self.gamma
            return -(factor.detach() if self.detach else factor) * log_p

        return batch.expect(focal, log_probabilities(batch))


def log_probabilities(batch: Batch) -> Tensor:
    """Log softmax(f) over the classes."""
    return torch.log_softmax(batch.logits, dim=batch.dim)
