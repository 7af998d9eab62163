"""The page: one self-contained HTML file that shows what happened."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import penex
from penex.lab.ground import files
from penex.lab.ground.sentences import count, listed
from penex.metrics import METRICS, Metric
from penex.report import leads, series, standing, tables, ways
from penex.report.drawing import Line, Panel, with_few_seeds
from penex.report.page import blocks
from penex.report.page.frame import render as render
from penex.report.page.frame import safe as safe
from penex.report.page.svg import key, svg
from penex.report.results import Results, Row
from penex.report.statistics import RULE, mean_and_spread
from penex.report.words import caveats, findings, treatment

NAME, STUDIES = "page.html", "tuning.html"


def write(path: Path, results: Results, second: Results | None = None) -> Path:
    """Build the page of a comparison, or of two, and write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, build(results, second, path.parent))
    return path


def build(results: Results, second: Results | None = None, folder: Path | None = None) -> str:
    """The page as text; every figure and script is in it.

    Args:
        results: a comparison.
        second: another one beside it, or none.
        folder: where the page will lie: only beside its records it has links to them.
    """
    both = [results]
    if second is not None:
        rows = [*results.rows, *second.rows]
        both = [replace(one, beside=rows) for one in (results, second)]
    return render("page.html", _context(both, folder))


def _context(both: list[Results], folder: Path | None) -> dict[str, Any]:
    results, second = both[0], both[1] if len(both) > 1 else None
    reliability, margins = _predicted(both)
    several, seeds = len(both) > 1, max(result.seeds for result in both)
    columns = list(dict.fromkeys(metric for result in both for metric in result.metrics))
    context: dict[str, Any] = {
        "version": penex.__version__,
        "title": f"Which loss wins on {' and '.join(dict.fromkeys(r.task for r in both))}?",
        "headline": " ".join(blocks.named(standing.headline(r), r, several) for r in both),
        "figures": [figure for result in both for figure in _standing(result, several)],
        "reading": " ".join(dict.fromkeys(standing.reading(result) for result in both)),
        "asked": " ".join(_asked(result) for result in both),
        "said": [
            (f"{result.folder.name}: {text}" if several else text)
            for result in both
            for text in findings(result)
        ],
        "caveats": list(dict.fromkeys(text for result in both for text in _caveats(result))),
        "rule": RULE,
        "spread_words": ", mean ± standard deviation over seeds" if seeds > 1 else "",
        "curve_words": _thin(seeds),
        "metrics": METRICS.values(),
        "columns": columns,
        "tables": [block for result in both for block in _tables(result, several, columns)],
        "leads": [block for result in both for block in _leads(result, several)],
        "lead_heads": leads.HEADS[2:],
        "lead_note": leads.NOTE,
        "ways": [block for result in both for block in _ways(result, several)],
        "way_heads": ways.HEADS,
        "way_note": ways.NOTE,
        "difference": blocks.difference(results, second, columns) if second else None,
        "sizes": [
            _figure(blocks.named(METRICS[name].title, result, several), panel)
            for result in both
            for name, panel in series.of(result).by_size.items()
        ],
        "curves": [figure for result in both for figure in _curves(result, several)],
        "curve_sizes": sorted({size for result in both for size in result.train_sizes}),
        "reliability": reliability,
        "margins": margins,
        "rho": [
            _figure(
                blocks.named(count(size, "training example"), result, several),
                with_few_seeds(panel),
            )
            for result in both
            for size, panel in series.of(result).rho.items()
        ],
        "rho_legend": safe(_legend(both, _drawn(both))),
        "examples": blocks.examples(results) if second is None else None,
        "command": results.command if second is None else "",
        "setup": [block for result in both for block in blocks.setup(result, several)],
        "folder": ", ".join(result.folder.name for result in both),
        "legend": safe(_legend(both)),
        "home": [block for result in both for block in blocks.at_work(result, several, folder)],
        "before": blocks.before(results, folder) if second is None else [],
        "studied": blocks.beside(results, folder, STUDIES),
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
    for name, title in (
        ("rho", "ρ over time"),
        ("examples", "Disagreements"),
        ("leads", "Leads"),
        ("ways", "Epochs and temperatures"),
    ):
        if context[name]:
            yield {"id": name, "title": title}
    yield {"id": "setup", "title": "How it was made"}
    yield {"id": "home", "title": "Use it"}


def _standing(results: Results, several: bool) -> Iterator[dict[str, Any]]:
    """The picture of the headline: the metrics that it speaks of, at the largest size."""
    size = results.train_sizes[-1]
    where = f", {count(size, 'training example')}" if len(results.train_sizes) > 1 else ""
    for name in standing.METRICS_FIRST:
        title = blocks.named(f"Test {METRICS[name].title}{where}", results, several)
        yield _figure(title, series.of(results).seeds[size, name])


def _thin(seeds: int) -> str:
    """What the thin lines are."""
    if seeds == 1:
        return "A line is the one seed of a loss."
    most = " (those that end lowest, midway and highest)" if seeds > 3 else ""
    return f"Thin lines are seeds{most}, thick lines the means over all of them."


def _drawn(both: list[Results]) -> set[str]:
    """The losses whose rho is drawn, by their titles."""
    panels = [panel for result in both for panel in series.of(result).rho.values()]
    return {mark.name for one in panels for mark in one.marks if isinstance(mark, Line)} - {""}


def _asked(results: Results) -> str:
    losses = len({row.label for row in results.rows})
    *others, last = results.train_sizes
    sizes = "".join(f"{size} / " for size in others) + count(last, "training example")
    noun = "loss was" if losses == 1 else "losses were"
    seeds = "one seed" if results.seeds == 1 else count(results.seeds, "seed")
    config = next((run.config for run in results.records()), None)
    text = f"{losses} {noun} trained on {results.task} with {sizes} and {seeds}."
    if config:
        recipe, treated = config["recipe"], treatment(config)
        own = blocks.own_recipes(results)
        same = {
            "epochs": count(recipe["epochs"], "epoch"),
            "optimizer": recipe["optimizer"],
            "lr": f"learning rate {recipe['lr']:g}",
            "batch_size": f"batches of {recipe['batch_size']}",
        }
        text += f" {treated}" if treated else ""
        if own:
            text += f" They differ in {listed([name.replace('_', ' ') for name in own])}, too."
        if known := [words for name, words in same.items() if name not in own]:
            text += f" Everything else was the same: {', '.join(known)}."
    return text


def _tables(results: Results, several: bool, columns: list[Metric]) -> Iterator[dict[str, Any]]:
    for size in results.train_sizes:
        rows = results.at(size)
        best = tables.winners(rows)
        yield {
            "caption": blocks.named(tables.caption(results, size), results, several),
            "rows": [
                {
                    "name": tables.name(row),
                    "place": place,
                    "key": safe(_key(results, row)),
                    "cells": [
                        {
                            "text": tables.cell(row, metric),
                            "value": _sortable(row, metric.name),
                            "best": (row.label, metric.name) in best,
                            "spread": _spread(row, metric),
                        }
                        for metric in columns
                    ],
                }
                for place, row in enumerate(rows)
            ],
        }


def _ways(results: Results, several: bool) -> Iterator[dict[str, Any]]:
    """The table of every way to judge, of each training size."""
    for size in results.train_sizes:
        if lines := ways.lines(results.at(size)):
            caption = blocks.named(count(size, "training example"), results, several)
            yield {
                "caption": caption,
                "lines": [[cell.replace("**", "") for cell in line] for line in lines],
                "best": [["**" in cell for cell in line] for line in lines],
            }


def _leads(results: Results, several: bool) -> Iterator[dict[str, Any]]:
    """The leads of each training size, in groups of a metric and its leader."""
    for size in results.train_sizes:
        lines = leads.lines(results.at(size))
        groups = itertools.groupby(lines, key=lambda line: line[:2])
        if lines:
            yield {
                "caption": blocks.named(count(size, "training example"), results, several),
                "groups": [(first, [line[2:] for line in some]) for first, some in groups],
            }


def _sortable(row: Row, metric: str) -> str:
    mean, _ = mean_and_spread(row.values(metric).values())
    return "" if math.isnan(mean) or row.broken(metric) else f"{mean:.8g}"


def _spread(row: Row, metric: Metric) -> str:
    spreads = list(row.spreads(metric.name).values())
    shown = spreads and not row.broken(metric.name)
    return metric.text(float(np.mean(spreads))) if shown else ""


def _caveats(results: Results) -> list[str]:
    return [*caveats(results), *series.of(results).unread]


def _figure(title: str, panel: Panel, **data: Any) -> dict[str, Any]:
    return {"title": title, "svg": safe(svg(panel)), **data}


def _curves(results: Results, several: bool) -> Iterator[dict[str, Any]]:
    for (size, name), panel in series.of(results).curves.items():
        title = f"{METRICS[name].title}, {count(size, 'training example')}"
        shown = with_few_seeds(panel)
        yield _figure(blocks.named(title, results, several), shown, metric=name, size=size)


def _predicted(both: list[Results]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The figures of calibration and of margins, a row of the tables each."""
    reliability, margins = [], []
    for results in both:
        several = len(results.train_sizes) > 1
        for row, calibration, margin in series.of(results).predicted:
            title = f"{row.title}, {row.train_size}" if several else row.title
            title = blocks.named(title, results, len(both) > 1)
            reliability += [_figure(title, calibration)] if calibration else []
            margins += [_figure(title, margin)] if margin else []
    return reliability, margins


def _key(results: Results, row: Row) -> str:
    return key(series.ink_of(results, row), series.dash_of(results, row))


def _legend(both: list[Results], only: set[str] | None = None) -> str:
    """The colour and dashes of each loss, or of some by their titles."""
    from markupsafe import escape

    keys = {row.title: _key(results, row) for results in both for row in results.rows}
    items = "".join(
        f"<li>{line}{escape(title)}</li>"
        for title, line in keys.items()
        if only is None or title in only
    )
    return f'<ul class="legend" aria-label="Colours">{items}</ul>'
