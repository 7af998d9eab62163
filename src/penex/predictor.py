"""How a model trained with a loss predicts, and a view of the loss that never moves."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn

from penex import targets


class Predictor:
    """How a model trained with a loss predicts: softmax(logits / temperature).

    The temperature is 1 unless the loss says otherwise, so code that evaluates a model asks its
    loss and never which loss it is.
    """

    reduction: str

    @property
    def temperature(self) -> float:
        """The temperature at which a softmax of the logits predicts."""
        return 1 / self._sharpness

    def rescale(self, logits: Tensor) -> Tensor:
        """Logits / temperature, for code that does its own softmax."""
        return self._sharpness * logits

    def probabilities(self, logits: Tensor) -> Tensor:
        """softmax(logits / temperature) over the classes, at least in float32."""
        logits = logits.to(targets.statistics_dtype(logits))
        return torch.softmax(self.rescale(logits), dim=targets.class_dim(logits))

    def frozen(self) -> "Frozen":
        """A view of this loss that never moves it, for code that computes metrics.

        >>> from penex import PENEX
        >>> loss = PENEX(alpha=0.1)
        >>> metric = loss.frozen()
        >>> metric(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])), loss.rho
        (tensor(1.0986), tensor(0.))
        """
        return Frozen(self)

    @contextlib.contextmanager
    def reducing(self, reduction: str) -> Iterator[Self]:
        """This loss with another reduction for a while, as frameworks that reduce it want it.

        Args:
            reduction: ``mean``, ``sum`` or ``none``.

        >>> from penex import PENEX
        >>> with PENEX(alpha=0.1).reducing("sum") as loss:
        ...     loss(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
        tensor(4.3944)
        >>> loss.reduction
        'mean'
        """
        targets.check_reduction(reduction)
        before, self.reduction = self.reduction, reduction
        try:
            yield self
        finally:
            self.reduction = before

    @property
    def _sharpness(self) -> float:
        return 1.0


def _still(module: nn.Module) -> nn.Module:
    """A copy in eval() mode, its children too, that shares the buffers: nobody else sees it."""
    twin = copy.copy(module)
    inside = {n: None if child is None else _still(child) for n, child in module._modules.items()}
    twin.__dict__.update(training=False, _modules=inside)
    return twin


class Frozen(Predictor, nn.Module):
    """A loss as it is in eval() mode, whatever mode it is in: its state is read and never moved.

    Frameworks call one loss in training and in validation, and not all of them call eval() on it.
    The view has no parameters, buffers or children, so that a model that has both the loss and the
    view saves the loss once.

    Args:
        loss: any loss of ours. What later moves or loads its state is seen here.
    """

    def __init__(self, loss: Predictor) -> None:
        super().__init__()
        self.__dict__["loss"] = loss  # not as a child, which would be saved a second time

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The loss of a batch, by the arguments of the loss itself; it makes no collective call."""
        still = _still(self.__dict__["loss"])
        if "given" in self.__dict__:
            still.__dict__["reduction"] = self.__dict__["given"]
        value: Tensor = still(*args, **kwargs)
        return value

    @property
    def reduction(self) -> str:
        """The loss's, unless the view was given one of its own."""
        chosen: str = self.__dict__.get("given") or self.__dict__["loss"].reduction
        return chosen

    @reduction.setter
    def reduction(self, value: str) -> None:
        targets.check_reduction(value)
        self.__dict__["given"] = value

    def __getattr__(self, name: str) -> Any:
        loss = self.__dict__.get("loss")  # there is none while a copy is made
        read = ("progress", *getattr(loss, "settings", ()), *getattr(loss, "statistics", ()))
        return getattr(loss, name) if name in read else super().__getattr__(name)

    @property
    def _sharpness(self) -> float:
        sharpness: float = self.__dict__["loss"]._sharpness
        return sharpness
