"""What benchmarks.linear leaves, told: a table, sentences and a picture of the memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penex.lab.ground.errors import LabError

FLOOR, OURS = "three products", "linear PENEX"
_TICKS = [base * 10.0**power for power in range(-3, 3) for base in (1, 2, 5)]

Record = dict[str, Any]


def fastest(record: Record) -> list[str]:
    """For each size which of our ways is the fastest, in sentences."""
    lines = []
    for size in dict.fromkeys(tuple(row["size"]) for row in record["rows"]):
        mine = [
            row
            for row in record["rows"]
            if tuple(row["size"]) == size and row["name"].startswith(OURS) and "seconds" in row
        ]
        if mine:
            best = min(mine, key=lambda row: row["seconds"])
            lines.append(f"{named(size)}: {best['name']}, {best['ratio']:.3f} x the products")
    return lines


def table(record: Record) -> str:
    """The record as a table in Markdown."""
    lines = [
        "| size | loss | ms (middle half) | over the products | extra memory, GiB "
        "| error of value, dH, dW |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        if "seconds" in row:
            low, high = (1e3 * q for q in row["quartiles"])
            took = f"{1e3 * row['seconds']:.3f} ({low:.3f} to {high:.3f}) | {row['ratio']:.3f}"
        else:
            took = f"{row.get('error', '')} | "
        extra = row.get("peak")
        off = record["errors"].get(row["name"], {})
        shown = off if isinstance(off, str) else ", ".join(f"{e:.1e}" for e in off.values())
        memory = "" if extra is None else f"{extra / 2**30:.3f}"
        lines.append(f"| {named(row['size'])} | {row['name']} | {took} | {memory} | {shown} |")
    return "\n".join(lines)


def plot(record: Record, path: Path) -> None:
    """Draw the peak of extra memory over the number of positions, a panel for each layer."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in record["rows"] if row.get("peak")]
    if not rows:
        raise LabError("The record has no memory to draw.")
    layers = list(dict.fromkeys(tuple(row["size"][1:]) for row in rows))
    picture, axes = pyplot.subplots(
        1, len(layers), figsize=(4 * len(layers), 3.6), squeeze=False, layout="constrained"
    )
    names = [name for name in dict.fromkeys(row["name"] for row in rows) if f"{OURS}," not in name]
    for axis, layer in zip(axes[0], layers, strict=True):
        own = [r for r in rows if tuple(r["size"][1:]) == layer]
        for name in names:
            mine = [r for r in own if r["name"] == name]
            axis.plot(
                [r["size"][0] for r in mine], [r["peak"] / 2**30 for r in mine],
                marker="o", label=name, linewidth=2.5 if name == OURS else 1.2,
                linestyle="--" if name.startswith("torch") else "-",  # they may lie on each other
            )  # fmt: skip
        axis.set(
            title=f"{layer[0]} features, {layer[1]:,} classes", xlabel="positions",
            xscale="log", yscale="log",
        )  # fmt: skip
        counts = sorted({r["size"][0] for r in own})
        axis.set_xticks(counts, [f"{count:,}" for count in counts])
        low, high = axis.get_ylim()
        ticks = [tick for tick in _TICKS if low <= tick <= high]
        axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
    axes[0][0].set_ylabel("extra memory, GiB")
    handles, labels = axes[0][0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    picture.savefig(path, dpi=150)
    pyplot.close(picture)


def named(size: Sequence[int]) -> str:
    """A size as the command line has it."""
    return "x".join(map(str, size))
