"""What training on one example costs here, found within a second: for plans of long work."""

import time
from dataclasses import replace
from pathlib import Path

import torch

from penex.lab import training
from penex.lab.data import Collection, Examples
from penex.lab.engine import loop
from penex.lab.engine.step import step
from penex.lab.tasks import Task, runs

_LONG = 0.2  # seconds: a step that takes that long is timed well enough
_FIRST = 4  # examples a step, doubled until it is long


def example_seconds(task: Task, shape: tuple[int, ...], device: torch.device) -> float:
    """The time of a training step on noise over its examples, under cross-entropy, one model alone.

    Args:
        task: whose network and recipe.
        shape: of an input.
        device: where.
    """
    whole, size = task.recipe.batch_size, min(_FIRST, task.recipe.batch_size)
    while True:
        seconds = _step_seconds(task, shape, device, size)
        if seconds > _LONG or size == whole:
            return seconds / size
        size = min(2 * size, whole)


def _step_seconds(task: Task, shape: tuple[int, ...], device: torch.device, size: int) -> float:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (4 * size, *shape), dtype=torch.uint8, generator=generator)
    collection = Collection(Examples(inputs, torch.arange(4 * size) % 2), ("0", "1"))
    noise = replace(task, name="noise", collect=lambda: collection, label_noise=None)
    run = runs.plan(noise, runs.LossSpec("ce"), 0, size, {"batch_size": size})
    place = training.Place(Path(), device)
    with training.settings(run.recipe, device):
        data = place.data(run)
        learner = training.learner_of(run, data, device)
        learner.train()
        history = loop.start(learner, data).history
        rate = torch.tensor(1e-4, dtype=learner.wide, device=device)
        index = torch.arange(size, device=device)
        times: list[float] = []
        while len(times) < 3 or sum(times) < _LONG:  # the first one warms up
            _wait(device)
            began = time.perf_counter()
            step(learner, data, index, rate, history[0])
            _wait(device)
            times.append(time.perf_counter() - began)
    return min(times[1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
