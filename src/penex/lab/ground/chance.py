"""Random numbers without a state: functions of a seed, a step and a place.

A mask drawn so is the same in one process or several, for a model alone or packed with others,
and after a restart: there is nothing to save. The generators that a user's own model may draw from
have a state; it is set anew at every step.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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


def places(first: int, rows: int, columns: int, device: torch.device) -> Tensor:
    """The places of some rows of a batch, scattered: the part of a draw that never changes.

    Computed apart from the draw: compilers take arange for an index that fits 32 bits.
    """
    numbers = torch.arange(first * columns, (first + rows) * columns, device=device)
    return (numbers * 0x9E3779B1) & _WORD


def uniform(seed: Tensor, count: Tensor, scattered: Tensor) -> Tensor:
    """Uniform numbers in [0, 1), (..., n) for seeds (...) and n places.

    Args:
        seed: int64, one for each model.
        count: the number of the step.
        scattered: the places within the batch, as `places` gives them.

    >>> seed, count, cpu = torch.tensor([3, 4]), torch.tensor(7), torch.device("cpu")
    >>> whole = uniform(seed, count, places(0, 5, 2, cpu))
    >>> bool((whole[1, 4:] == uniform(seed[1], count, places(2, 3, 2, cpu))).all())
    True
    """
    key = _mixed((_mixed(seed & _WORD) ^ (count.long() * 0x9E3779B1)) & _WORD)
    return _mixed(scattered ^ key.unsqueeze(-1)).float() / 2**32


def sow(seed: int) -> None:
    """Seed every generator that a model may draw from: torch's, Python's and numpy's."""
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:  # a trained model works without it
        sys.modules["numpy"].random.seed(seed % 2**32)


@contextmanager
def sown(device: torch.device, seed: int = 0) -> Iterator[None]:
    """Those generators seeded, and afterwards as they were.

    >>> with sown(torch.device("cpu")):
    ...     first = torch.rand(1), random.random()
    >>> with sown(torch.device("cpu")):
    ...     first == (torch.rand(1), random.random())
    True
    """
    mine, numpy = random.getstate(), sys.modules.get("numpy")
    numpys = numpy.random.get_state() if numpy else None
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        sow(seed)
        try:
            yield
        finally:
            random.setstate(mine)
            if numpy:
                numpy.random.set_state(numpys)
