"""What a loss costs together with a last layer of very many classes: time, memory and error.

    python -m benchmarks.linear --quick --write linear.json     # 8192 positions, several chunks
    python -m benchmarks.linear --write linear.json             # 2048, 8192 and 32768 positions
    python -m benchmarks.linear --memory --sizes 1024x768x50257   # memory alone, on any device
    python -m benchmarks.linear --read linear.json --plot memory.png

A size is POSITIONSxFEATURESxCLASSES. Forward and backward, gradients of hidden states and weights;
the floor is the three matrix products alone, in one piece, with the classes padded to a multiple of
64 as products want them. The record is written anew after every size; for 8192 positions it has the
kernels of linear PENEX by the time that they take.
"""

import argparse
import importlib
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as torch_functional

import penex
from benchmarks._main import run
from benchmarks.linear_record import FLOOR, OURS, Record, fastest, named, plot, table
from penex.kernels import linear as linear_kernels
from penex.lab.bench import timings
from penex.lab.ground import environment
from penex.lab.ground.errors import LabError

LAYERS = ((768, 50257), (2304, 256000), (4096, 128256))  # GPT-2's, Gemma 2's, Llama 3's
POSITIONS, QUICK = (2048, 8192, 32768), 8192
SMALL = (512, 256, 4096)  # where float64 is affordable
ALPHA = 0.1
_PROFILED, _SHOWN = 3, 14  # calls, kernels

Sized = tuple[int, int, int]
Timed = Callable[[Tensor, Tensor, Tensor], Tensor]


class Contestant(NamedTuple):
    """What is timed.

    Attributes:
        loss: of hidden states, weights and targets.
        is_penex: which of the two losses it is.
    """

    loss: Timed
    is_penex: bool

    def backward(self, h: Tensor, w: Tensor, y: Tensor) -> Tensor:
        """The value, with gradients in .grad."""
        h.grad = w.grad = None
        value = self.loss(h, w, y)
        value.backward()  # type: ignore[no-untyped-call]
        return value.detach()


def rivals(device: torch.device) -> dict[str, Contestant]:
    """Cross-entropy as it can be had here, and PENEX on stored logits."""
    found = {"cross-entropy on logits": Contestant(_cross_entropy, False)}
    theirs = getattr(torch_functional, "linear_cross_entropy", None)
    if theirs is not None:
        found["torch linear_cross_entropy"] = Contestant(theirs, False)
        module = "torch.nn.modules.linear_cross_entropy_options"
        if importlib.util.find_spec(module):
            chunks = importlib.import_module(module).LinearCrossEntropyOptions()
            found["torch linear_cross_entropy, chunked"] = Contestant(
                lambda h, w, y: theirs(h, w, y, options=chunks), False
            )
    if device.type == "cuda" and importlib.util.find_spec("liger_kernel"):
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy as liger

        found["Liger"] = Contestant(lambda h, w, y: _first(liger(h, w, y)), False)
    if device.type == "cuda" and importlib.util.find_spec("cut_cross_entropy"):
        from cut_cross_entropy import linear_cross_entropy as cut

        found["cut-cross-entropy"] = Contestant(lambda h, w, y: _first(cut(h, w, y)), False)
    found["PENEX on logits"] = Contestant(_on_logits(device), True)
    return found


def ours(device: torch.device, *, every: bool) -> dict[str, Contestant]:
    """Linear PENEX, and that with other chunks."""
    found = {OURS: Contestant(_linear(device), True)}
    if not every:
        return found
    for chunk in (4096, 16384, 32768):
        found[f"{OURS}, chunks of {chunk}"] = Contestant(_linear(device, chunk), True)
    return found


def _cross_entropy(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return torch_functional.cross_entropy(torch_functional.linear(h, w), y)


def _on_logits(device: torch.device) -> Timed:
    loss = penex.PENEX(ALPHA).to(device)
    return lambda h, w, y: loss(torch_functional.linear(h, w), y)


def _linear(device: torch.device, chunk: int | None = None) -> Timed:
    loss = penex.PENEX(ALPHA).to(device)
    return lambda h, w, y: loss.linear(h, w, y, chunk=chunk)


def _first(found: Tensor | tuple[Tensor, ...]) -> Tensor:
    return found if isinstance(found, Tensor) else found[0]


def drawn(size: Sized, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states and weights that make logits of size 1, and targets."""
    positions, width, classes = size
    generator = torch.Generator(device).manual_seed(0)
    h = torch.randn(positions, width, device=device, generator=generator)
    w = torch.randn(classes, width, device=device, generator=generator, dtype=dtype)
    y = torch.randint(classes, (positions,), device=device, generator=generator)
    return h.to(dtype).requires_grad_(), w.mul_(width**-0.5).requires_grad_(), y


def products(h: Tensor, w: Tensor) -> Callable[[], None]:
    """The three products alone, written to memory that is there already."""
    classes = -(-len(w) // 64) * 64
    rows = torch_functional.pad(w.detach(), (0, 0, 0, classes - len(w)))
    h, logits = h.detach(), h.new_empty(len(h), classes)
    d_hidden, d_weight = torch.empty_like(h), torch.empty_like(rows)

    def three() -> None:
        torch.mm(h, rows.t(), out=logits)
        torch.mm(logits, rows, out=d_hidden)
        torch.mm(logits.t(), h, out=d_weight)

    return three


def errors(contestants: dict[str, Contestant], device: torch.device, dtype: torch.dtype) -> Record:
    """How far value and gradients are from float64, by the norm, at a small size."""
    h, w, y = drawn(SMALL, device, dtype)
    exact: dict[bool, list[Tensor]] = {}
    wide_h, wide_w = (one.detach().double().requires_grad_() for one in (h, w))
    for is_penex, loss in ((False, _cross_entropy), (True, _on_logits(device))):
        value = Contestant(loss, is_penex).backward(wide_h, wide_w, y)
        exact[is_penex] = [value, *_gradients(wide_h, wide_w)]
    found: Record = {}
    for name, one in contestants.items():
        try:
            seen = [one.backward(h, w, y), *_gradients(h, w)]
        except Exception as error:  # a compiler or a driver may fail in all kinds of ways
            found[name] = _said(error)
            continue
        pairs = zip(seen, exact[one.is_penex], strict=True)
        numbers = [((a.double() - b).norm() / b.norm()).item() for a, b in pairs]
        found[name] = dict(zip(("value", "hidden", "weight"), numbers, strict=True))
    return found


def _gradients(h: Tensor, w: Tensor) -> list[Tensor]:
    assert h.grad is not None
    assert w.grad is not None
    return [h.grad, w.grad]


def peak(call: Callable[[], object], device: torch.device) -> float | None:
    """Bytes that a call needs beside what is there, at most; None where nobody counts them."""
    if device.type == "cpu":
        return _counted(call)
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    call()
    return torch.cuda.max_memory_allocated(device) - before


def _counted(call: Callable[[], object]) -> float:
    """The most bytes that a call's tensors had at once, by each one's coming and going."""
    cpu = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[cpu], profile_memory=True) as watched:
        call()
    now = most = 0
    assert watched.profiler is not None
    assert watched.profiler.kineto_results is not None
    for event in watched.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def measure(
    size: Sized, contestants: dict[str, Contestant], device: torch.device, dtype: torch.dtype,
    seconds: float | None, tell: Callable[[str], None],
) -> list[Record]:  # fmt: skip
    """The rows of one size; without times if no seconds are given for them."""
    h, w, y = drawn(size, device, dtype)
    calls: dict[str, Callable[[], object]] = {}
    rows: list[Record] = []
    for name, one in contestants.items():
        call = _call(one, h, w, y)
        try:
            call()  # compiles, and takes what it keeps
            h.grad = w.grad = None
            extra = peak(call, device)
        except Exception as error:
            tell(f"  {name}: {_said(error)}")
            rows.append({"size": size, "name": name, "error": _said(error)})
            h.grad = w.grad = None
            continue
        calls[name] = call
        rows.append({"size": size, "name": name, "peak": extra})
        h.grad = w.grad = None
    if seconds is None:
        return rows
    calls[FLOOR] = products(h, w)
    rows.append({"size": size, "name": FLOOR})
    times = timings.take_turns(calls, seconds, device)
    for row in rows:
        if row["name"] in times:
            seen = times[row["name"]]
            row["seconds"] = statistics.median(seen)
            row["quartiles"] = statistics.quantiles(seen, n=4)[::2]
            # Turn by turn: a GPU's clock falls and rises by a tenth meanwhile.
            pairs = zip(seen, times[FLOOR], strict=True)
            row["ratio"] = statistics.median(time / floor for time, floor in pairs)
            tell(f"  {row['name']:44} {row['seconds'] * 1e3:9.3f} ms  {row['ratio']:.3f}")
    return rows


def profile(size: Sized, one: Contestant, device: torch.device, dtype: torch.dtype) -> list[Record]:
    """The kernels of a pass by the time that they take: milliseconds, and how many."""
    h, w, y = drawn(size, device, dtype)
    one.backward(h, w, y)
    cuda = device.type == "cuda"
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if cuda else activity.CPU]) as watched:
        for _ in range(_PROFILED):
            one.backward(h, w, y)
        if cuda:
            torch.cuda.synchronize(device)
    found = [
        {
            "kernel": event.key,
            "milliseconds": (event.self_device_time_total if cuda else event.self_cpu_time_total)
            / (1e3 * _PROFILED),
            "calls": event.count / _PROFILED,
        }
        for event in watched.key_averages()
    ]
    return sorted(found, key=lambda kernel: -kernel["milliseconds"])[:_SHOWN]


def _call(one: Contestant, h: Tensor, w: Tensor, y: Tensor) -> Callable[[], object]:
    return lambda: one.backward(h, w, y)


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


def _sized(text: str) -> Sized:
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise LabError(f"A size is POSITIONSxFEATURESxCLASSES, like 64x16x300; got {text!r}.")
    positions, width, classes = map(int, parts)
    return positions, width, classes


def main() -> None:
    """Measure and print, or draw what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="*", default=[])
    parser.add_argument("--quick", action="store_true", help="8192 positions alone")
    parser.add_argument("--seconds", type=float, default=0.4, help="for each loss and size")
    parser.add_argument("--memory", action="store_true", help="no times, errors and kernels")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--read", type=Path, help="a record to draw, instead of measuring")
    parser.add_argument("--plot", type=Path, help="where to draw the memory")
    options = parser.parse_args()
    record = json.loads(options.read.read_text()) if options.read else _measured(options)
    print(table(record))
    print(*fastest(record), sep="\n")
    if options.plot:
        plot(record, options.plot)


def _measured(options: argparse.Namespace) -> Record:
    device = environment.device_of(options.device)
    cuda = device.type == "cuda"
    positions = (QUICK,) if options.quick else POSITIONS
    sizes = [_sized(name) for name in options.sizes]
    if not sizes:
        sizes = [(count, *layer) for count in positions for layer in LAYERS]
    if not sizes[0] or (not cuda and not options.sizes):
        raise LabError("The usual sizes are for a GPU: name smaller --sizes, like 512x64x8192.")
    dtype = torch.bfloat16 if cuda else torch.float32

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def contestants(every: bool) -> dict[str, Contestant]:
        return {**rivals(device), **ours(device, every=every)}

    facts = {**environment.describe(device), "dtype": str(dtype).removeprefix("torch.")}
    # Whether this torch adds a product of bfloat16 to float32 in one call; else it is stored first.
    facts["adds_wide"] = linear_kernels._adds_wide(device)
    tell(f"{facts['device']}, torch {facts['torch']}, {facts['dtype']}")
    tell(f"a product is added to float32 in one call: {facts['adds_wide']}")
    record: Record = {"format": 1, "environment": facts, "rows": [], "kernels": {}}
    record["errors"] = {} if options.memory else errors(contestants(True), device, dtype)
    seconds = None if options.memory else options.seconds
    for size in sizes:
        tell(named(size))
        every = not options.memory and (bool(options.sizes) or size[0] == QUICK)
        record["rows"] += measure(size, contestants(every), device, dtype, seconds, tell)
        if every:
            seen = profile(size, contestants(False)[OURS], device, dtype)
            record["kernels"][named(size)] = seen
            for kernel in seen:
                took = f"{kernel['milliseconds']:9.3f} ms  {kernel['calls']:5.1f} times"
                tell(f"    {took}  {kernel['kernel'][:90]}")
        if options.write:
            options.write.write_text(json.dumps(record, indent=1) + "\n")
    return record


if __name__ == "__main__":
    run(main)
