"""What `import penex` costs on top of `import torch`: python -m benchmarks.imports.

Both are timed in fresh interpreters, in turn, so that a busy machine slows both; the figure to
read is the ratio of the medians. The goal is at most 1.05.
"""

import argparse
import platform
import statistics
import subprocess
import sys

TIMER = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
STATEMENTS = {"torch": "import torch", "penex": "from penex import PENEX, functional, registry"}


def seconds(module: str) -> float:
    """How long a fresh interpreter takes to import the module and what it is for."""
    command = [sys.executable, "-c", TIMER.format(STATEMENTS[module])]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def main() -> None:
    """Time both imports in turn and print the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    seconds("penex")  # fills the file cache
    times: dict[str, list[float]] = {"torch": [], "penex": []}
    for _ in range(repeats):
        for module, seen in times.items():
            seen.append(seconds(module))
    medians = {module: statistics.median(seen) for module, seen in times.items()}
    import torch

    print(f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}")
    for module, seen in times.items():
        print(
            f"import {module}: median {medians[module]:.3f} s of {repeats}, "
            f"from {min(seen):.3f} to {max(seen):.3f}"
        )
    print(f"ratio: {medians['penex'] / medians['torch']:.3f}")


if __name__ == "__main__":
    main()
