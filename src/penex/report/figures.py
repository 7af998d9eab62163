"""Figures in the paper's look: curves, the table as a picture, training sizes."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from penex import registry
from penex.lab import files
from penex.report.results import METRICS, Metric, Results, Row
from penex.report.statistics import mean_and_spread

# Safe for colour-blind readers (Okabe and Ito's palette and two greys); the same everywhere.
_PALETTE = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C6D1F", "#F0C419",
    "#000000", "#7F7F7F", "#5B4A9E", "#8A1C1C",
)  # fmt: skip
_COLOURS = dict(zip(registry.LOSSES, _PALETTE, strict=True))
_DASHES = ("-", "--", ":", "-.")
_SHOWN = METRICS[:4]
_NAMES = {"curves", "summary", "train_size"}
_KINDS = ("png", "svg")

Figure = Any  # matplotlib is imported when a figure is drawn


def colour(loss: str) -> str:
    """The colour of a loss, in every figure."""
    return _COLOURS.get(loss, "#7F7F7F")


def write_all(results: Results) -> list[Path]:
    """Draw what there is to draw as PNG and SVG beside the comparison; the files."""
    drawings: list[tuple[str, Callable[[Results], Figure]]] = [
        ("curves", curves),
        ("summary", summary),
    ]
    if len(results.train_sizes) > 1:
        drawings.append(("train_size", train_size))
    for name in _NAMES - {name for name, _ in drawings}:  # of an earlier comparison
        for kind in _KINDS:
            (results.folder / f"{name}.{kind}").unlink(missing_ok=True)
    written = []
    for name, draw in drawings:
        written += drawn(results.folder, name, lambda draw=draw: draw(results))  # type: ignore[misc]
    return written


def drawn(folder: Path, name: str, draw: Callable[[], Figure]) -> list[Path]:
    """Draw a figure in our style and write it as PNG and SVG; the files."""
    written = []
    with _style():
        figure = draw()
        for kind in _KINDS:
            buffer = io.BytesIO()
            options = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": 150}
            figure.savefig(buffer, format=kind, **options)
            path = folder / f"{name}.{kind}"
            files.write(path, buffer.getvalue())
            written.append(path)
    return written


def _style() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.style
    import scienceplots  # noqa: F401  (it registers the styles)

    changes = {"svg.hashsalt": "penex", "font.size": 8, "axes.titlesize": 9, "legend.fontsize": 8}
    return matplotlib.style.context(["science", "no-latex", changes])


def _figure(columns: int, rows: int, width: float, height: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _dash(rows: list[Row], row: Row) -> str:
    """Rows of one loss with different arguments share its colour and differ in their dashes."""
    same = [r.label for r in rows if r.loss == row.loss]
    return _DASHES[same.index(row.label) % len(_DASHES)]


def curves(results: Results) -> Figure:
    """Validation metrics over the epochs: seeds as thin lines, their mean as a thick one."""
    sizes = results.train_sizes
    figure, axes = _figure(len(_SHOWN), len(sizes), 2.6, 2.2)
    for line_of_axes, size in zip(axes, sizes, strict=True):
        rows = results.at(size)
        histories = {
            row.label: [record.metrics() for record in row.records.values()] for row in rows
        }
        for axis, metric in zip(line_of_axes, _SHOWN, strict=True):
            _curve_panel(axis, rows, histories, metric)
            axis.set_title(metric.title + (f", {size} examples" if len(sizes) > 1 else ""))
    _legend(figure, axes[0, 0])
    figure.suptitle(f"{results.task}: validation set after each epoch")
    return figure


def _curve_panel(
    axis: Any, rows: list[Row], histories: dict[str, list[list[dict[str, Any]]]], metric: Metric
) -> None:
    for row in rows:
        lines = [
            np.array([line["validation"][metric.name] for line in history], dtype=float)
            for history in histories[row.label]
            if history
        ]
        epochs = max(
            ([line["epoch"] for line in h] for h in histories[row.label]), key=len, default=[]
        )
        for values in lines:
            axis.plot(epochs[: len(values)], values, color=colour(row.loss), lw=0.4, alpha=0.35)
        longest = max((len(values) for values in lines), default=0)
        padded = np.full((max(len(lines), 1), longest), np.nan)
        for k, values in enumerate(lines):
            padded[k, : len(values)] = values
        if longest:
            # A run that diverged has no later epochs: the mean ends where the first one ends.
            mean = padded.mean(axis=0)
            axis.plot(
                epochs[:longest],
                mean,
                color=colour(row.loss),
                ls=_dash(rows, row),
                lw=1.3,
                label=row.title,
            )
    axis.set_xlabel("epoch")
    axis.set_ylabel(metric.direction)
    _zoom(axis, metric)


def _zoom(axis: Any, metric: Metric) -> None:
    """Show the later epochs well: the first ones, far off, may leave the picture."""
    ends = np.concatenate(
        [
            np.asarray(line.get_ydata(), dtype=float)[len(line.get_ydata()) // 5 :]
            for line in axis.lines
        ]
        or [np.array([])]
    )
    ends = ends[np.isfinite(ends)]
    if len(ends):
        low, high = ends.min(), ends.max()
        room = 0.08 * (high - low) or 0.01
        axis.set_ylim(low - room, high + room)


def summary(results: Results) -> Figure:
    """The table as a picture: every seed a dot, the mean a bar, by loss and metric."""
    sizes = results.train_sizes
    count = max(len(results.at(size)) for size in sizes)
    figure, axes = _figure(len(_SHOWN), len(sizes), 2.3, 0.8 + 0.24 * count)
    for line_of_axes, size in zip(axes, sizes, strict=True):
        rows = results.at(size)
        for k, (axis, metric) in enumerate(zip(line_of_axes, _SHOWN, strict=True)):
            for place, row in enumerate(rows):
                values = list(row.values(metric.name).values())
                axis.plot(
                    values, [place] * len(values), "o", ms=3, alpha=0.6, color=colour(row.loss)
                )
                if values:
                    mean, _ = mean_and_spread(values)
                    axis.plot([mean], [place], "|", ms=13, mew=1.8, color=colour(row.loss))
            titles = [row.title for row in rows] if k == 0 else [""] * len(rows)
            axis.set_yticks(range(len(rows)), titles)
            axis.set_ylim(len(rows) - 0.5, -0.5)
            axis.tick_params(axis="y", which="both", left=False, right=False)
            axis.set_title(metric.title + (f", {size} examples" if len(sizes) > 1 else ""))
            axis.set_xlabel(metric.direction)
    figure.suptitle(f"{results.task}: test set; a dot is a seed, a bar the mean over seeds")
    return figure


def train_size(results: Results) -> Figure:
    """Test metrics against the number of training examples, mean ± standard deviation."""
    figure, axes = _figure(len(_SHOWN), 1, 2.6, 2.4)
    labels = list(dict.fromkeys(row.label for row in results.rows))
    for axis, metric in zip(axes[0], _SHOWN, strict=True):
        for label in labels:
            rows = sorted(
                (row for row in results.rows if row.label == label and row.values(metric.name)),
                key=lambda row: row.train_size,
            )
            if not rows:
                continue
            pairs = [mean_and_spread(list(row.values(metric.name).values())) for row in rows]
            means, spreads = np.array(pairs).T
            shift = 1.025 ** (labels.index(label) - (len(labels) - 1) / 2)  # bars side by side
            axis.errorbar(
                [row.train_size * shift for row in rows],
                means,
                np.nan_to_num(spreads),
                color=colour(rows[0].loss),
                ls=_dash(results.at(rows[0].train_size), rows[0]),
                marker="o",
                ms=3,
                lw=1.2,
                capsize=2,
                label=rows[0].title,
            )
        axis.set_xscale("log")
        axis.set_xticks(results.train_sizes, [str(size) for size in results.train_sizes])
        axis.minorticks_off()
        axis.set_title(metric.title)
        axis.set_xlabel("training examples")
        axis.set_ylabel(metric.direction)
    _legend(figure, axes[0, 0])
    figure.suptitle(
        f"{results.task}: test set by training size, mean ± standard deviation over seeds"
    )
    return figure


def _legend(figure: Figure, axis: Any) -> None:
    handles, titles = axis.get_legend_handles_labels()
    figure.legend(handles, titles, loc="outside lower center", ncols=min(len(titles), 6) or 1)
