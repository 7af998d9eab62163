"""Compiled kernels, kept and launched again: what Triton does at every launch, done once."""

import os
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from triton import __version__ as _VERSION
from triton.runtime.driver import driver as _driver

try:
    from triton.knobs import runtime as _hooks
except ImportError:  # before Triton 3.4
    from triton.compiler import CompiledKernel

    _hooks = CompiledKernel

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

_MOST_KEPT = 4096
# What `_runner` does was read in these versions, for CUDA and HIP: it is what a compiled kernel
# does when it is launched itself, `CompiledKernel.__getitem__`. Before them that took other
# arguments, and after them it may; then each launch is Triton's own.
_READ = (3, 3), (3, 9)
_KEEPS = _READ[0] <= tuple(map(int, _VERSION.split(".")[:2])) <= _READ[1]
# torch.cuda.current_device asks each time whether CUDA has been set up.
_current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)

# By everything that a compilation and its number of programs depend on: the kernel, dtypes, sizes,
# steps, alignment, device.
_runners: dict[tuple[object, ...], Callable[..., None]] = {}

# Programs, warps, and the arguments that come last: whole numbers, and what is known in compiling.
Plan: TypeAlias = tuple[int, int, tuple[object, ...]]


def launch(
    kernel: Any,
    plan: Callable[..., Plan],
    key: tuple[Any, ...],
    device: torch.device,
    tensors: tuple[Tensor, ...],
    numbers: tuple[float, ...] = (),
) -> None:
    """Launch a kernel. Which of its compilations it is, Triton is asked once: that takes long.

    Args:
        kernel: of `kernels.triton`.
        plan: how it is launched, a function of the key.
        key: everything that the plan and a compilation depend on besides the kernel, the device and
            where tensors begin: dtypes, flags, every whole number. A float is a float, whichever.
        device: where.
        tensors: the first arguments.
        numbers: those that follow, each a float to the kernel.
    """
    index = device.index
    if index is not None and index != _current_device():
        with torch.cuda.device(device):
            launch(kernel, plan, key, device, tensors, numbers)
        return
    places, bits = [], 0
    for tensor in tensors:
        place = tensor.data_ptr()
        places.append(place)
        bits |= place
    # Which of them begin where 16 bytes can be read at once; nearly always all do.
    aligned = bits % 16 == 0 or tuple([place % 16 == 0 for place in places])
    kept = id(kernel), index, aligned, key  # the id, as hash(kernel) takes a lock at every launch
    run = _runners.get(kept)
    if run is not None:
        run(*places, *numbers)
        return
    programs, warps, rest = plan(*key)
    compiled = kernel[(programs,)](*tensors, *map(float, numbers), *rest, num_warps=warps)
    # Triton's interpreter returns no compiled kernel that could be kept.
    if _KEEPS and hasattr(compiled, "asm"):
        if len(_runners) >= _MOST_KEPT:
            _runners.clear()
        _runners[kept] = _runner(compiled, programs, rest, index)


def _runner(
    compiled: Any, programs: int, rest: tuple[object, ...], index: int | None
) -> Callable[..., None]:
    """What launches a compiled kernel, given where tensors begin and its numbers.

    `compiled[(programs, 1, 1)]` does so too, and twice as slowly: it looks up the device again and
    describes each launch to profilers, be there one or not.
    """
    watched = compiled[(programs, 1, 1)]
    run, function, packed = compiled.run, compiled.function, compiled.packed_metadata
    stream_of = _driver.active.get_current_stream

    def launched(*given: object) -> None:
        enter, leave = _hooks.launch_enter_hook, _hooks.launch_exit_hook
        if getattr(enter, "calls", enter) or getattr(leave, "calls", leave):
            watched(*given, *rest)
        else:
            stream = stream_of(index)
            run(programs, 1, 1, stream, function, packed, None, None, None, *given, *rest)

    return launched


# How many programs of a launch have arrived, by device and stream: what runs at the same time must
# not share one, and the kernels of a stream follow each other. Each launch leaves it at 0.
_counters: dict[tuple[torch.device, int], Tensor] = {}


def counter(device: torch.device) -> Tensor:
    """A number on a device that is 0 when the next kernel of the current stream begins.

    A graph that is recorded gets one of its own, set to 0 whenever it runs, as it may run beside
    another that was recorded in the same stream.
    """
    stream = _stream(device.index)
    if stream is None:
        return torch.zeros(1, dtype=torch.int32, device=device)
    found = _counters.get((device, stream))
    if found is None:
        found = _counters[device, stream] = torch.zeros(1, dtype=torch.int32, device=device)
    return found


def _stream(index: int | None) -> int | None:
    """The stream that a device's next kernel goes to; None if a graph is recorded from it."""
    if index is None:
        return 0
    if index != _current_device():  # then `launch` changes it
        return None
    capturing = torch._C._cuda_isCurrentStreamCapturing()
    return None if capturing else _driver.active.get_current_stream(index)
