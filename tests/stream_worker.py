"""A process of test_lab_distributed.py: train on files that stay where they are, in float64.

Usage: [torchrun ...] stream_worker.py TREE OUT.
"""

import sys
from pathlib import Path

from penex import cli
from penex.lab import tasks
from small_trees import small_task

if __name__ == "__main__":
    # 40 images in batches of 13: micro-batches of the last one have no row for the second process.
    tasks.register(small_task(Path(sys.argv[1]), batch_size=13, dtype="float64"))
    cli.main(["train", "small_tree", "--loss", "penex", "--device", "cpu", "--out", sys.argv[2]])
