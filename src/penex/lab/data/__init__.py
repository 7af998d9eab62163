"""What a task trains on, wherever it came from."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from penex.lab.ground.errors import LabError

if TYPE_CHECKING:
    from penex.lab.data.streams import Stream

_CHUNK = 4096


class Examples(NamedTuple):
    """Examples as they were read.

    Attributes:
        inputs: (N, ...), uint8 or floating point; of texts, token ids in int32.
        targets: class indices, (N).
        votes: how many people chose each class, (N, C), if they were asked; for testing alone.
        names: where each came from, as a file or a line, if that has a name; else empty.
        stream: of images that stay in their files: where they come from; their inputs then have a
            shape and no values (torch's meta device).
    """

    inputs: Tensor
    targets: Tensor
    votes: Tensor | None = None
    names: tuple[str, ...] = ()
    stream: "Stream | None" = None


@dataclass(frozen=True)
class Collection:
    """A data set before it is split.

    Attributes:
        train: the examples, or those for training where the others came apart.
        classes: the name of each class.
        val: examples for validation, if they came apart.
        test: examples for testing, if they came apart.
        mean: what to take from each channel; None to compute it from the training part.
        std: what to divide each channel by; None likewise.
        facts: where the data came from (`source`) and their checksums, for the record.
        notes: sentences for the user: what was left out, what looks odd.
    """

    train: Examples
    classes: tuple[str, ...]
    val: Examples | None = None
    test: Examples | None = None
    mean: Tensor | None = None
    std: Tensor | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        name, times = max(Counter(self.classes).items(), key=lambda one: one[1], default=("", 0))
        if times > 1:
            raise LabError(f"Two classes are named {name!r}: give each a name of its own.")

    @property
    def parts(self) -> dict[str, Examples]:
        """The parts that are there, by name."""
        parts = {"train": self.train, "val": self.val, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}

    def to(self, device: torch.device) -> "Collection":
        """The data on another device, still as they were read: uint8 stays uint8."""

        def there(inputs: Tensor) -> Tensor:
            if inputs.is_meta:
                return inputs
            narrow = inputs.dtype == torch.float64 and device.type == "mps"  # it has no float64
            return (inputs.float() if narrow else inputs).to(device)

        moved = {
            name: part._replace(
                inputs=there(part.inputs),
                targets=part.targets.to(device),
                votes=None if part.votes is None else part.votes.to(device),
            )
            for name, part in self.parts.items()
        }
        return replace(self, **moved)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Part:
    """A part of a data set: some rows of inputs that it shares with the other parts.

    Attributes:
        inputs: all inputs, as they were read.
        index: the rows of this part.
        targets: the class index of each of them.
        votes: how many people chose each class for each of them, if they were asked.
        stream: where inputs come from that stay in their files.
    """

    inputs: Tensor
    index: Tensor
    targets: Tensor
    votes: Tensor | None = None
    stream: "Stream | None" = None

    def __len__(self) -> int:
        return len(self.index)

    def announce(self, batches: Iterable[Tensor], draw: int) -> None:
        """Say which rows will be trained on next, so that their files are decoded ahead.

        Args:
            batches: the rows of each call of `batch`, in order, on the host.
            draw: what decides the random crops.
        """
        if self.stream is not None:
            self.stream.expected = None
            self.stream.announce((self._rows(b) for b in batches), self._instead, draw)

    def batch(self, rows: Tensor) -> Tensor:
        """The inputs of some of this part's rows, to train on; of a stream, those announced."""
        if self.stream is not None:
            return self.stream.take(len(rows), self.targets.device)
        return self.inputs[self.index[rows]]

    def between(self, start: int, stop: int) -> Tensor:
        """The inputs of some rows in a row, as the model is judged by them."""
        if self.stream is None:
            return self.inputs[self.index[start:stop]]
        n, width = len(self), stop - start
        if self.stream.expected != (id(self), start, stop):
            every = (self._rows(slice(k, k + width)) for k in range(start, n, max(1, width)))
            self.stream.announce(every, self._instead, None)
        self.stream.expected = (id(self), stop, min(n, stop + width))
        return self.stream.take(width, self.targets.device)

    def some(self, rows: Tensor) -> Tensor:
        """The inputs of some rows, as the model is judged by them."""
        if self.stream is None:
            return self.inputs[self.index[rows.to(self.index.device)]]
        self.stream.expected = None
        self.stream.announce([self._rows(rows.cpu())], self._instead, None)
        return self.stream.take(len(rows), self.targets.device)

    def batches(self, size: int) -> Iterator[Tensor]:
        """All inputs of this part, in order."""
        for start in range(0, len(self), size):
            yield self.between(start, min(len(self), start + size))

    @cached_property
    def _index(self) -> Tensor:
        """The rows of this part on the host, where files are opened."""
        return self.index.cpu()

    def _rows(self, places: Tensor | slice) -> list[int]:
        found: list[int] = self._index[places].tolist()
        return found

    def _instead(self, row: int) -> Iterator[int]:
        """The rows of this part with the same label as one, those after it first."""
        place = int((self._index == row).nonzero()[0])
        alike = (self.targets == self.targets[place]).nonzero().flatten().cpu()
        for some in (alike[alike > place], alike[alike < place]):
            yield from self._rows(some)


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
        facts: where the data came from (`source`) and their checksums, for the record.
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

    def normalise(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """A batch as the model sees it: (x - mean) / std, computed where the batch lies."""
        return normalise(inputs, self.mean, self.std, dtype)


def normalise(inputs: Tensor, mean: Tensor, std: Tensor, dtype: torch.dtype) -> Tensor:
    """(x - mean) / std in a dtype; of float64 inputs, which need it, in float64 first.

    Token ids, which are int32, stay as they are.
    """
    if inputs.dtype == torch.int32:
        return inputs
    wide = torch.float64 if inputs.dtype == torch.float64 else dtype
    return inputs.to(wide).sub(mean.to(wide)).div_(std.to(wide)).to(dtype)


def channel_statistics(part: Part) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel of (N, C, ...) inputs, shaped to broadcast.

    In float64, a chunk at a time. A channel that never changes has the standard deviation 1, so
    that it becomes 0.

    >>> images = torch.tensor([[[1, 5]], [[1, 5]]], dtype=torch.uint8)
    >>> mean, std = channel_statistics(Part(images, torch.arange(2), torch.zeros(2).long()))
    >>> mean.tolist(), std.tolist()
    ([[3.0]], [[2.0]])
    """
    wide = torch.float32 if part.inputs.device.type == "mps" else torch.float64
    dims = [0, *range(2, part.inputs.dim())]
    count = len(part) * part.inputs[0, 0].numel()

    def mean_of(power: int, centre: Tensor | float) -> Tensor:
        sums = [
            (x.to(wide) - centre).pow(power).sum(dims, keepdim=True)[0]
            for x in part.batches(_CHUNK)
        ]
        return torch.stack(sums).sum(0) / count

    mean = mean_of(1, 0.0)
    std = mean_of(2, mean).sqrt()
    return mean, std.where(std > 0, 1.0)
