"""How fast images come out of their files: python -m benchmarks.streaming TASK --data FOLDER.

Once for a core, by processor time, which a busy machine changes little; once through as many
processes as there would be in training (PENEX_WORKERS), by the clock.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import PIL
import torch

from benchmarks._main import positive, run
from penex.lab import tasks
from penex.lab.data.streams import Job, Stream, decode, workers
from penex.lab.ground import environment

_BATCH = 128
_CPU = torch.device("cpu")


def of_a_core(stream: Stream, rows: list[int], draw: int | None) -> float:
    """Images a second of processor time."""
    job = Job([stream.paths[row] for row in rows], rows, stream.size, draw)
    decode(job)  # the files are in memory from here on
    began = time.process_time()
    decode(job)
    return len(rows) / (time.process_time() - began)


def of_all(stream: Stream, rows: list[int]) -> float:
    """Images a second of the clock, in batches, by all decoding processes."""
    batches = [rows[k : k + _BATCH] for k in range(0, len(rows), _BATCH)]

    def twice() -> Iterator[list[int]]:
        yield batches[0]  # the processes start
        yield from batches

    stream.announce(twice(), lambda row: (), 0)
    stream.take(len(batches[0]), _CPU)
    began = time.perf_counter()
    for batch in batches:
        stream.take(len(batch), _CPU)
    return len(rows) / (time.perf_counter() - began)


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=("imagenet", "tiny_imagenet", "imagenette"))
    parser.add_argument("--data", type=Path, default=tasks.data_root())
    parser.add_argument("--images", type=positive, default=1024)
    options = parser.parse_args()
    began = time.perf_counter()
    collection = tasks.find(options.task).collect(options.data)
    seconds = time.perf_counter() - began
    stream = collection.train.stream
    assert stream is not None
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(stream.paths), generator=generator)[: options.images].tolist()
    print(f"{environment.cpu_name()}, Pillow {PIL.__version__}, {options.task}, {len(rows)} images")
    print(f"{collection.facts['images']:,} files listed in {seconds:.1f} s")
    print(f"to train on  {of_a_core(stream, rows, 0):8,.0f} images a second of one core")
    print(f"to judge by  {of_a_core(stream, rows, None):8,.0f} images a second of one core")
    print(f"to train on  {of_all(stream, rows):8,.0f} images a second by {workers()} processes")


if __name__ == "__main__":
    run(main)
