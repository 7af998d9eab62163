"""What a terminal shows of a comparison: the table, and what it says."""

import sys
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penex.lab.ground.sentences import visible
from penex.metrics import METRICS
from penex.report import tables
from penex.report.results import Results
from penex.report.statistics import RULE
from penex.report.words import sentences

_WIDTH = 110  # of a file or a pipe
_COLUMN = 18  # the width of a metric


def show(results: Results, file: TextIO | None = None) -> None:
    """Print the table and what it says; on a narrow terminal, as many metrics as fit."""
    console = Console(file=file or sys.stdout, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _WIDTH
    names = max(len(tables.name(row)) for row in results.rows)
    fitting = max(1, (console.width - names) // _COLUMN)
    shown = [metric for metric in METRICS.values() if metric.drawn][:fitting]
    marked = False
    for size in results.train_sizes:
        rows = results.at(size)
        bold = tables.winners(rows)
        console.print(Text(tables.caption(results, size)), soft_wrap=True)
        table = Table(box=None, pad_edge=False)
        table.add_column("loss", no_wrap=True)
        for metric in shown:
            arrow = "↑" if metric.higher else "↓"
            table.add_column(Text(f"{metric.title} {arrow}"), justify="right", no_wrap=True)
        for row in rows:
            cells = []
            for metric in shown:
                best = (row.label, metric.name) in bold
                marked = marked or best
                # The star is for where bold cannot be seen: a file, a screen reader.
                text = tables.cell(row, metric) + ("*" if best else " ")
                cells.append(Text(text, style="bold" if best else ""))
            table.add_row(Text(tables.name(row)), *cells)
        console.print(table)
        console.print()
    if marked:
        console.print(f"* {RULE}", soft_wrap=True)
    for sentence in sentences(results):
        console.print(Text(visible(sentence)), soft_wrap=True)
