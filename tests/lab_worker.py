"""One rank of test_lab_distributed.py: train every loss a while with the engine, in float64.

Usage: lab_worker.py RANK RANKS FOLDER. Rank 0 writes FOLDER/ranks-RANKS.safetensors.
"""

import datetime
import sys
from pathlib import Path

import safetensors.torch
import torch
import torch.distributed as dist
from torch import Tensor

from penex import registry
from penex.lab import runs, tasks, training
from penex.lab.engine import loop
from penex.lab.engine.step import step

CPU = torch.device("cpu")
DIGITS = tasks.find("digits")
STEPS = 100


def train(loss: str) -> Tensor:
    """The parameters after 100 steps; an epoch's last batch is one example: a rank has none."""
    changes = {"epochs": 25, "dtype": "float64", "clip": 1.0, "batch_size": 32}
    run = runs.plan(DIGITS, runs.LossSpec(loss), 0, 97, changes)
    data = training.data_of(run, CPU)
    learner = training.learner_of(run, data, CPU)
    loop.fit(
        learner,
        data,
        0,
        loop.start(learner, data),
        on_epoch=lambda line: None,
        save=lambda position: None,
    )
    assert learner.count.item() == STEPS
    return learner.theta.clone()


def first_gradient(loss: str) -> Tensor:
    """The first step's gradient in float32, with dropout."""
    run = runs.plan(DIGITS, runs.LossSpec(loss), 0, 97, {"epochs": 1, "clip": 1e9})
    data = training.data_of(run, CPU)
    learner = training.learner_of(run, data, CPU)
    row = loop.start(learner, data).history[0]
    step(learner, data, torch.arange(33), torch.tensor(1e-3), row)
    return learner.grad.clone()


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    if ranks > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder / 'store'}",
            rank=rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=300),
        )
    result = {f"theta.{loss}": train(loss) for loss in registry.LOSSES}
    result |= {f"grad.{loss}": first_gradient(loss) for loss in registry.LOSSES}
    if rank == 0:
        safetensors.torch.save_file(result, folder / f"ranks-{ranks}.safetensors")
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
