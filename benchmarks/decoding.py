"""How fast a folder of images is decoded or comes from the cache, and what memory it takes.

Run it with `python -m benchmarks.decoding [--count 50000]`; it works in a temporary folder.
"""

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from penex.lab.data.read import read


def write(root: Path, count: int, kind: str, side: int) -> None:
    """Noisy pictures of ten classes."""
    random = np.random.default_rng(0)
    for label in range(10):
        (root / str(label)).mkdir(parents=True)
    for k in range(count):
        coarse = random.integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((side, side))
        image.save(root / str(k % 10) / f"{k}.{kind}")


def peak() -> int:
    """The most memory of this process so far, in bytes; pages of mapped files count too."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Print rates and the ratio of memory to decoded data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--kind", default="jpg")
    parser.add_argument("--side", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENEX_CACHE"] = f"{folder}/cache"
        root = Path(folder) / "set"
        write(root, options.count, options.kind, options.side)
        before = peak()
        began = time.perf_counter()
        collection = read(root)
        seconds = time.perf_counter() - began
        decoded = collection.train.inputs.numel()
        int(collection.train.inputs.max())  # touch every byte
        rate = options.count / seconds
        print(f"{options.count:,} {options.kind} files of {options.side} px in {seconds:.1f} s")
        print(f"rate {rate:.0f} images a second, {os.cpu_count()} cores")
        print(
            f"memory {(peak() - before) / decoded:.2f} times the decoded {decoded / 2**20:.0f} MiB"
        )
        began = time.perf_counter()
        read(root)
        print(f"from the cache {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
