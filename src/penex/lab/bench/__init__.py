"""What a loss costs beside torch's cross-entropy: time, memory, and how far from the floor.

The losses take turns, so that a busy machine slows all of them; the number to read is the ratio
of the medians. The floor of a forward and backward pass is two reads of the logits and a write,
at the bandwidth at which this machine copies a tensor of their size.

On a GPU a forward and backward pass is timed in three ways, which say what bounds it: as it is; on
one thread, without the way to autograd's own and back; and in a CUDA graph, the kernels alone.
"""

import importlib.util
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penex import _reference, registry
from penex.lab import training
from penex.lab.bench.timings import BASE as BASE
from penex.lab.bench.timings import FORMAT as FORMAT
from penex.lab.bench.timings import Row as Row
from penex.lab.bench.timings import take_turns as take_turns
from penex.lab.bench.timings import threads as threads
from penex.lab.data import Collection, Examples
from penex.lab.engine import loop
from penex.lab.engine.step import step
from penex.lab.ground import environment
from penex.lab.ground.errors import LabError
from penex.lab.models.cnn import cnn
from penex.lab.tasks import Task, cifar10, runs
from penex.loss import PENEX

SMALL = ("64x10", "64x100", "512x1000", "4096x1000")
LARGE = ("8192x32000", "8192x128256")
PASSES = ("forward", "forward+backward", "forward+backward, one thread", "CUDA graph")
_GPU_PASSES = PASSES[2:]

_LIGER = "cross-entropy, Liger (overwrites)"
_LIGER_KEPT = "cross-entropy, Liger (a copy)"
_LISTING = "PENEX, the paper's listing"
_COMPILED = "cross-entropy, compiled"
_UNCAPTURED = {_LIGER, _LIGER_KEPT, _LISTING, _COMPILED}  # they read numbers, or have graphs
_TENSORS = 6  # of the logits' size that the plain formula needs at once, in float32

Timed = Callable[[Tensor, Tensor], Tensor]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Size:
    """The shape of a batch of logits.

    >>> Size.parse("64x10")
    Size(rows=64, classes=10)
    """

    rows: int
    classes: int

    @classmethod
    def parse(cls, text: str) -> "Size":
        """Read ROWSxCLASSES."""
        parts = text.split("x")
        if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise LabError(f"A size is ROWSxCLASSES, like 64x10; got {text!r}.")
        return cls(*(int(part) for part in parts))

    def __str__(self) -> str:
        return f"{self.rows}x{self.classes}"


def contestants(device: torch.device, *, compiled: bool) -> dict[str, Callable[[], Timed]]:
    """Whatever is timed, by name: each call makes a new one.

    Cut cross-entropy is not among them: it is one with the last layer, and takes no logits.
    """
    found: dict[str, Callable[[], Timed]] = {
        BASE: nn.CrossEntropyLoss,
        "label smoothing": lambda: nn.CrossEntropyLoss(label_smoothing=0.1),
        "confidence penalty": lambda: registry.make("confidence_penalty"),
        "focal": lambda: registry.make("focal"),
        _LISTING: _reference.Listing,
        "PENEX, plain formula": lambda: PENEX(impl="reference"),
        "PENEX": PENEX,
    }
    if compiled:
        found[_COMPILED] = lambda: torch.compile(nn.CrossEntropyLoss())
    if device.type == "cuda" and importlib.util.find_spec("triton"):
        found["PENEX, triton"] = lambda: PENEX(impl="triton")
    if device.type == "cuda" and importlib.util.find_spec("liger_kernel"):
        found[_LIGER] = _liger
        found[_LIGER_KEPT] = lambda: _on_a_copy(_liger())
    return found


def _liger() -> Timed:
    from liger_kernel.transformers.functional import liger_cross_entropy

    return lambda logits, target: liger_cross_entropy(logits, target)


def _on_a_copy(loss: Timed) -> Timed:
    return lambda logits, target: loss(logits * 1, target)


def measure(
    sizes: list[Size],
    device: torch.device,
    dtype: torch.dtype,
    seconds: float,
    *,
    compiled: bool,
    tell: Tell,
) -> list[Row]:
    """Time every loss at every size; a row for each loss and pass.

    Args:
        sizes: of the logits.
        device: where.
        dtype: of the logits.
        seconds: for each loss, size and pass.
        compiled: whether to time torch.compile's cross-entropy too.
        tell: gets a line of progress.
    """
    rows: list[Row] = []
    for size in sizes:
        need = _TENSORS * size.rows * size.classes * 4
        if need > (free := _free_memory(device)):
            tell(f"{size} is left out: it needs {need / 1e9:.0f} GB, {free / 1e9:.0f} are free.")
            continue
        generator = torch.Generator(device).manual_seed(0)
        shape = (size.rows, size.classes)
        logits = torch.randn(shape, generator=generator, device=device, dtype=dtype)
        target = torch.randint(size.classes, shape[:1], generator=generator, device=device)
        made = {k: make() for k, make in contestants(device, compiled=compiled).items()}
        for kind in PASSES:
            if kind in _GPU_PASSES and device.type != "cuda":
                continue  # a CPU's backward pass is on the caller's thread
            tell(f"{size}, {kind}")
            rows += _measure(made, logits, target, kind, seconds, str(size))
        del logits
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return rows


def _free_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return environment.free_memory()


def _measure(
    losses: dict[str, Timed], logits: Tensor, target: Tensor, kind: str, seconds: float, size: str
) -> list[Row]:
    leaf = logits.detach().requires_grad_()
    other = torch.empty_like(logits)
    calls: dict[str, Callable[[], object]] = {}
    memory: dict[str, float] = {}
    for name, loss in losses.items():
        # Liger's writes its gradient over its logits: it gets its own, and pays for no copy.
        its = leaf.detach().clone().requires_grad_() if name == _LIGER else leaf
        if kind == "CUDA graph":
            if name in _UNCAPTURED:
                continue
            calls[name] = _captured(loss, its, target)
        else:
            calls[name] = _call(loss, its, target, backward=kind != "forward")
            memory[name] = _extra_memory(calls[name], its)
    calls["copy"] = lambda: other.copy_(logits)
    with torch.autograd.set_multithreading_enabled("one thread" not in kind):
        times = take_turns(calls, seconds, logits.device)
    copy = statistics.median(times.pop("copy"))
    floor = {"forward": copy / 2}.get(kind, 1.5 * copy)  # a copy is a read and a write
    base = statistics.median(times[BASE])
    rows = []
    for name, seen in times.items():
        low, middle, high = statistics.quantiles(seen, n=4)
        row: Row = {"size": size, "pass": kind, "loss": name, "seconds": middle}
        row |= {"quartiles": [low, high], "ratio": middle / base, "floors": middle / floor}
        if memory.get(name):
            row["memory"] = memory[name]
        loss = losses[name]
        if isinstance(loss, PENEX):
            row["implementation"] = loss.implementation(leaf, target)
        rows.append(row)
    return rows


def _call(loss: Timed, leaf: Tensor, target: Tensor, *, backward: bool) -> Callable[[], object]:
    def forward() -> Tensor:
        return loss(leaf, target)

    def both() -> None:
        leaf.grad = None
        loss(leaf, target).backward()  # type: ignore[no-untyped-call]

    return both if backward else forward


def _captured(loss: Timed, leaf: Tensor, target: Tensor) -> Callable[[], object]:
    """A forward and backward pass, recorded as a CUDA graph."""
    run = _call(loss, leaf, target, backward=True)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def _extra_memory(call: Callable[[], object], leaf: Tensor) -> float:
    """The most memory that a call takes, in units of the logits; 0 where nobody counts."""
    call()  # compiles
    leaf.grad = None
    if not leaf.is_cuda:
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    leaf.grad = None
    peak = torch.cuda.max_memory_allocated() - before
    return peak / (leaf.numel() * leaf.element_size())


def training_steps(device: torch.device, seconds: float) -> list[Row]:
    """What a whole step of the paper's network costs under each of two losses, on noise."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (640, 3, 32, 32), dtype=torch.uint8, generator=generator)
    collection = Collection(Examples(images, torch.arange(640) % 10), tuple("0123456789"))
    task = Task("noise", "", lambda: collection, 128, "cnn", cnn, cifar10.RECIPE)
    calls: dict[str, Callable[[], object]] = {}
    index = torch.arange(64, device=device)
    place = training.Place(Path(), device)
    with training.settings(task.recipe, device):
        for name in ("ce", "penex"):
            run = runs.plan(task, runs.LossSpec(name), 0)
            data = place.data(run)
            learner = training.learner_of(run, data, device)
            learner.train()
            history = loop.start(learner, data).history
            rate = torch.tensor(1e-4, dtype=learner.wide, device=device)

            def call(learner: Any = learner, data: Any = data, row: Tensor = history[0]) -> None:
                step(learner, data, index, rate, row)  # noqa: B023  (the same for both)

            calls[{"ce": BASE, "penex": "PENEX"}[name]] = call
        times = take_turns(calls, seconds, device)
    base = statistics.median(times[BASE])
    rows = []
    for name, seen in times.items():
        low, middle, high = statistics.quantiles(seen, n=4)
        row: Row = {"size": "batch of 64", "pass": "step of the paper's CNN", "loss": name}
        rows.append({**row, "seconds": middle, "quartiles": [low, high], "ratio": middle / base})
    return rows
