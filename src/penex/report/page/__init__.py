"""The page: one self-contained HTML file that shows what happened."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import penex
from penex import registry
from penex.lab import files
from penex.report import figures, tables
from penex.report.page import blocks, charts
from penex.report.results import METRICS, Results, Row
from penex.report.statistics import mean_and_spread
from penex.report.words import caveats, findings, treatment

NAME = "page.html"
_HERE = Path(__file__).parent

# Colours that are too dark for a dark page, and what stands for them there.
_ON_DARK = {
    "#0072B2": "#7b93ff",
    "#000000": "#ffffff",
    "#5B4A9E": "#a99be8",
    "#8A1C1C": "#e08a8a",
    "#8C6D1F": "#c9a648",
    "#D55E00": "#f07d26",
    "#7F7F7F": "#a8a8a8",
}


def write(results: Results, second: Results | None = None, path: Path | None = None) -> Path:
    """Build the page of a comparison, or of two, and write it beside the first."""
    path = path or results.folder / NAME
    files.write_text(path, build(results, second))
    return path


def build(results: Results, second: Results | None = None) -> str:
    """The page as text; every figure and script is in it."""
    context = _context(results, second)
    for figure in _all_figures(context):
        figure["svg"] = safe(figure["svg"])
    context["legend"] = safe(context["legend"])
    return render("page.html", context)


def render(template: str, context: dict[str, Any], folder: Path = _HERE) -> str:
    """A page from its template in a folder, with our style and script in it."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, _HERE]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = safe((_HERE / "style.css").read_text() + _loss_colours())
    script = safe((_HERE / "script.js").read_text())
    return environment.get_template(template).render(context, style=style, script=script)


def safe(text: str) -> str:
    """Text that is HTML already, and ours."""
    from markupsafe import Markup

    return Markup(text)


def _all_figures(context: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in ("sizes", "curves", "reliability", "margins", "rho"):
        yield from context[name]


def _context(results: Results, second: Results | None) -> dict[str, Any]:
    both = [results] if second is None else [results, second]
    rows = [row for result in both for row in result.at(result.train_sizes[-1])]
    unique = {row.label: row for row in rows}
    several = len(both) > 1
    context: dict[str, Any] = {
        "version": penex.__version__,
        "title": f"Which loss wins on {' and '.join(dict.fromkeys(r.task for r in both))}?",
        "asked": " ".join(_asked(result) for result in both),
        "said": [
            (f"{result.folder.name}: {text}" if several else text)
            for result in both
            for text in findings(result)
        ],
        "caveats": list(dict.fromkeys(text for result in both for text in caveats(result))),
        "metrics": METRICS,
        "tables": [block for result in both for block in _tables(result, several)],
        "difference": blocks.difference(results, second) if second is not None else None,
        "sizes": [
            {"title": blocks.named(metric.title, result, several), "svg": svg}
            for result in both
            if len(result.train_sizes) > 1
            for metric in METRICS[:4]
            if (svg := charts.by_size(result, metric))
        ],
        "curves": [figure for result in both for figure in _curves(result, several)],
        "curve_sizes": sorted({size for result in both for size in result.train_sizes}),
        "reliability": _per_row(both, charts.reliability),
        "margins": _per_row(both, charts.margins),
        "rho": [
            {"title": blocks.named(f"{size} training examples", result, several), "svg": svg}
            for result in both
            for size in result.train_sizes
            if (svg := charts.penalty(result.at(size)))
        ],
        "examples": blocks.examples(results) if second is None else None,
        "command": results.command if second is None else "",
        "setup": [block for result in both for block in blocks.setup(result, several)],
        "folder": ", ".join(result.folder.name for result in both),
        "legend": _legend(list(unique.values())),
    }
    context["sections"] = list(_sections(context))
    return context


def _sections(context: dict[str, Any]) -> Iterator[dict[str, str]]:
    yield {"id": "result", "title": "What came out"}
    yield {"id": "table", "title": "Table"}
    for name, title in (
        ("difference", "The two compared"),
        ("sizes", "How much data?"),
        ("curves", "Learning curves"),
    ):
        if context[name]:
            yield {"id": name, "title": title}
    yield {"id": "calibration", "title": "Calibration"}
    yield {"id": "margins", "title": "Margins"}
    for name, title in (("rho", "ρ over time"), ("examples", "Disagreements")):
        if context[name]:
            yield {"id": name, "title": title}
    yield {"id": "setup", "title": "How it was made"}


def _asked(results: Results) -> str:
    losses = len({row.label for row in results.rows})
    sizes = " / ".join(str(size) for size in results.train_sizes)
    noun = "loss was" if losses == 1 else "losses were"
    seeds = "one seed" if results.seeds == 1 else f"{results.seeds} seeds"
    config = next((record.config() for record in results.records()), None)
    text = f"{losses} {noun} trained on {results.task} with {sizes} training examples and {seeds}."
    if config:
        recipe, treated = config["recipe"], treatment(config)
        text += f" {treated}" if treated else ""
        text += (
            f" Everything else was the same: {recipe['epochs']} epochs, {recipe['optimizer']}, "
            f"learning rate {recipe['lr']:g}, batches of {recipe['batch_size']}."
        )
    return text


def _tables(results: Results, several: bool) -> Iterator[dict[str, Any]]:
    for size in results.train_sizes:
        rows = results.at(size)
        best = tables.winners(rows)
        yield {
            "caption": blocks.named(tables.caption(results, size), results, several),
            "rows": [
                {
                    "name": tables.name(row),
                    "place": place,
                    "colour": charts.colour(row),
                    "cells": [
                        {
                            "text": tables.cell(row, metric),
                            "value": _sortable(row, metric.name),
                            "best": (row.label, metric.name) in best,
                            "spread": _spread(row, metric.name),
                        }
                        for metric in METRICS
                    ],
                }
                for place, row in enumerate(rows)
            ],
        }


def _sortable(row: Row, metric: str) -> str:
    mean, _ = mean_and_spread(list(row.values(metric).values()))
    return "" if math.isnan(mean) or row.broken(metric) else f"{mean:.8g}"


def _spread(row: Row, metric: str) -> str:
    spreads = list(row.spreads(metric).values())
    return f"{np.mean(spreads):.4f}" if spreads and not row.broken(metric) else ""


def _curves(results: Results, several: bool) -> Iterator[dict[str, Any]]:
    for size in results.train_sizes:
        for metric in METRICS:
            svg = charts.learning_curves(results.at(size), metric)
            if svg:
                title = f"{metric.title}, {size} training examples"
                yield {
                    "metric": metric.name,
                    "size": size,
                    "title": blocks.named(title, results, several),
                    "svg": svg,
                }


def _per_row(both: list[Results], draw: Any) -> list[dict[str, str]]:
    several = len(both) > 1
    return [
        {"title": blocks.named(_sized(row, result), result, several), "svg": svg}
        for result in both
        for row in result.rows
        if (svg := draw(row))
    ]


def _sized(row: Row, results: Results) -> str:
    return f"{row.title}, {row.train_size}" if len(results.train_sizes) > 1 else row.title


def _legend(rows: list[Row]) -> str:
    from markupsafe import escape

    items = "".join(
        f'<li><span class="swatch" style="background:{charts.colour(row)}"></span>'
        f"{escape(row.title)}</li>"
        for row in rows
    )
    return f'<ul class="legend" aria-label="Colours">{items}</ul>'


def _loss_colours() -> str:
    """The colour of each loss, the same as in the figures; lighter on a dark page if need be."""
    light, dark = [], []
    for name in registry.LOSSES:
        tone = figures.colour(name)
        variable = f"--loss-{name.replace('_', '-')}"
        light.append(f"{variable}:{tone};")
        dark.append(f"{variable}:{_ON_DARK.get(tone, tone)};")
    return (
        f":root{{{''.join(light)}}}"
        f"@media (prefers-color-scheme: dark){{:root{{{''.join(dark)}}}}}"
        f"@media print{{:root{{{''.join(light)}}}}}"
    )
