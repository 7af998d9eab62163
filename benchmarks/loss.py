"""What a loss costs on the CPU, forward and backward, beside torch's cross-entropy.

    python -m benchmarks.loss [--seconds 2]

One thread. The losses take turns, a few calls each, so that a busy machine slows all of them; the
figure to read is the ratio of the medians. The paper's own table times the forward pass only.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import penex
from penex import _reference, registry

SIZES = ((64, 10), (64, 100), (512, 1000), (4096, 1000))
LOSSES: dict[str, Callable[[], Callable[[Tensor, Tensor], Tensor]]] = {
    "cross-entropy": nn.CrossEntropyLoss,
    "torch label smoothing": lambda: nn.CrossEntropyLoss(label_smoothing=0.1),
    "confidence penalty": lambda: registry.make("confidence_penalty"),
    "focal": lambda: registry.make("focal"),
    "the paper's listing": _reference.Listing,
    "PENEX, plain formula": lambda: penex.PENEX(impl="reference"),
    "PENEX": penex.PENEX,
}


def measure(rows: int, classes: int, seconds: float) -> dict[str, list[float]]:
    """Times of a forward and backward pass, a list for each loss, taken in turns."""
    torch.manual_seed(0)
    logits = torch.randn(rows, classes, requires_grad=True)
    target = torch.randint(classes, (rows,))
    losses = {name: make() for name, make in LOSSES.items()}
    times: dict[str, list[float]] = {name: [] for name in losses}
    calls = max(1, 20_000 // (rows * classes))
    end = time.perf_counter() + seconds * len(losses)
    while time.perf_counter() < end or len(times["PENEX"]) < 5:
        for name, loss in losses.items():
            start = time.perf_counter()
            for _ in range(calls):
                logits.grad = None
                loss(logits, target).backward()  # type: ignore[no-untyped-call]
            times[name].append((time.perf_counter() - start) / calls)
    return {name: seen[1:] for name, seen in times.items()}  # the first turn warms up


def main() -> None:
    """Measure every size and print medians, spreads and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each loss and size")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    print(
        f"{platform.machine()}, one thread, Python {platform.python_version()}, torch "
        f"{torch.__version__}, float32, forward and backward\n"
    )
    print(f"{'rows x classes':>15}  {'loss':<23}{'median':>10}{'middle half':>22}{'ratio':>8}")
    for rows, classes in SIZES:
        times = measure(rows, classes, seconds)
        base = statistics.median(times["cross-entropy"])
        for name, seen in times.items():
            low, middle, high = (1e6 * q for q in statistics.quantiles(seen, n=4))
            spread = f"{low:,.0f} to {high:,.0f}"
            ratio = middle / 1e6 / base
            size = f"{rows} x {classes}"
            print(
                f"{size:>15}  {name:<23}{middle:>7,.0f} µs{spread:>19} µs{ratio:>8.2f}", flush=True
            )


if __name__ == "__main__":
    main()
