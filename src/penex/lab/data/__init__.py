"""What a task trains on, wherever it came from."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """A part of a data set.

    Attributes:
        inputs: (N, ...), uint8 or floating point, as they were read.
        targets: class indices, (N).
    """

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> "Part":
        """The part on another device."""
        return Part(self.inputs.to(device), self.targets.to(device))


@dataclass(frozen=True)
class Data:
    """Three parts and how their inputs become the model's.

    Attributes:
        train: what the model learns from.
        val: what is looked at after every epoch.
        test: what is looked at once, at the end.
        classes: the name of each class.
        mean: what is taken from each channel (or feature).
        std: what each channel (or feature) is divided by.
        facts: where the data came from and their checksums, for the record.
    """

    train: Part
    val: Part
    test: Part
    classes: tuple[str, ...]
    mean: Tensor
    std: Tensor
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train.inputs.shape[1:])

    def to(self, device: torch.device) -> "Data":
        """The data on another device, still as they were read: uint8 stays uint8."""
        return replace(
            self,
            train=self.train.to(device),
            val=self.val.to(device),
            test=self.test.to(device),
            mean=self.mean.to(device),
            std=self.std.to(device),
        )

    def normalise(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """A batch as the model sees it: (x - mean) / std, computed where the batch lies."""
        return inputs.to(dtype).sub(self.mean.to(dtype)).div_(self.std.to(dtype))


def channel_statistics(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel of (N, C, ...), shaped to broadcast.

    A channel that never changes has the standard deviation 1, so that it becomes 0.

    >>> mean, std = channel_statistics(torch.tensor([[[0, 2]], [[4, 6]]], dtype=torch.uint8))
    >>> mean, std.square()
    (tensor([[3.]], dtype=torch.float64), tensor([[5.]], dtype=torch.float64))
    """
    dims = [0, *range(2, inputs.dim())]
    wide = inputs.double()
    mean, std = wide.mean(dims, keepdim=True)[0], wide.std(dims, correction=0, keepdim=True)[0]
    return mean, std.where(std > 0, 1.0)
