"""A step as a CUDA graph: recorded once, then launched as one, however many kernels it has."""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

_WARM_UPS = 3
_NAMED = re.compile(r"\s*[\w.]*(Error|Exception)\b")  # a line that begins with an error's name


@contextlib.contextmanager
def unchanged(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Give tensors back their values afterwards: a recording's warm-up moves what a step moves."""
    before = [tensor.clone() for tensor in tensors]
    try:
        yield
    finally:
        for tensor, value in zip(tensors, before, strict=True):
            tensor.copy_(value)


class Recording:
    """A step that reads some tensors and writes others where they lie, recorded and replayed.

    Args:
        step: called with the inputs; it reads no number back.
        inputs: what a call gives anew; the last is what the step writes for the caller.
        pool: memory that recordings share whose calls never overlap; None for memory of its own.
    """

    def __init__(
        self,
        step: Callable[..., None],
        inputs: Sequence[Tensor],
        pool: Any = None,  # torch has no public name for its type
    ) -> None:
        self.inputs = inputs
        side = _side(inputs[0].device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                step(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            step(*inputs)

    def __call__(self, *given: Tensor) -> None:
        """One step, with other inputs."""
        *read, written = zip(self.inputs, given, strict=True)
        for own, new in read:
            own.copy_(new)
        self.graph.replay()
        written[1].copy_(written[0])


@functools.cache
def _side(device: torch.device) -> torch.cuda.Stream:
    """A stream for warm-ups, one for all: the libraries keep memory for each that there was."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def in_a_line(error: Exception) -> str:
    r"""An error of the compiler or the capture, which have pages: its first line, and its cause.

    A compiler's first line says where it was, and a later one what is wrong.

    >>> in_a_line(RuntimeError("CompilationError: at 9:12:\n  x = 3*y\nValueError('too large')"))
    "CompilationError: at 9:12: ValueError('too large')"
    """
    first, *rest = str(error).splitlines() or [type(error).__name__]
    causes = [line.strip() for line in rest if _NAMED.match(line)]
    return " ".join([first.strip(), *causes[-1:]])
