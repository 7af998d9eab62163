"""How times are taken, and what a benchmark leaves: rows of them."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

FORMAT = 1
BASE = "cross-entropy"  # every ratio is to the loss of this name

_TURN = 0.01  # seconds of one turn, about
_GPU_TURN = 0.05  # its queue has to fill
_LEAST_TURNS = 5

Row = dict[str, Any]


def take_turns(
    calls: dict[str, Callable[[], object]], seconds: float, device: torch.device
) -> dict[str, list[float]]:
    """The times of one call of each, turn by turn; the first turn warms up and is left out."""
    turn = _GPU_TURN if device.type == "cuda" else _TURN
    count = {
        name: max(1, int(turn / max(_time(call, 1, device), 1e-7))) for name, call in calls.items()
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds * len(calls)
    order = list(calls)
    luck = random.Random(0)  # in any order: what comes before leaves caches and clocks behind
    while time.perf_counter() < end or len(times[order[0]]) <= _LEAST_TURNS:
        luck.shuffle(order)
        for name in order:
            times[name].append(_time(calls[name], count[name], device))
    return {name: seen[1:] for name, seen in times.items()}


def _time(call: Callable[[], object], count: int, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    for _ in range(count):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - began) / count


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Some number of threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
