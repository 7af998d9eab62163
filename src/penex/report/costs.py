"""What losses cost, as text and as a picture."""

import itertools
import json
from pathlib import Path
from typing import Any

from penex import registry
from penex.lab.bench.timings import BASE, FORMAT, Row
from penex.lab.ground import files
from penex.report.figures import drawn

_GREYS = ("#606060", "#B0B0B0", "#909090", "#303030")
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")


def text(rows: list[Row]) -> str:
    """A table: median, the middle half of all times, and the ratio to cross-entropy.

    >>> row = {"size": "64x10", "pass": "forward", "loss": "focal", "seconds": 2e-6,
    ...        "quartiles": [1e-6, 3e-6], "ratio": 2.0, "floors": 4.0}
    >>> print(text([row]))  # doctest: +NORMALIZE_WHITESPACE
    64x10, forward
      focal     2.0 µs   1.0 to 3.0   2.00 x cross-entropy   4.00 x floor
    """
    lines: list[str] = []
    before = None
    for row in rows:
        head = f"{row['size']}, {row['pass']}"
        if head != before:
            lines += ["", head] if lines else [head]
            before = head
        low, high = row["quartiles"]
        spread = f"{_time(low)} to {_time(high)}"
        line = f"  {row['loss']:<28}{_time(row['seconds'], unit=True):>12}{spread:>20}"
        line += f"{row['ratio']:>8.2f} x cross-entropy"
        if "floors" in row:
            digits = 2 if row["floors"] < 10 else 1
            line += f"{row['floors']:>8.{digits}f} x floor"
        if "memory" in row:
            line += f"{row['memory']:>7.2f} x logits of memory"
        if "implementation" in row:
            line += f"  ({row['implementation']})"
        lines.append(line)
    return "\n".join(lines)


def _time(seconds: float, *, unit: bool = False) -> str:
    """Microseconds with as many digits as mean something."""
    value = seconds * 1e6
    shown = f"{value:.1f}" if value < 100 else f"{value:,.0f}"
    return f"{shown} µs" if unit else shown


def write(folder: Path, rows: list[Row], environment: dict[str, Any], command: str) -> list[Path]:
    """Write bench.json and the picture; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "bench.json"
    content = {"format": FORMAT, "command": command, "environment": environment, "rows": rows}
    files.write(record, (json.dumps(content, indent=1) + "\n").encode())
    return [record, *drawn(folder, "bench", lambda: figure(rows, environment))]


def figure(rows: list[Row], environment: dict[str, Any]) -> Any:
    """The ratio to cross-entropy of every loss, a panel for each pass, a group for each size."""
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(row["pass"] for row in rows if "floors" in row))
    losses = [name for name in dict.fromkeys(row["loss"] for row in rows) if name != BASE]
    colours = _colours(losses)
    canvas = Figure(figsize=(7.2, 0.6 + 2.2 * len(kinds)), layout="constrained")
    panels = canvas.subplots(len(kinds), 1, squeeze=False)[:, 0]
    for panel, kind in zip(panels, kinds, strict=True):
        here = [row for row in rows if row["pass"] == kind]
        sizes = list(dict.fromkeys(row["size"] for row in here))
        for k, name in enumerate(losses):
            mine = {row["size"]: row for row in here if row["loss"] == name}
            x = [sizes.index(size) + (k + 0.5) / len(losses) * 0.8 - 0.4 for size in mine]
            y = [row["ratio"] for row in mine.values()]
            base = [row["seconds"] / row["ratio"] for row in mine.values()]
            ends = [
                [abs(row["quartiles"][end] / b - value) for row, b, value in zip(
                    mine.values(), base, y, strict=True)]
                for end in (0, 1)
            ]  # fmt: skip
            style = {"fmt": _MARKS[k % len(_MARKS)], "color": colours[name]}
            size = 6 if name == registry.title(registry.SUBJECT) else 4
            panel.errorbar(x, y, yerr=ends, ms=size, lw=1, label=name, **style)
        panel.axhline(1, color="0.4", lw=0.8, ls="--")
        panel.set_yscale("log", base=2)
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.set_xticks(range(len(sizes)), sizes)
        panel.minorticks_off()
        panel.set_ylabel(f"time / that of {BASE}")
        panel.set_title(f"{kind}, {environment['device']}")
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(handles, labels, ncols=4, loc="outside lower center")
    return canvas


def _colours(names: list[str]) -> dict[str, str]:
    """Losses as everywhere, by name or title; what else was timed in greys."""
    known = {title: e.name for e in registry.LOSSES.values() for title in (e.name, e.title)}
    greys = itertools.cycle(_GREYS)
    return {name: registry.colour(known[name]) if name in known else next(greys) for name in names}
