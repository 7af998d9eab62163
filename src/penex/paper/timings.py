"""The times of the paper's losses at its size, from the records of `penex bench` or taken now."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from penex.lab import bench
from penex.lab.bench.timings import FORMAT
from penex.lab.ground import environment, files
from penex.lab.ground.errors import RecordError
from penex.lab.ground.sentences import visible
from penex.report import costs
from penex.report.plain import publishable

SIZE = "64x10"  # the paper's logits
PASSES = ("forward", "forward+backward")


@dataclass(frozen=True)
class Bench:
    """The timings of one machine at the paper's size.

    Attributes:
        machine: its name, with the dtype of the logits.
        source: the file.
        command: that made it; empty if the file does not say.
        rows: by pass and loss.
    """

    machine: str
    source: str
    command: str
    rows: Mapping[tuple[str, str], Mapping[str, Any]]

    def of(self, loss: str) -> Mapping[str, Any] | None:
        """The forward pass of a loss, if it was timed."""
        return self.rows.get((PASSES[0], loss))


def benches(out: Path) -> list[Bench]:
    """The records of `penex bench` in a folder, one a machine; damaged ones are one sentence."""
    places = [*sorted(out.glob("bench*.json")), out / "bench" / "bench.json"]
    found = [read_bench(path) for path in places if path.exists()]
    return [one for one in found if one.rows]


def read_bench(path: Path) -> Bench:
    """A record of `penex bench`."""
    try:
        content = files.loads(path.read_bytes())
        facts = content["environment"]
        rows: dict[tuple[str, str], dict[str, Any]] = {
            (str(row["pass"]), str(row["loss"])): {
                "seconds": float(row["seconds"]),
                "ratio": float(row["ratio"]),
                "quartiles": [float(edge) for edge in row["quartiles"]],
            }
            for row in content["rows"]
            if row["size"] == SIZE and row["pass"] in PASSES
        }
        if content["format"] != FORMAT or not all(len(r["quartiles"]) == 2 for r in rows.values()):
            raise ValueError("it is of another version")
        machine = f"{facts['device']}, {facts['dtype']}, torch {facts['torch']}"
        command = str(content.get("command", ""))
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise RecordError(
            f"{path} is no record of penex bench ({type(error).__name__}: {error}). It is left as "
            "it is; penex reproduce runtime makes a new one."
        ) from error
    return Bench(visible(machine), path.name, publishable(command), rows)


def time_once(out: Path, device: str, command: str, *, quick: bool = False) -> None:
    """Time the losses on this machine at the paper's size, unless that is recorded already.

    Args:
        out: the folder of all tasks.
        device: by its name.
        command: how the user asked for it, for the record.
        quick: True to take a moment only.
    """
    where = environment.device_of(device)
    name = environment.device_name(where)
    if any(one.machine.startswith(f"{name}, ") for one in benches(out)):
        return
    kind = "bfloat16" if where.type == "cuda" else "float32"
    with bench.threads(1):
        facts = {**environment.describe(where), "dtype": kind}
        sizes = [bench.Size.parse(SIZE)]
        seconds = 0.02 if quick else 1.0
        rows = bench.measure(
            sizes,
            where,
            getattr(torch, kind),
            seconds,
            compiled=False,
            tell=lambda line: print(line, file=sys.stderr),
        )
    costs.write(out / "bench", rows, facts, command)
