"""Random numbers without a state: functions of a seed, a step and a place.

A mask drawn so is the same in one process or several, for a model alone or packed with others,
and after a restart: there is nothing to save.
"""

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF


def _mixed(x: Tensor) -> Tensor:
    """Scatter 32-bit numbers, held in int64 (the finaliser of MurmurHash3)."""
    x = x ^ (x >> 16)
    x = (x * 0x85EBCA6B) & _WORD
    x = x ^ (x >> 13)
    x = (x * 0xC2B2AE35) & _WORD
    return x ^ (x >> 16)


def uniform(seed: Tensor, count: Tensor, first: int, rows: int, columns: int) -> Tensor:
    """Uniform numbers in [0, 1) for some rows of a batch, (..., rows, columns) for seeds (...).

    Args:
        seed: int64, one for each model.
        count: the number of the step.
        first: the first row's number within the whole batch.
        rows: how many rows.
        columns: how many numbers a row.

    >>> seed, count = torch.tensor([3, 4]), torch.tensor(7)
    >>> whole = uniform(seed, count, 0, 5, 2)
    >>> bool((whole[1, 2:] == uniform(seed[1], count, 2, 3, 2)).all())
    True
    """
    key = _mixed((_mixed(seed & _WORD) ^ (count.long() * 0x9E3779B1)) & _WORD)
    places = torch.arange(first * columns, (first + rows) * columns, device=seed.device)
    scattered = _mixed(((places * 0x9E3779B1) & _WORD) ^ key.unsqueeze(-1))
    return (scattered.double() / 2**32).view(*seed.shape, rows, columns).float()
