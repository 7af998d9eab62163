"""A small network and a short training loop, for figures that train on the spot."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from penex import registry
from penex.lab.engine.learner import AnyLoss


def train(
    name: str, x: Tensor, y: Tensor, *, widths: tuple[int, ...], batch: int, epochs: int, seed: int,
    **arguments: float | None,
) -> Iterator[tuple[nn.Module, AnyLoss]]:  # fmt: skip
    """The network and its loss after each epoch of Adam at 0.01.

    Args:
        name: of the loss.
        x: inputs, (N, D).
        y: class indices, (N).
        widths: of the layers, from D to the number of logits.
        batch: examples a step.
        epochs: how many.
        seed: of the start and the order.
        arguments: of the loss.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    model = nn.Sequential(*(part for layer in layers[:-1] for part in (layer, nn.ReLU())))
    model.append(layers[-1])
    loss = registry.make(name, **arguments)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for rows in (order[k : k + batch] for k in range(0, len(x), batch)):
            optimizer.zero_grad()
            torch.autograd.backward(loss(model(x[rows]), y[rows]))
            optimizer.step()
        yield model, loss
