"""What a step of training costs: one model after another, captured, and packed.

Run it with `python -m benchmarks.training`. It prints microseconds for one model's step, the ratio
to eager in the same run, and how many runs of 200 CIFAR-10 epochs an hour that makes; on a CPU it
measures the digits network instead, and then trains the whole digits comparison both ways, with
its evaluation and its records. The largest pack is also profiled: which kernels its step spends
its time in. `--write FILE` keeps it all as JSON with device and versions.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks._main import positive, run
from penex.lab import tasks, training
from penex.lab.data import Collection, Examples
from penex.lab.engine import loop
from penex.lab.engine.captured import Steps
from penex.lab.engine.packed import Pack
from penex.lab.engine.recipe import Recipe
from penex.lab.engine.step import step
from penex.lab.ground import environment
from penex.lab.models.cnn import cnn
from penex.lab.tasks import Task, cifar10, runs
from penex.lab.training.compare import Comparison, compare
from penex.registry import FIVE

LOSSES = ("ce", "label_smoothing", "confidence_penalty", "focal", "penex")
STEPS_OF_A_RUN = 200 * 625
_ROUNDS = 8  # the first warms up
_PROFILED = 10  # calls
_SHOWN = 16  # kernels
FLOP_OF_A_STEP = 65e6 * 64  # forward and backward, a batch of 64 CIFAR images


def task(device: torch.device) -> Task:
    """A task on noise of CIFAR's shape, or of the digits' shape on a CPU."""
    cuda = device.type == "cuda"
    shape = (3, 32, 32) if cuda else (1, 8, 8)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (4000, *shape), dtype=torch.uint8, generator=generator)
    targets = torch.arange(4000) % 10
    collection = Collection(Examples(inputs, targets), tuple("0123456789"))
    recipe = cifar10.RECIPE if cuda else Recipe(epochs=60, lr=1e-3, clip=5.0)
    return Task("noise", "", lambda: collection, 2560, "cnn", cnn, recipe)


def measure(
    device: torch.device, sizes: list[int], count: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Microseconds a model-step: eager, then packs of several sizes, all taking turns.

    And the kernels of the last pack's step.
    """
    work = task(device)
    place = training.Place(Path(), device)

    def members(m: int) -> tuple[list[Any], list[Any]]:
        planned = [runs.plan(work, runs.LossSpec(LOSSES[k % 5]), k // 5) for k in range(m)]
        data = [place.data(run) for run in planned]
        pairs = zip(planned, data, strict=True)
        return [training.learner_of(run, one, device) for run, one in pairs], data

    (learner,), (data,) = members(1)
    history = loop.start(learner, data).history
    index = torch.arange(64, device=device)
    rate = torch.tensor(1e-4, dtype=learner.wide, device=device)
    learner.train()

    def packed(m: int, *, fused: bool) -> Callable[[], None]:
        pack = Pack(*members(m))
        pack.train(True)
        step_of = Steps(pack, print, fused=fused)
        batch, rates = index.expand(m, 64).contiguous(), rate.expand(m, 1).contiguous()
        seen = torch.zeros(m, 4, dtype=learner.wide, device=device)
        return lambda: step_of(batch, rates, seen)

    kind = "captured" if device.type == "cuda" else "packed"
    with training.settings(work.recipe, device):
        calls: list[tuple[str, int, Callable[[], None]]] = [
            ("eager, one model", 1, lambda: step(learner, data, index, rate, history[0])),
            *((f"{kind}, {m} packed", m, packed(m, fused=False)) for m in sizes),
        ]
        if device.type == "cuda":
            calls += [(f"with Triton, {m} packed", m, packed(m, fused=True)) for m in sizes]
        rounds: list[list[float]] = [[] for _ in calls]
        for _ in range(_ROUNDS):
            for (_, m, call), seen in zip(calls, rounds, strict=True):
                call()  # warms up, and compiles the first time
                seen.append(_seconds(call, max(1, count // m), device) / m)
        kernels = profile(calls[-1][2], calls[-1][1], device)
    rows = [
        {
            "what": what,
            "models": m,
            "microseconds": statistics.median(seen[1:]) * 1e6,
            "quartiles": [q * 1e6 for q in statistics.quantiles(seen[1:], n=4)[::2]],
        }
        for (what, m, _), seen in zip(calls, rounds, strict=True)
    ]
    return rows, kernels


def profile(call: Callable[[], None], m: int, device: torch.device) -> list[dict[str, Any]]:
    """The kernels of a call by the time they take: microseconds a model-step, and how many."""
    cuda = device.type == "cuda"
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if cuda else activity.CPU]) as watched:
        _seconds(call, _PROFILED, device)
    found = [
        {
            "kernel": event.key,
            "microseconds": (event.self_device_time_total if cuda else event.self_cpu_time_total)
            / (_PROFILED * m),
            "calls": event.count / _PROFILED,
        }
        for event in watched.key_averages()
    ]
    return sorted(found, key=lambda kernel: -kernel["microseconds"])[:_SHOWN]


def _seconds(call: Callable[[], None], count: int, device: torch.device) -> float:
    """The mean time of some calls."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / count


def compare_digits() -> list[dict[str, Any]]:
    """Seconds for the fifteen runs of the digits comparison, alone and packed, in turns."""
    planned = Comparison(tasks.find("digits"), FIVE, seeds=3)
    cpu = torch.device("cpu")
    ways = {"one after another": 1, "packed": None}
    taken: dict[str, list[float]] = {way: [] for way in ways}
    training.Place(Path(), cpu).data(planned.runs[0])  # scikit-learn's import is nobody's time
    for _ in range(2):
        for way, size in ways.items():
            with tempfile.TemporaryDirectory() as out:
                began = time.perf_counter()
                compare(planned, training.Place(Path(out), cpu), pack=size)
                taken[way].append(time.perf_counter() - began)
    return [{"what": f"digits comparison, {way}", "seconds": min(t)} for way, t in taken.items()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--packs", type=positive, nargs="*", default=[1, 5, 15, 50])
    parser.add_argument("--steps", type=positive, default=100, help="model-steps of a round")
    parser.add_argument("--steps-only", action="store_true", help="leave the comparison out")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    device = environment.device_of(options.device)
    rows, kernels = measure(device, options.packs, options.steps)
    print(environment.device_name(device), torch.__version__)
    eager = rows[0]["microseconds"]
    for row in rows:
        taken = row["microseconds"]
        text = f"{row['what']:26} {taken:9.1f} us a model-step  {eager / taken:5.1f}x eager"
        if device.type == "cuda":
            run = taken * STEPS_OF_A_RUN / 1e6
            rate = FLOP_OF_A_STEP / taken / 1e6
            text += f"  {run:6.1f} s a run  {3600 / run:6.0f} runs an hour  {rate:5.1f} TFLOP/s"
        print(text)
    print(f"\nWhere a step of the last spends its time (us a model-step; the {_SHOWN} largest):")
    for kernel in kernels:
        times = f"{kernel['microseconds']:9.2f}  {kernel['calls']:5.1f} times"
        print(f"{times}  {kernel['kernel'][:100]}")
    if device.type == "cpu" and not options.steps_only:
        whole = compare_digits()
        for row in whole:
            ratio = whole[0]["seconds"] / row["seconds"]
            print(f"{row['what']:38} {row['seconds']:6.1f} s  {ratio:4.1f}x")
        rows += whole
    if options.write:
        record = {"environment": environment.describe(device), "rows": rows, "kernels": kernels}
        options.write.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
