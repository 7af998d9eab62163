"""Layers that torch has in another form."""

import math

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from penex.lab.ground import chance
from penex.lab.ground.errors import LabError

_WIDE = 8192  # entries of a row: past it the draws are halves of numbers, made anew each time


class Dropout(nn.Module):
    """Dropout whose mask is a function of seed, step and place in the batch, not of a state.

    So processes that share a batch drop what one would, packed models drop what each would alone,
    and a resumed run drops what an undisturbed one would. Without a seed it is torch's dropout.

    Attributes:
        p: the probability of an entry to be dropped.
        seed: int64, () or one for each model of a pack; the engine sets it.
        count: the number of the step; the engine sets it.
        first: the number of the first row within the whole batch; the engine sets it.
        offset: the same on the device, for a compiled network: it need not be compiled for each
            number then, which stops after a few.
    """

    seed: Tensor | None = None
    count: Tensor | None = None
    first: int = 0
    offset: Tensor | None = None

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p
        # Of every size of batch, for good: a recorded step reads them where they lie.
        self._places: dict[tuple[int, int, int, torch.device], Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        """X with entries dropped and the others scaled by 1 / (1 - p), in train() mode."""
        if not self.training or self.p == 0:
            return x
        if self.seed is None or self.count is None:
            return nn.functional.dropout(x, self.p)
        axes = self.seed.dim()
        rows, columns = x.shape[axes], math.prod(x.shape[axes + 1 :])
        if columns > _WIDE:  # by the row alone, so that no micro-batch or process draws otherwise
            first = self.first if self.offset is None else self.offset
            keep = chance.kept(self.seed, self.count, first, rows, columns, x.device, self.p)
        elif self.offset is not None:
            placed = chance.places(self.offset, rows, columns, x.device)
            keep = chance.uniform(self.seed, self.count, placed) >= self.p
        else:
            place = self.first, rows, columns, x.device
            if place not in self._places:
                self._places[place] = chance.places(*place)
            keep = chance.uniform(self.seed, self.count, self._places[place]) >= self.p
        return x * keep.to(x.dtype).view(x.shape) / (1 - self.p)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"


def seed_all(model: nn.Module, seed: Tensor, count: Tensor) -> list[Dropout]:
    """Give every dropout of a model its own stream of a seed; the dropouts."""
    found = [m for m in model.modules() if isinstance(m, Dropout)]
    for k, layer in enumerate(found):
        layer.seed = seed + torch.tensor(k, device=seed.device) * 7919
        layer.count = count
    return found


class Cutting(nn.Module):
    """A network that leaves out the last columns of a batch, where no row has anything.

    Attributes:
        width: how many columns of a batch to keep; None to look at each batch, which waits for the
            device. The engine sets it where it knows, from `lengths`.
    """

    width: int | None = None

    def lengths(self, inputs: Tensor) -> Tensor:
        """The columns that each row needs, (N)."""
        raise NotImplementedError


class Blocks(nn.Sequential):
    """Layers one after another; what is between them may be all that is kept for backward.

    Attributes:
        recompute: whether each layer is computed again in the backward pass instead of keeping what
            it computed on the way: less memory, about a third more time. The engine sets it.
    """

    recompute: bool = False

    def forward(self, x: Tensor) -> Tensor:
        """The last layer's output."""
        for layer in self:
            if self.recompute and torch.is_grad_enabled():
                # Our dropout is a function of the step: no generator is to be set back.
                x = checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = layer(x)
        return x


def recompute_all(model: nn.Module) -> None:
    """Let every Blocks of a model save memory; a LabError if it has none."""
    found = [m for m in model.modules() if isinstance(m, Blocks)]
    if not found:
        raise LabError("--recompute is for networks of blocks, vit_tiny to vit_base; this is none.")
    for blocks in found:
        blocks.recompute = True
