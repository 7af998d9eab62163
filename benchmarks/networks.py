"""How fast a network too large for a pack is trained: images a second, and how near the GPU's best.

    python -m benchmarks.networks [resnet18 vit_base ...] [--write results/networks-h200.json]

The step is the engine's own, with the recipe of the network's task, on images of noise in memory:
step by step, compiled, recorded, as a run of that length would have it. The arithmetic is that of
the products of forward and backward passes, and the GPU's best a product of two large bfloat16
matrices, timed in the same run.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks._main import positive, run
from penex.lab import tasks, training
from penex.lab.data import Collection, Examples
from penex.lab.engine import compiling
from penex.lab.engine.compiling import compile_network
from penex.lab.engine.replayed import LONG, Replayed
from penex.lab.engine.step import HISTORY
from penex.lab.ground import environment
from penex.lab.ground.errors import LabError, unknown
from penex.lab.tasks import Task, runs

TASKS = {"resnet18": "cifar10_resnet18", "vit_base": "imagenet", "vit_tiny": "tiny_imagenet"}
SHAPES = {"resnet18": (3, 32, 32), "vit_base": (3, 224, 224), "vit_tiny": (3, 64, 64)}
CLASSES = {"resnet18": 10, "vit_base": 1000, "vit_tiny": 200}
_ROUNDS = 4  # the first warms up
_SIDE = 8192  # of the matrices whose product is the best that a GPU does


@dataclass(frozen=True)
class Way:
    """How the steps are taken.

    Attributes:
        compiled: whether the network is.
        recorded: whether a step is one launch.
    """

    compiled: bool
    recorded: bool

    def __str__(self) -> str:
        words = ["compiled"] * self.compiled + ["recorded"] * self.recorded
        return " and ".join(words) or "step by step"


WAYS = (Way(False, False), Way(False, True), Way(True, True))


def task(name: str) -> Task:
    """The network's task, on two batches of noise."""
    known = tasks.find(TASKS[name])
    size = 2 * known.recipe.batch_size
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (size, *SHAPES[name]), dtype=torch.uint8, generator=generator)
    classes = CLASSES[name]
    train, rest = (Examples(inputs[:n], torch.arange(n) % classes) for n in (size, classes))
    collection = Collection(train, tuple(map(str, range(classes))), val=rest, test=rest)
    return replace(known, collect=lambda: collection, train_size=size, val=classes)


def step_of(work: Task, way: Way, loss: str, device: torch.device) -> Callable[[], None]:
    """The step of a fresh learner."""
    planned = runs.plan(work, runs.LossSpec(loss), 0)
    data = training.Place(Path(), device).data(planned)
    learner = training.learner_of(planned, data, device)
    learner.train()
    if way.compiled:
        compile_network(learner, data, compiling.LONG)
        if not learner.compiled:
            raise LabError(f"{work.model} was not compiled: its row would say what is not so.")
    steps = Replayed(learner, data, LONG if way.recorded else 0)
    rows = torch.arange(work.recipe.batch_size, device=device)
    rate = torch.tensor(1e-4, dtype=learner.wide, device=device)
    seen = torch.zeros(len(HISTORY), dtype=learner.wide, device=device)
    return lambda: steps(rows, rate, seen, None)


def operations(work: Task, device: torch.device) -> float:
    """Of the products of an image, forward and backward: each multiplication and each addition."""
    shape, classes = work.collect().train.inputs.shape[1:], len(work.collect().classes)
    network = work.build(tuple(shape), classes).to(device).train()
    with FlopCounterMode(display=False) as counted:
        network(torch.zeros(2, *shape, device=device)).sum().backward()
    total: int = counted.get_total_flops()
    return total / 2


def seconds(call: Callable[[], object], most: float) -> float:
    """The median time of a call, in as many as fit into some seconds."""
    call()
    torch.cuda.synchronize()
    taken: list[float] = []
    while len(taken) < _ROUNDS or (sum(taken) < most and len(taken) < 50):
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


def best_rate(device: torch.device) -> float:
    """Operations a second of a product of large bfloat16 matrices of noise."""
    a, b = (torch.randn(_SIDE, _SIDE, dtype=torch.bfloat16, device=device) for _ in range(2))
    return 2 * _SIDE**3 / seconds(lambda: torch.mm(a, b), 0.5)


def measure(name: str, loss: str, most: float, device: torch.device) -> list[dict[str, Any]]:
    """Images a second of each way, and the share of the GPU's best."""
    work = task(name)
    count, best = operations(work, device), best_rate(device)
    rows = []
    with training.settings(work.recipe, device):
        for way in WAYS:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            began = time.perf_counter()
            call = step_of(work, way, loss, device)
            call()
            torch.cuda.synchronize()
            started = time.perf_counter() - began
            rate = work.recipe.batch_size / seconds(call, most)
            row = {
                "network": name,
                "way": str(way),
                "batch": work.recipe.batch_size,
                "micro_batches": work.recipe.accumulate,
                "loss": loss,
                "images_a_second": rate,
                "operations_an_image": count,
                "best_rate": best,
                "share": rate * count / best,
                "peak_bytes": torch.cuda.max_memory_allocated(),
                "start_seconds": started,
            }
            del call  # its memory is not the next one's
            rows.append(row)
            print(line(row), flush=True)
    return rows


def line(row: dict[str, Any]) -> str:
    """A row in words.

    >>> row = {"network": "vit", "way": "recorded", "images_a_second": 2e3, "share": 0.25}
    >>> row |= {"operations_an_image": 1e11, "peak_bytes": 2**30, "start_seconds": 3.0}
    >>> line(row)
    'vit, recorded: 2,000 images/s, 200 TFLOP/s, 25.0 % of a product, 1.0 GiB, ready in 3 s'
    """
    speed = row["images_a_second"] * row["operations_an_image"] / 1e12
    return (
        f"{row['network']}, {row['way']}: {row['images_a_second']:,.0f} images/s, {speed:.0f} "
        f"TFLOP/s, {100 * row['share']:.1f} % of a product, {row['peak_bytes'] / 2**30:.1f} GiB, "
        f"ready in {row['start_seconds']:.0f} s"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=("resnet18", "vit_base"))
    parser.add_argument("--loss", default="penex")
    parser.add_argument("--seconds", type=positive, default=5, help="for each way")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    for name in options.networks:
        if name not in TASKS:
            raise unknown("network", name, tuple(TASKS))
    device = environment.device_of("auto")
    if device.type != "cuda":
        raise LabError("benchmarks.networks is about GPUs, and torch sees none here.")
    rows = []
    for name in options.networks:
        rows += measure(name, options.loss, options.seconds, device)
        if options.write:
            record = {"environment": environment.describe(device), "rows": rows}
            options.write.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
