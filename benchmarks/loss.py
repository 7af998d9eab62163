"""What a loss costs beside torch's cross-entropy: `penex bench` for a machine with torch alone.

    python -m benchmarks.loss [--sizes 64x10 4096x1000] [--seconds 1] [--write FILE]

It prints the table and keeps the record; `penex bench` draws it as well.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

from benchmarks._main import run
from penex.lab import bench
from penex.lab.ground import environment
from penex.report import costs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=1.0, help="for each loss, size and pass")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16", "float64"))
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    device = environment.device_of(options.device)
    cuda = device.type == "cuda"
    names = options.sizes or [*bench.SMALL, *(bench.LARGE if cuda else ())]
    dtype = options.dtype or ("bfloat16" if cuda else "float32")
    with bench.threads(1):
        facts = {**environment.describe(device), "dtype": dtype}
        rows = bench.measure(
            [bench.Size.parse(name) for name in names],
            device,
            getattr(torch, dtype),
            options.seconds,
            compiled=options.compiled,
            tell=lambda line: print(line, file=sys.stderr, flush=True),
        )
        rows += bench.training_steps(device, options.seconds)
    print(f"{facts['device']}, torch {facts['torch']}, {dtype}, one CPU thread\n")
    print(costs.text(rows))
    if options.write:
        record = {"format": bench.FORMAT, "environment": facts, "rows": rows}
        options.write.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
