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


def places(first: int | Tensor, rows: int, columns: int, device: torch.device) -> Tensor:
    """The places of some rows of a batch, scattered: the part of a draw that never changes.

    Computed apart from the draw, unless a compiler joins them; then `first` is a tensor.
    """
    return _scattered(torch.arange(rows * columns, device=device) + first * columns)


def _scattered(numbers: Tensor) -> Tensor:
    """Whole numbers, spread over 32 bits.

    Cut to 32 bits first, though the product is afterwards: to a compiler, arange times a number is
    an index, in 32 bits, where the number does not fit ("Scalar 2654435761 is out of range").
    """
    return ((numbers & _WORD) * 0x9E3779B1) & _WORD


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


def kept(
    seed: Tensor,
    count: Tensor,
    first: int | Tensor,
    rows: int,
    columns: int,
    device: torch.device,
    p: float,
) -> Tensor:
    """What stays when entries are dropped with a probability, (..., rows, columns) of bool.

    For wide rows, as the tokens of an image are: a 32-bit number decides on two entries, with p
    rounded to a multiple of 2^-16, and nothing is kept for the next time. It reads and writes a
    fraction of what `uniform` does.

    Args:
        seed: int64, one for each model.
        count: the number of the step.
        first: the number of the first row within the whole batch.
        rows: how many there are.
        columns: the entries of a row.
        device: where.
        p: the probability of an entry to be dropped.

    >>> seed, count, cpu = torch.tensor(3), torch.tensor(7), torch.device("cpu")
    >>> whole = kept(seed, count, 0, 5, 1001, cpu, 0.25)
    >>> bool((whole[2:] == kept(seed, count, 2, 3, 1001, cpu, 0.25)).all())
    True
    """
    key = _mixed((_mixed(seed & _WORD) ^ (count.long() * 0x9E3779B1)) & _WORD)
    numbers = torch.arange(rows, device=device) + first
    of_rows = _mixed(key.unsqueeze(-1) ^ _scattered(numbers))
    of_pairs = places(0, -(-columns // 2), 1, device)
    x = _signed(of_rows).unsqueeze(-1) ^ _signed(of_pairs)
    # As `_mixed`, in 32 bits: what overflows is cut off, and a shift fills up with the sign.
    x ^= (x >> 16).bitwise_and_(0xFFFF)
    x *= 0x85EBCA6B - 2**32
    x ^= (x >> 13).bitwise_and_(0x7FFFF)
    x *= 0xC2B2AE35 - 2**32
    x ^= (x >> 16).bitwise_and_(0xFFFF)
    return x.view(torch.int16)[..., :columns] >= round(p * 2**16) - 2**15


def _signed(x: Tensor) -> Tensor:
    """32-bit numbers, held in int64, as int32 of the same bits."""
    return ((x ^ 2**31) - 2**31).to(torch.int32)


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
