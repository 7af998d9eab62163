"""A process of test_sharded.py: train a small vision transformer in float64, whole or cut.

Usage: [torchrun ...] shard_worker.py OUT whole|cut [EPOCH]. The first is killed after EPOCH.
"""

import functools
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from penex.lab import tasks, training
from penex.lab.ground import ranks
from penex.lab.models.vit import vit
from penex.lab.records import Json
from penex.lab.tasks.runs import LossSpec, Run, plan

CPU = torch.device("cpu")
TASK = replace(
    tasks.find("digits"), model="vit_tiny", build=functools.partial(vit, width=64, depth=2)
)


def main(out: Path, way: str, last: int | None) -> None:
    def epoch(run: Run, line: Json) -> None:
        if line["epoch"] == last:
            os.kill(os.getpid(), signal.SIGKILL)

    changes = {"epochs": 4, "dtype": "float64", "clip": 0.5, "batch_size": 16, "accumulate": 2}
    changes |= {"shard": way == "cut", "recompute": True}
    # 49 examples: the last batch is one, of which the second process has none.
    run = plan(TASK, LossSpec.parse("penex"), 0, 49, changes)
    place = training.Place(out, CPU, training.Hooks(epoch=epoch, save_seconds=0.0))
    with ranks.joined(CPU):
        if way == "cut":
            learner = training.learner_of(run, place.data(run), CPU)
            total = sum(p.numel() for p in learner.module.parameters())
            parts = [p for p in learner.model.parameters() if isinstance(p, DTensor)]
            mine = sum(p.to_local().numel() for p in parts)
            assert 0.49 * total <= mine <= 0.51 * total
            assert all(flat.numel() <= 0.51 * total for flat in learner.slots.values())
        training.train(run, place)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else None)
