"""penex bench: what a loss costs on this machine."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from penex.cli import given
from penex.cli.options import hinted
from penex.lab.ground.errors import LabError
from penex.lab.ground.sentences import count


def bench(
    sizes: Annotated[tuple[str, ...], hinted("NxC [NxC ...]", "(default: what fits)")] = (),
    seconds: float = 1.0,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16", "auto"],
        hinted("auto|float32|bfloat16|float16", "(default: auto)"),
    ] = "auto",
    device: str = "auto",
    threads: int = 1,
    compiled: bool = False,
    step: bool = True,
    out: Path = Path("runs/bench"),
) -> None:
    """Time PENEX beside cross-entropy and the other losses, forward and backward.

    The losses take turns, and every figure is a ratio to torch's cross-entropy in the same run. The
    floor is two reads of the logits and a write, at the bandwidth of a copy. Nothing is trained.

    Args:
        sizes: rows x classes of the logits, like 64x10 4096x1000.
        seconds: how long to time each loss, size and pass.
        dtype: of the logits; auto is bfloat16 on a GPU and float32 elsewhere.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        threads: how many of the CPU to use.
        compiled: time torch.compile's cross-entropy too; its first call takes half a minute.
        step: time a whole training step of the paper's network too.
        out: the folder for bench.json and the picture.
    """
    import torch

    from penex.lab import bench as benching
    from penex.lab.ground import environment
    from penex.report import costs

    if not 0 < seconds <= 3600:
        raise LabError(f"--seconds must be above 0 and at most 3600; got {seconds:g}.")
    if not 1 <= threads <= environment.cores():
        raise LabError(f"--threads must be from 1 to {environment.cores()} here; got {threads}.")
    where = environment.device_of(device)
    chosen = [benching.Size.parse(text) for text in sizes or benching.SMALL]
    if not sizes and where.type == "cuda":
        chosen += [benching.Size.parse(text) for text in benching.LARGE]
    kind = ("bfloat16" if where.type == "cuda" else "float32") if dtype == "auto" else dtype
    with benching.threads(threads):
        facts = {**environment.describe(where), "dtype": kind}
        print(f"{facts['device']}, torch {facts['torch']}, {kind}, {count(threads, 'thread')}\n")
        rows = benching.measure(
            chosen,
            where,
            getattr(torch, kind),
            seconds,
            compiled=compiled,
            tell=lambda line: print(line, file=sys.stderr),
        )
        if step:
            print("a step of the paper's CNN", file=sys.stderr)
            rows += benching.training_steps(where, seconds)
    if not rows:
        raise LabError("There is not enough memory for any of these sizes.")
    print(costs.text(rows))
    written = costs.write(out, rows, facts, given.command_line())
    print(f"\nIn {out}: {', '.join(path.name for path in written)}.")
