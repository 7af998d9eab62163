"""One seed decides everything, through streams that do not touch each other."""

import hashlib

import torch
from torch import Tensor


def derive(seed: int, *purpose: str | int) -> int:
    """The seed of a stream: initialisation, order of an epoch, dropout.

    >>> derive(0, "order", 1) != derive(0, "order", 2)
    True
    """
    words = "/".join(str(word) for word in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:7], "big")


def order(seed: int, epoch: int, n: int) -> Tensor:
    """The order of an epoch's examples, a function of seed and epoch alone: nothing to save."""
    generator = torch.Generator().manual_seed(derive(seed, "order", epoch))
    return torch.randperm(n, generator=generator)
