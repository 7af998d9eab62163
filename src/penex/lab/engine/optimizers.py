"""Optimisers as functions: they change the parameters and their own slots, and hold nothing.

Every tensor may have axes before the last one, one model a row, with a learning rate for each.
The formulas are torch's (`tests/test_engine.py` compares them).
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam as adam_step

from penex.lab.engine.recipe import Recipe

Slots = dict[str, Tensor]

_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8


class Optimizer(Protocol):
    """An optimiser's step, in two parts.

    What is one number a model is apart: a compiler that saw how it is computed would compute it
    again for every parameter, and a power in float64 costs as much as the rest of the step.
    """

    def factors(self, lr: Tensor, count: Tensor) -> tuple[Tensor, ...]:
        """What `update` needs of the learning rate and the number of this step, from 1."""

    def update(
        self, theta: Tensor, grad: Tensor, slots: Slots, factors: tuple[Tensor, ...]
    ) -> None:
        """Move theta against the gradient, in place."""


@dataclass(frozen=True)
class Adam:
    """Adam, or AdamW if the weight decay is decoupled from the gradient.

    Attributes:
        weight_decay: 0 for none.
        decoupled: whether it shrinks theta, and is not added to the gradient.
        dtype: of theta.
        fused: whether to use torch's kernel for the CPU.
    """

    weight_decay: float
    decoupled: bool
    dtype: torch.dtype
    fused: bool

    def factors(self, lr: Tensor, count: Tensor) -> tuple[Tensor, ...]:
        """The learning rate; the step's number, or the two corrections of the averages."""
        if self.fused:
            return lr, count
        size = (lr / (1 - _BETA1**count)).to(self.dtype)
        root = (1 - _BETA2**count).sqrt().to(self.dtype)
        return lr, size, root

    def update(
        self, theta: Tensor, grad: Tensor, slots: Slots, factors: tuple[Tensor, ...]
    ) -> None:
        """Move theta against the gradient, in place."""
        lr, *rest = factors
        m, v = slots["exp_avg"], slots["exp_avg_sq"]
        if self.weight_decay and self.decoupled:
            theta.mul_(1 - lr * self.weight_decay)
        elif self.weight_decay:
            grad.add_(theta, alpha=self.weight_decay)
        if self.fused:
            _fused(theta, grad, m, v, lr, *rest)
            return
        size, root = rest
        m.lerp_(grad, 1 - _BETA1)
        v.mul_(_BETA2).addcmul_(grad, grad, value=1 - _BETA2)
        theta.sub_(size * m / v.sqrt().div_(root).add_(_EPS))


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


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, with momentum if it is not 0."""

    weight_decay: float
    momentum: float
    dtype: torch.dtype

    def factors(self, lr: Tensor, count: Tensor) -> tuple[Tensor, ...]:
        """The learning rate."""
        return (lr.to(self.dtype),)

    def update(
        self, theta: Tensor, grad: Tensor, slots: Slots, factors: tuple[Tensor, ...]
    ) -> None:
        """Move theta against the gradient, in place."""
        if self.weight_decay:
            grad.add_(theta, alpha=self.weight_decay)
        if self.momentum:
            grad = slots["momentum"].mul_(self.momentum).add_(grad)
        theta.sub_(factors[0] * grad)


def make(recipe: Recipe, theta: Tensor) -> tuple[Optimizer, Slots]:
    """The recipe's optimiser and its slots, all zero, for parameters theta.

    >>> theta = torch.zeros(2)
    >>> sgd, slots = make(Recipe(epochs=1, lr=0.5, optimizer="sgd"), theta)
    >>> sgd.update(theta, torch.ones(2), slots, sgd.factors(torch.tensor(0.5), torch.tensor(1.0)))
    >>> theta
    tensor([-0.5000, -0.5000])
    """
    optimizer: Optimizer
    if recipe.optimizer == "sgd":
        optimizer = SGD(recipe.weight_decay, recipe.momentum, theta.dtype)
        names = ["momentum"] if recipe.momentum else []
    else:
        optimizer = Adam(
            recipe.weight_decay,
            decoupled=recipe.optimizer == "adamw",
            dtype=theta.dtype,
            fused=theta.device.type == "cpu",
        )
        names = ["exp_avg", "exp_avg_sq"]
    return optimizer, {name: torch.zeros_like(theta) for name in names}


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
