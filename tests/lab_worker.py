"""One rank of test_lab_distributed.py: train every loss a while with the engine, in float64.

Usage: [torchrun …] lab_worker.py FOLDER. Rank 0 writes FOLDER/ranks-RANKS.safetensors.
"""

import os
import sys
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from penex.lab import tasks, training
from penex.lab.engine import loop
from penex.lab.engine.step import step
from penex.lab.ground import ranks
from penex.lab.tasks import runs

from witness import fit_alone

CPU = torch.device("cpu")
DIGITS = tasks.find("digits")
STEPS = 20


def train(loss: str) -> Tensor:
    """The parameters after twenty steps; an epoch's last batch is one example: a rank has none."""
    changes = {"epochs": 5, "dtype": "float64", "clip": 1.0, "batch_size": 32}
    run = runs.plan(DIGITS, runs.LossSpec(loss), 0, 97, changes)
    data = training.Place(Path(), CPU).data(run)
    learner = training.learner_of(run, data, CPU)
    fit_alone(learner, data, loop.start(learner, data))
    assert learner.count.item() == STEPS
    return learner.theta.clone()


def first_gradient(loss: str) -> Tensor:
    """The first step's gradient in float32, with dropout."""
    run = runs.plan(DIGITS, runs.LossSpec(loss), 0, 97, {"epochs": 1, "clip": 1e9})
    data = training.Place(Path(), CPU).data(run)
    learner = training.learner_of(run, data, CPU)
    row = loop.start(learner, data).history[0]
    step(learner, data, torch.arange(33), torch.tensor(1e-3), row)
    return learner.grad.clone()


def threads() -> list[str]:
    """The names of this process's threads, those of C++ too."""
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


def main(folder: Path, losses: list[str]) -> None:
    torch.set_num_threads(1)
    together = int(os.environ.get("WORLD_SIZE", "1"))
    with ranks.joined(CPU):
        result = {f"theta.{loss}": train(loss) for loss in losses}
        result |= {f"grad.{loss}": first_gradient(loss) for loss in losses}
        if ranks.rank() == 0:
            safetensors.torch.save_file(result, folder / f"ranks-{together}.safetensors")
        assert ranks.world() == together
        assert any("gloo" in name for name in threads()) == (together > 1)
    # A thread of the group that ends while the interpreter does could abort the process.
    assert not any("gloo" in name for name in threads()), threads()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
