"""Layers that torch has in another form."""

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Dropout whose mask belongs to the whole batch, also where processes share the batch.

    Each process draws the mask of the whole batch from the same seed and takes its own rows, so
    two processes drop what one would.

    Attributes:
        p: the probability of an entry to be dropped.
        share: (start, total): the first of this process's rows and the rows of the whole batch;
            None for the whole batch. The engine sets it.
    """

    share: tuple[int, int] | None = None

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """X with entries dropped and the others scaled by 1 / (1 - p), in train() mode."""
        if not self.training or self.p == 0:
            return x
        start, total = self.share or (0, len(x))
        keep = torch.empty((total, *x.shape[1:]), dtype=x.dtype, device=x.device)
        keep.bernoulli_(1 - self.p).div_(1 - self.p)
        return x * keep[start : start + len(x)]

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"
