"""A loss of ours in fastai: what it predicts, and windows that end with the optimiser's step."""

import sys
from typing import Any

import torch
from torch import Tensor, nn

try:
    from fastai.callback.core import Callback
    from fastai.callback.training import GradientAccumulation
    from fastai.torch_core import get_model
except ImportError as error:
    raise ImportError("penex.integrations.fastai needs fastai: pip install fastai.") from error

from penex import targets
from penex.base import Loss

_NAME = "penex_loss"  # of the loss among what is saved of a model


class PenexLoss(nn.Module):
    """A loss of ours as a Learner's ``loss_func``: `get_preds` and `predict` are calibrated.

    rho moves while gradients are on, so validation leaves it alone. `learn.export` keeps it, and
    so does `learn.save` with a `PenexCallback`.

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
    """Keeps rho with the model's weights, and moves it as often as the optimiser makes a step.

    The state of the loss is in what `learn.save`, SaveModelCallback and `lr_find` save, as
    ``penex_loss.*``, and comes back when that is loaded into a learner with this callback.

    GradientAccumulation counts examples and not batches, so a window ends with each step.
    """

    def after_create(self) -> None:
        """The learner is there: before it loads anything, its model knows of the loss."""
        loss = self.learn.loss_func
        if not isinstance(loss, PenexLoss):
            raise ValueError(
                f"PenexCallback needs a PenexLoss as the learner's loss_func; got "
                f"{type(loss).__name__}."
            )
        model = get_model(self.learn.model)
        if _NAME not in model.__dict__:
            model.register_state_dict_post_hook(_save)
            model.register_load_state_dict_pre_hook(_load)
        # Not as a child of the model: fastai's are sequences, which would call it.
        model.__dict__[_NAME] = loss.loss

    def before_fit(self) -> None:
        """With an accumulation, a window has no length of its own."""
        self.after_create()  # for a callback that came later
        accumulates = any(isinstance(one, GradientAccumulation) for one in self.learn.cbs)
        self.learn.loss_func.loss.accumulate = sys.maxsize if accumulates else 1

    def after_step(self) -> None:
        """The optimiser has made a step: so does rho."""
        self.learn.loss_func.loss.end_step()


def _save(model: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Add the loss to what is saved of a model."""
    for name, value in model.__dict__[_NAME].state_dict().items():
        state[f"{prefix}{_NAME}.{name}"] = value


def _load(model: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Take the loss out of what is loaded into a model, if it is there."""
    begins = f"{prefix}{_NAME}."
    ours = [name for name in state if name.startswith(begins)]
    if found := {name.removeprefix(begins): state.pop(name) for name in ours}:
        model.__dict__[_NAME].load_state_dict(found)
