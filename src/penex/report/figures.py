"""Figures in the paper's look: curves, the table as a picture, training sizes."""

import io
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penex import registry
from penex.lab.ground import files
from penex.lab.ground.sentences import count
from penex.metrics import METRICS
from penex.report import series, standing
from penex.report.drawing import PLAIN, Bar, Dot, Line, Panel, untoned, with_few_seeds
from penex.report.results import Results

_GREY = "#7F7F7F"
_DASHES = ("-", "--", ":", "-.")
_WIDTHS = {
    "subject": 2.2,
    "mean": 1.3,
    "seed": 0.4,
    "guide": 0.8,
    "bound": 0.8,
    "interval": 3.5,
}
_FAINT = {"seed": 0.35, "interval": 0.35}
_NAMES = {"curves", "summary", "train_size"}
_KINDS = ("png", "svg")
_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"dpi": 150},
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
}

Figure = Any  # matplotlib is imported when a figure is drawn


def write_all(results: Results, folder: Path) -> list[Path]:
    """Draw what there is to draw of a comparison as PNG and SVG into a folder; the files."""
    drawings: dict[str, Callable[[], Figure]] = {
        "curves": lambda: curves(results),
        "summary": lambda: summary(results),
    }
    if len(results.train_sizes) > 1:
        drawings["train_size"] = lambda: train_size(results)
    for name in _NAMES - drawings.keys():  # of an earlier comparison
        for kind in _KINDS:
            (folder / f"{name}.{kind}").unlink(missing_ok=True)
    return [path for name, draw in drawings.items() for path in drawn(folder, name, draw)]


def drawn(
    folder: Path, name: str, draw: Callable[[], Figure], kinds: Sequence[str] = _KINDS
) -> list[Path]:
    """Draw a figure in our style and write it in some forms, of png, svg and pdf; the files."""
    written = []
    with style():
        figure = draw()
        figure.draw_without_rendering()  # once: each form would find the same places again
        figure.set_layout_engine(None)
        for kind in kinds:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, **_OPTIONS[kind])
            path = folder / f"{name}.{kind}"
            files.write(path, buffer.getvalue())
            written.append(path)
    return written


def style() -> Any:
    """The paper's look, for the time of a drawing."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.style
    import scienceplots  # noqa: F401  (it registers the styles)

    changes = {
        "svg.hashsalt": "penex",
        "savefig.bbox": None,  # the style's looks for the edges, which the layout has found
        "axes.formatter.use_mathtext": False,  # a number is text; parsing formulas takes longest
        "font.size": 8,
        "axes.titlesize": 9,
        "legend.fontsize": 8,
    }
    return matplotlib.style.context(["science", "no-latex", changes])


def draw(axis: Any, panel: Panel) -> None:
    """Draw a panel into a part of a figure."""
    for mark in panel.marks:
        ink = colour(mark.ink)
        if isinstance(mark, Line):
            style = {"lw": _WIDTHS[mark.kind], "ls": _DASHES[mark.dash]}
            alpha = _FAINT.get(mark.kind, 1.0)
            x, y = zip(*mark.points, strict=True)
            axis.plot(x, y, color=ink, alpha=alpha, label=mark.name or None, **style)
        elif isinstance(mark, Dot):
            style = {"ms": mark.size, "mew": 0, "clip_on": not panel.holds(mark.point)}
            axis.plot(*mark.point, "o", alpha=0.7, color=ink, **style)
        elif isinstance(mark, Bar):
            (left, low), (right, high) = mark.low, mark.high
            axis.bar(left, high - low, right - left, low, color=ink, align="edge")
        else:
            middle, half = (mark.low + mark.high) / 2, (mark.high - mark.low) / 2
            axis.errorbar(mark.x, middle, half, color=ink, capsize=2, lw=1.2)
    if panel.log_x:
        axis.set_xscale("log")
    if panel.x_ticks:
        axis.set_xticks(panel.x_ticks, [f"{tick:g}" for tick in panel.x_ticks])
        axis.minorticks_off()
    axis.set(xlim=panel.x, ylim=panel.y, xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.y_names:
        axis.set_yticks(range(len(panel.y_names)), panel.y_names)
        axis.tick_params(axis="y", which="both", left=False, right=False)


def colour(ink: str) -> str:
    """An ink as #RRGGBB: a tone of a loss's colour is mixed with black.

    >>> colour("penex"), colour("penex~1"), colour("#123456")
    ('#D55E00', '#803800', '#123456')
    """
    if ink.startswith("#"):
        return ink
    loss, share = untoned(ink)
    own = _GREY if loss in PLAIN else registry.colour(loss)
    if share == 1:
        return own
    return "#" + "".join(f"{round(share * int(own[k : k + 2], 16)):02X}" for k in (1, 3, 5))


def grid(lines: Sequence[Sequence[tuple[str, Panel | None]]], wide: float, high: float) -> Figure:
    """A figure of panels with titles, and one legend for the names of their lines."""
    from matplotlib.figure import Figure as Canvas

    columns, rows = max(len(line) for line in lines), len(lines)
    figure = Canvas(figsize=(wide * columns, high * rows), layout="constrained")
    names: dict[str, Any] = {}
    axes = figure.subplots(rows, columns, squeeze=False)
    for line, line_of_axes in zip(lines, axes, strict=True):
        for (title, panel), axis in zip(line, line_of_axes, strict=True):
            axis.set_title(title)
            if panel is not None:
                draw(axis, panel)
            handles, labels = axis.get_legend_handles_labels()
            names |= dict(zip(labels, handles, strict=True))
    if names:
        columns = min(len(names), 6)
        figure.legend(names.values(), names, loc="outside lower center", ncols=columns)
    return figure


def _by_size_and_metric(
    results: Results, panels: dict[tuple[int, str], Panel], wide: float, high: float
) -> Figure:
    several = len(results.train_sizes) > 1
    return grid(
        [
            [
                (
                    m.title + (f", {count(size, 'example')}" if several else ""),
                    panels.get((size, m.name)),
                )
                for m in METRICS.values()
                if m.drawn
            ]
            for size in results.train_sizes
        ],
        wide,
        high,
    )


def curves(results: Results) -> Figure:
    """Validation metrics over the epochs: seeds as thin lines, their mean as a thick one."""
    found = series.of(results).curves
    few = {key: with_few_seeds(panel) for key, panel in found.items()}
    figure = _by_size_and_metric(results, few, 2.6, 2.2)
    figure.suptitle(f"{results.task}: validation set after each epoch")
    return figure


def summary(results: Results) -> Figure:
    """The table as a picture: every seed a dot, and means with their distance to the best one."""
    rows = max(len(results.at(size)) for size in results.train_sizes)
    figure = _by_size_and_metric(results, series.of(results).seeds, 2.3, 0.8 + 0.24 * rows)
    for axis in figure.axes:
        if not axis.get_subplotspec().is_first_col():
            axis.set_yticklabels([])
    said = (f"{results.task}: test set. {standing.headline(results)}", standing.reading(results))
    lines = [line for text in said for line in textwrap.wrap(text, 130)]
    wide, high = figure.get_size_inches()
    figure.set_size_inches(wide, high + 0.16 * len(lines))
    figure.suptitle("\n".join(lines), fontsize=8)
    return figure


def train_size(results: Results) -> Figure:
    """Test metrics against the number of training examples, mean ± standard deviation."""
    found = series.of(results).by_size
    shown = [(m.title, found.get(m.name)) for m in METRICS.values() if m.drawn]
    figure = grid([shown], 2.6, 2.4)
    figure.suptitle(
        f"{results.task}: test set by training size, mean ± standard deviation over seeds"
    )
    return figure
