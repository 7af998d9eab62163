"""A loss of ours in fastai: what it predicts, and windows that end with the optimiser's step."""

import sys

import torch
from torch import Tensor, nn

try:
    from fastai.callback.core import Callback
    from fastai.callback.training import GradientAccumulation
except ImportError as error:
    raise ImportError("penex.integrations.fastai needs fastai: pip install fastai.") from error

from penex import targets
from penex.base import Loss


class PenexLoss(nn.Module):
    """A loss of ours as a Learner's ``loss_func``: `get_preds` and `predict` are calibrated.

    rho moves while gradients are on, so validation leaves it alone. `learn.export` keeps it;
    `learn.save` keeps the model's weights alone: save ``learn.loss_func.state_dict()`` beside it.

    Args:
        loss: the loss, such as ``penex.PENEX(0.1)``.
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    @property
    def reduction(self) -> str:
        """That of the loss, which fastai sets to ``none`` for a while."""
        return self.loss.reduction

    @reduction.setter
    def reduction(self, value: str) -> None:
        self.loss.reduction = value

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of a batch, in the shapes of torch's cross-entropy."""
        loss = self.loss if torch.is_grad_enabled() else self.loss.frozen()
        # fastai's own types of tensors know of categories and images, which no loss has to.
        value: Tensor = loss(input.as_subclass(Tensor), target.as_subclass(Tensor))
        return value

    def activation(self, logits: Tensor) -> Tensor:
        """The probabilities that `get_preds` gives."""
        return self.loss.probabilities(logits)

    def decodes(self, probabilities: Tensor) -> Tensor:
        """The class of each example."""
        return probabilities.argmax(targets.class_dim(probabilities))


class PenexCallback(Callback):
    """Makes a window of rho what GradientAccumulation makes a step of the optimiser.

    That counts examples and not batches, so the window ends with each step.
    """

    def before_fit(self) -> None:
        """With an accumulation, a window has no length of its own."""
        accumulates = any(isinstance(one, GradientAccumulation) for one in self.learn.cbs)
        self.learn.loss_func.loss.accumulate = sys.maxsize if accumulates else 1

    def after_step(self) -> None:
        """The optimiser has made a step: so does rho."""
        self.learn.loss_func.loss.end_step()
