"""A small network for tables."""

import math
from collections.abc import Sequence

from torch import nn

from penex.lab.models.layers import Dropout


def mlp(
    shape: Sequence[int], n_out: int, *, hidden: int = 256, dropout: float = 0.5
) -> nn.Sequential:
    """Two hidden layers, with dropout before the last; it flattens what it gets.

    Args:
        shape: of an input.
        n_out: the number of logits.
        hidden: the width of the hidden layers.
        dropout: the probability before the last layer.

    >>> sum(p.numel() for p in mlp((4,), 3).parameters())
    67843
    """
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        Dropout(dropout),
        nn.Linear(hidden, n_out),
    )
