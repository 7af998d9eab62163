"""Optimisers as functions: they change the parameters and their own slots, and hold nothing.

Every tensor may have axes before the last one, one model a row, with a learning rate for each.
The formulas are torch's (`tests/test_engine.py` compares them).
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam as adam_step

from penex.lab.recipe import Recipe

Slots = dict[str, Tensor]

_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8


class Update(Protocol):
    """An optimiser's step."""

    def __call__(
        self, theta: Tensor, grad: Tensor, slots: Slots, lr: Tensor, count: Tensor
    ) -> None:
        """Move theta against the gradient, in place. count is the number of this step, from 1."""


def adam(weight_decay: float, *, decoupled: bool) -> Update:
    """Adam, or AdamW if the weight decay is decoupled from the gradient."""

    def update(theta: Tensor, grad: Tensor, slots: Slots, lr: Tensor, count: Tensor) -> None:
        m, v = slots["exp_avg"], slots["exp_avg_sq"]
        if weight_decay and decoupled:
            theta.mul_(1 - lr * weight_decay)
        elif weight_decay:
            grad.add_(theta, alpha=weight_decay)
        if theta.device.type == "cpu":
            _fused(theta, grad, m, v, lr, count)
            return
        m.lerp_(grad, 1 - _BETA1)
        v.mul_(_BETA2).addcmul_(grad, grad, value=1 - _BETA2)
        size = (lr / (1 - _BETA1**count)).to(theta.dtype)
        root = (1 - _BETA2**count).sqrt().to(theta.dtype)
        theta.sub_(size * m / v.sqrt().div_(root).add_(_EPS))

    return update


def _fused(theta: Tensor, grad: Tensor, m: Tensor, v: Tensor, lr: Tensor, count: Tensor) -> None:
    """Torch's own kernel for the CPU, a model at a time: it reads everything once."""
    models = [tensor.view(-1, tensor.shape[-1]) for tensor in (theta, grad, m, v)]
    for *tensors, rate in zip(*models, lr.flatten().tolist(), strict=True):
        one, its_grad, its_m, its_v = ([tensor] for tensor in tensors)
        adam_step(
            one,
            its_grad,
            its_m,
            its_v,
            [],
            [(count - 1).float()],
            fused=True,
            amsgrad=False,
            beta1=_BETA1,
            beta2=_BETA2,
            lr=rate,
            weight_decay=0.0,
            eps=_EPS,
            maximize=False,
        )


def sgd(weight_decay: float, momentum: float) -> Update:
    """Stochastic gradient descent, with momentum if it is not 0."""

    def update(theta: Tensor, grad: Tensor, slots: Slots, lr: Tensor, count: Tensor) -> None:
        if weight_decay:
            grad.add_(theta, alpha=weight_decay)
        if momentum:
            grad = slots["momentum"].mul_(momentum).add_(grad)
        theta.sub_(lr.to(theta.dtype) * grad)

    return update


_MAKE: dict[str, Callable[[Recipe], tuple[Update, tuple[str, ...]]]] = {
    "adam": lambda r: (adam(r.weight_decay, decoupled=False), ("exp_avg", "exp_avg_sq")),
    "adamw": lambda r: (adam(r.weight_decay, decoupled=True), ("exp_avg", "exp_avg_sq")),
    "sgd": lambda r: (sgd(r.weight_decay, r.momentum), ("momentum",) if r.momentum else ()),
}


def make(recipe: Recipe, theta: Tensor) -> tuple[Update, Slots]:
    """The recipe's optimiser and its slots, all zero, for parameters theta.

    >>> update, slots = make(Recipe(epochs=1, lr=0.5, optimizer="sgd"), torch.zeros(2))
    >>> theta = torch.zeros(2)
    >>> update(theta, torch.ones(2), slots, torch.tensor(0.5), torch.tensor(1.0))
    >>> theta
    tensor([-0.5000, -0.5000])
    """
    update, names = _MAKE[recipe.optimizer](recipe)
    return update, {name: torch.zeros_like(theta) for name in names}


def clip_(grad: Tensor, largest: float | None) -> Tensor:
    """Scale each model's gradient down to the largest norm, in place; its norm before, per model.

    >>> grad = torch.tensor([3.0, 4.0])
    >>> clip_(grad, 1.0), grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    norm: Tensor = torch.linalg.vector_norm(grad, dim=-1, keepdim=True)
    if largest is not None:
        grad.mul_((largest / (norm + 1e-6)).clamp(max=1.0))
    return norm.squeeze(-1)
