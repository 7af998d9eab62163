"""PENEX in Keras 3 on the torch backend: a loss, its checkpoint, and a model that predicts."""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

try:
    import keras
except ImportError as error:
    raise ImportError("penex.integrations.keras needs keras 3: pip install keras.") from error

from penex.base import Loss


class PenexLoss(keras.losses.Loss):
    """A loss of ours for ``model.compile(loss=...)``; the model's outputs are logits.

    rho moves while gradients are on, so ``validation_data``, `evaluate` and `predict` leave it
    alone. Sample weights weigh the losses of the examples, not rho.

    Args:
        loss: the loss, such as ``penex.PENEX(0.1)``. Keras reduces it; with
            ``gradient_accumulation_steps`` of an optimiser give it the same `accumulate`: Keras
            carries a window over the end of an epoch, and so does the loss.
        kwargs: name and reduction, as in Keras.
    """

    def __init__(self, loss: Loss, **kwargs: Any) -> None:
        if keras.backend.backend() != "torch":
            raise ValueError(
                f"PenexLoss needs the torch backend of Keras (KERAS_BACKEND=torch); this is "
                f"{keras.backend.backend()}. For JAX there is penex.integrations.jax."
            )
        super().__init__(**{"name": "penex", **kwargs})
        self.loss = loss

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """The loss of each example.

        Args:
            y_true: class indices (..., 1) or (...), or probabilities (..., C).
            y_pred: logits (..., C), classes last as everywhere in Keras.
        """
        if y_true.dim() == y_pred.dim() and y_true.shape[-1] == 1:
            y_true = y_true.squeeze(-1)
        is_soft = y_true.dim() == y_pred.dim()
        target = y_true.movedim(-1, 1) if is_soft else y_true.long()  # Keras makes them floats
        with self.loss.reducing("none") as loss:  # the mean is Keras's affair
            called = loss if torch.is_grad_enabled() else loss.frozen()
            value: Tensor = called(y_pred.movedim(-1, 1), target)
        return value


class PenexCheckpoint(keras.callbacks.Callback):
    """Keeps the state of a loss in a file, since Keras saves the model's weights alone.

    The file is written after each epoch, with the states of the last two. A training that begins
    with a later epoch than the first, by ``initial_epoch`` or by
    ``keras.callbacks.BackupAndRestore``, goes on from the state of the epoch before; one that
    begins with the first leaves the loss as it is. Give it before ``BackupAndRestore``: then a
    process that is killed between the two files, of the loss and of the weights, goes on.

    Args:
        loss: the loss.
        file: where.
    """

    def __init__(self, loss: Loss, file: str | Path) -> None:
        super().__init__()
        self.loss, self.file = loss, Path(file)
        self.states: dict[int, dict[str, Any]] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        """Wait for the first epoch to say which it is."""
        self.has_begun = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Read the file, if there is one and training goes on."""
        if self.has_begun:
            return
        self.has_begun, self.states = True, {}
        if epoch == 0 or not self.file.exists():
            return
        self.states = torch.load(self.file, weights_only=True)
        if epoch not in self.states:
            raise ValueError(
                f"{self.file} has the state of the loss after {' and '.join(map(str, self.states))}"
                f" epochs; training goes on after {epoch}. Without that file it begins anew. (This "
                "callback comes before BackupAndRestore.)"
            )
        self.loss.load_state_dict(self.states[epoch])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write the file, whole or not at all."""
        state = {name: value.clone() for name, value in self.loss.state_dict().items()}
        before = {number: kept for number, kept in self.states.items() if number == epoch}
        self.states = {**before, epoch + 1: state}
        part = self.file.with_name(f"{self.file.name}.part")
        torch.save(self.states, part)
        os.replace(part, self.file)


def predictor(model: Any, loss: Loss) -> Any:
    """A model with the loss's temperature and a softmax at its end, to predict with and to save.

    Args:
        model: from inputs to logits, sequential or functional; its layers are shared, not copied.
        loss: what it was trained with.
    """
    if not getattr(model, "inputs", None):
        raise ValueError(
            f"predictor needs a model that knows its inputs, sequential or functional; "
            f"{type(model).__name__} does not. Put Rescaling({1 / loss.temperature:g}) and Softmax "
            "after its logits yourself."
        )
    # By its layers, not as a layer: a compiled model inside another takes its loss along.
    sharpened = keras.layers.Rescaling(1 / loss.temperature)(model.outputs[0])
    return keras.Model(model.inputs, keras.layers.Softmax()(sharpened))
