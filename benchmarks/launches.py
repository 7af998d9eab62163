"""What a small batch pays on a GPU before anything is computed, piece by piece.

    python -m benchmarks.launches [--sizes 64x10 4096x1000] [--write results/launches-h200.json]

An eager PENEX is a function in Python, whose backward pass autograd's own thread calls, and two
kernels, or three for more than a thousand rows. So both are timed by themselves beside it and
torch's cross-entropy: a function in Python that computes nothing, and the kernels as nobody's loss.
What a faster launch could save is in the second; the first is what any function in Python pays.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks._main import run
from penex.kernels import choice
from penex.lab import bench
from penex.lab.bench import Row, Size
from penex.lab.ground import environment
from penex.lab.ground.errors import LabError
from penex.loss import PENEX

SIZES = ("64x10", "512x1000", "4096x1000")
WAYS = bench.PASSES[1:3]  # with autograd's own thread, and without
_NOTHING, _LAUNCHES, _WHOLE = "a function that computes nothing", "its launches", "PENEX"


class _Nothing(torch.autograd.Function):
    """A loss that allocates its value and its gradient, and writes neither."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        ctx.save_for_backward(logits)
        return logits.new_empty((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Tensor:
        (logits,) = ctx.saved_tensors
        return torch.empty_like(logits)


def launches(logits: Tensor, target: Tensor, rho: Tensor) -> None:
    """The kernels of a batch, one after the other, as nobody's loss."""
    launch = choice.kernels().launch
    rest = 0.1, -100, 0.0, 0.1, 1e-6, 100.0, 0.0, True, False, True, True
    value, sums = launch.rows_and_finish(logits, target, None, rho, *rest)
    out = torch.empty_like(logits)
    launch.gradient(logits, target, None, sums, value, out, 0.1, 0.0)


def pieces(logits: Tensor, target: Tensor) -> dict[str, Callable[[], object]]:
    """What is timed, by name, from little to whole."""
    leaf = logits.detach().requires_grad_()
    cross_entropy, ours = nn.CrossEntropyLoss(), PENEX()
    rho = torch.zeros((), device=logits.device)

    def backward(value: Callable[[], Tensor]) -> Callable[[], None]:
        def call() -> None:
            leaf.grad = None
            value().backward()  # type: ignore[no-untyped-call]

        return call

    return {
        bench.BASE: backward(lambda: cross_entropy(leaf, target)),
        _NOTHING: backward(lambda: _Nothing.apply(leaf)),  # type: ignore[no-untyped-call]
        _LAUNCHES: lambda: launches(logits, target, rho),
        _WHOLE: backward(lambda: ours(leaf, target)),
    }


def measure(size: Size, device: torch.device, dtype: torch.dtype, seconds: float) -> list[Row]:
    """Time every piece at a size, with autograd's own thread and without."""
    generator = torch.Generator(device).manual_seed(0)
    shape = size.rows, size.classes
    logits = torch.randn(shape, generator=generator, device=device, dtype=dtype)
    target = torch.randint(size.classes, shape[:1], generator=generator, device=device)
    rows: list[Row] = []
    for way in WAYS:
        with torch.autograd.set_multithreading_enabled("one thread" not in way):
            times = bench.take_turns(pieces(logits, target), seconds, device)
        base = statistics.median(times[bench.BASE])
        for name, seen in times.items():
            low, middle, high = statistics.quantiles(seen, n=4)
            row: Row = {"size": str(size), "pass": way, "what": name, "seconds": middle}
            rows.append({**row, "quartiles": [low, high], "ratio": middle / base})
    return rows


def table(rows: list[Row]) -> str:
    """The rows in Markdown: microseconds, and times cross-entropy's.

    >>> row = {"size": "64x10", "pass": WAYS[0], "what": "PENEX", "seconds": 2e-4, "ratio": 2.0}
    >>> print(table([row]).splitlines()[-1])
    | 64x10 | forward+backward | PENEX | 200 | 2.00 |
    """
    lines = ["| logits | pass | what | µs | over cross-entropy |", "|---|---|---|---|---|"]
    for row in rows:
        took = f"{1e6 * row['seconds']:.0f} | {row['ratio']:.2f}"
        lines.append(f"| {row['size']} | {row['pass']} | {row['what']} | {took} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="*", default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=0.4, help="for each piece, size and pass")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="bfloat16")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    device = environment.device_of("auto")
    if device.type != "cuda":
        raise LabError("benchmarks.launches is about GPUs, and torch sees none here.")
    rows: list[Row] = []
    with bench.threads(1):
        for name in options.sizes:
            print(name, file=sys.stderr, flush=True)
            size, dtype = Size.parse(name), getattr(torch, options.dtype)
            rows += measure(size, device, dtype, options.seconds)
    facts = {**environment.describe(device), "dtype": options.dtype}
    print(f"{facts['device']}, torch {facts['torch']}, {facts['dtype']}, one CPU thread\n")
    print(table(rows))
    if options.write:
        options.write.write_text(json.dumps({"environment": facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
