"""How many examples are computed at once, by what they need of the memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_MOST = 2048  # examples at a time: more gain nothing
_ALIVE = 4  # tensors of the largest size that a network has at once: a residual block has three
_MEMORY = 2**31  # bytes; of a GPU a third, which nothing else uses meanwhile

Compute = Callable[[int, int], Tensor]


class Batches:
    """Computes rows a batch at a time.

    The size follows from the largest tensor that an example needs on the way, measured once, so it
    is the same wherever a network is used on a device; where it was too large it is halved, for
    good.

    Args:
        device: where rows are computed.
        most: examples at a time.
    """

    def __init__(self, device: torch.device, most: int = _MOST) -> None:
        self.device, self.most = device, most
        self.size = 0  # not known yet

    def __call__(self, compute: Compute, n: int) -> Tensor:
        """The rows that compute(start, stop) gives for n examples.

        >>> Batches(torch.device("cpu"), most=2)(torch.arange, 5)
        tensor([0, 1, 2, 3, 4])
        """
        if not self.size and n > 1:
            room = _memory(self.device) // (_ALIVE * _bytes_each(compute))
            self.size = max(1, min(self.most, room))
        rows: list[Tensor] = []
        done = 0
        while done < n or not rows:
            stop = min(n, done + (self.size or 1))
            found = _or_none(compute, done, stop)
            if found is not None:
                rows.append(found)
                done = stop
            else:
                self.size = max(1, (stop - done) // 2)
        return torch.cat(rows)


def _or_none(compute: Compute, start: int, stop: int) -> Tensor | None:
    """What it computes; None if memory was short for several examples.

    Apart from its caller: an error holds on to the memory of whatever raised it.
    """
    try:
        return compute(start, stop)
    except (MemoryError, RuntimeError) as error:
        if stop - start <= 1 or not is_lack_of_memory(error):
            raise
    return None


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory was short; of a CPU's torch says so in words only."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    words = str(error).lower()
    return "memory" in words and any(word in words for word in ("alloc", "not enough", "out of"))


def _memory(device: torch.device) -> int:
    """Bytes that a batch may use."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory // 3)
    return _MEMORY


def _bytes_each(compute: Compute) -> int:
    """The bytes of the largest tensor that an example makes, by a try with two."""
    with _Largest() as seen:
        compute(0, 2)
    each: int = seen.bytes // 2
    return max(1, each)


class _Largest(TorchFunctionMode):
    """Notes the largest new tensor of all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: int = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        # A view of something, as of weights, is nothing new.
        given = {_place(value) for value in map(_bare, args) if _is_plain(value)}
        results = result if isinstance(result, tuple | list) else (result,)
        for value in map(_bare, results):
            if _is_plain(value) and _place(value) not in given:
                self.bytes = max(self.bytes, value.numel() * value.element_size())
        return result


def _bare(value: Any) -> Any:
    """A tensor as it lies in memory, without the transforms of torch.func around it."""
    while isinstance(value, Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value):
        value = torch._C._functorch.get_unwrapped(value)
    return value


def _is_plain(value: object) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided


def _place(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()
