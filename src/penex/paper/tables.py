"""The paper's main table beside ours."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import penex
from penex.lab.ground import files
from penex.lab.tasks import find
from penex.paper import claims, sweeps
from penex.paper.plan import Sweep
from penex.paper.printed import PRINTED
from penex.report import tables, words
from penex.report.page import render
from penex.report.plain import publishable
from penex.report.results import Results, Row
from penex.report.statistics import FEWEST, RULE, mean_and_spread

NAME = "table1"

# In the paper's order, with its signs: larger is better. Its ECE is the mean over batches.
SHOWN: tuple[tuple[str, str, int], ...] = (
    ("accuracy", "ACC", 1),
    ("ece_per_batch", "-ECE, per batch", -1),
    ("ece", "-ECE", -1),
    ("cross_entropy", "-CE", -1),
    ("brier", "-BRIER", -1),
)


@dataclass(frozen=True)
class Cell:
    """A number of the table.

    Attributes:
        mean: over seeds, with the paper's sign; NaN if there is none.
        seeds: the standard deviation over seeds; NaN for fewer than two.
        bootstrap: the spread of one run's test set, the mean over seeds; the paper's ±.
        paper: the paper's number with its sign; None if it has none.
        best: whether it is best beyond luck among the losses of its task.
        note: what stands in its place.
    """

    mean: float
    seeds: float
    bootstrap: float
    paper: float | None
    best: bool
    note: str = ""

    @property
    def ours(self) -> str:
        """Mean ± seeds."""
        spread = "" if math.isnan(self.seeds) else f" ± {self.seeds:.3f}"
        return self.note or f"{self.mean:.3f}{spread}"

    @property
    def beside(self) -> str:
        """[Bootstrap] (paper), as far as there are such."""
        if self.note:
            return ""
        bootstrap = "" if math.isnan(self.bootstrap) else f"[{self.bootstrap:.3f}]"
        return f"{bootstrap} ({self.paper:.3f})".strip() if self.paper is not None else bootstrap

    @property
    def text(self) -> str:
        """Both."""
        return f"{self.ours} {self.beside}".strip()


@dataclass(frozen=True)
class Block:
    """The part of the table for a task.

    Attributes:
        task: its name.
        title: its title.
        seeds: how many there are, in words.
        rows: the cells of each loss.
        notes: where values came from, if they were looked up.
    """

    task: str
    title: str
    seeds: str
    rows: list[tuple[Row, list[Cell]]]
    notes: list[str]


def block(results: Results) -> Block:
    """A task's part of the table."""
    rows = results.at(results.train_sizes[-1])
    best = tables.winners(rows)
    paper = PRINTED.get(results.task, {})
    return Block(
        results.task,
        find(results.task).title,
        results.seeds_in_words,
        [(row, [_cell(row, name, sign, paper, best) for name, _, sign in SHOWN]) for row in rows],
        words.origins(results),
    )


def _cell(
    row: Row,
    name: str,
    sign: int,
    paper: Mapping[str, Mapping[str, float]],
    best: set[tuple[str, str]],
) -> Cell:
    mean, spread = mean_and_spread(row.values(name).values())
    bootstrap = mean_and_spread(row.spreads(name).values())[0]
    note = ""
    if row.broken(name):
        note = "not finite"
    elif math.isnan(mean):
        note = "diverged" if row.diverged else "missing"
    said = paper.get(row.loss, {}).get(name)
    return Cell(
        sign * mean,
        spread,
        bootstrap,
        None if said is None else sign * said,
        (row.label, name) in best,
        note,
    )


_RULE = (
    "Test set, larger is better: mean ± standard deviation over seeds [bootstrap spread of one "
    "test set] (the paper's number, one run). Bold (or *) is best beyond luck: "
    f"{RULE}."
)


def text(blocks: list[Block]) -> str:
    """The table for a terminal."""
    lines = []
    for one in blocks:
        lines += [f"{one.title}, {one.seeds}", ""]
        table = [["loss", *(title for _, title, _ in SHOWN)]]
        for row, cells in one.rows:
            shown = [cell.text + ("*" if cell.best else "") for cell in cells]
            table.append([tables.name(row), *shown])
        lines += [*tables.aligned(table), "", *one.notes, *([""] if one.notes else [])]
    return "\n".join([*lines, _RULE])


def markdown(blocks: list[Block], command: str) -> str:
    """The table as Markdown."""
    parts = []
    for one in blocks:
        table = f"**{one.title}, {one.seeds}**\n\n{_table(one)}"
        parts += [table, *([" ".join(one.notes)] if one.notes else [])]
    return "\n\n".join([*parts, _RULE, f"`{command}`"]) + "\n"


def _table(one: Block) -> str:
    """A task's part, as a table in Markdown."""
    lines = [["loss", *(title for _, title, _ in SHOWN)]]
    for row, cells in one.rows:
        shown = [f"**{cell.text}**" if cell.best else cell.text for cell in cells]
        lines.append([tables.name(row), *shown])
    return tables.marked_down(lines)


def _in_short(found: list[Results]) -> list[str]:
    if not (leads := claims.leads(found)):
        return []
    rule = "Seed-paired leads with their 95 % intervals; above zero PENEX is better, bold is beyond"
    return [f"## In short\n\n{rule} luck.\n\n{leads}"]


def document(
    found: list[Results], command: str, swept: Sequence[tuple[Sweep, Results]] = ()
) -> str:
    """The table, the paper's claims about it one by one, and the sweeps.

    Args:
        found: the tasks of the main table.
        command: how the document was made.
        swept: the sweeps.
    """
    parts = [
        "# The paper's main table, claim by claim",
        f"Generated from the records by `{command}`. A claim *holds* where the interval of the "
        "seed-paired lead is above zero, *does not hold* where it is below, and is *unclear* at "
        f"our power where it includes zero or there are fewer than {FEWEST} seeds; whether a loss "
        "*reaches* the paper's accuracy is judged by our mean alone.",
        *_in_short(found),
        f"The tables below: {_RULE[0].lower()}{_RULE[1:]}",
    ]
    for results in found:
        facts = next(results.records()).environment
        one = block(results)
        parts += [
            f"## {one.title}",
            f"{one.seeds}; {results.made_with}{claims.caveat(results.task, facts)}",
            _table(one),
            *([" ".join(one.notes)] if one.notes else []),
            claims.markdown(results),
        ]
    return "\n\n".join([*parts, *sweeps.chapter(swept)]) + "\n"


def latex(blocks: list[Block]) -> str:
    """The table for a paper that loads booktabs."""
    parts = []
    for one in blocks:
        heads = " & ".join(f"${title}$" if "-" in title else title for _, title, _ in SHOWN)
        lines = [
            f"% {one.title}, {one.seeds}. {_RULE}",
            f"\\begin{{tabular}}{{l{'c' * len(SHOWN)}}}",
            "\\toprule",
            f"Loss & {heads} \\\\".replace("$-ECE, per batch$", "$-$ECE, per batch"),
            "\\midrule",
        ]
        for row, cells in one.rows:
            shown = [tables.latex_cell(cell.text, cell.best) for cell in cells]
            lines.append(f"{tables.latex_text(tables.name(row))} & {' & '.join(shown)} \\\\")
        parts.append("\n".join([*lines, "\\bottomrule", "\\end{tabular}"]))
    return "\n\n".join(parts) + "\n"


def as_csv(blocks: list[Block]) -> str:
    """A line for each task, loss and metric, unrounded."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["task", "loss", "metric", "mean", "seeds", "bootstrap", "paper", "best"])
    for line in _lines(blocks):
        writer.writerow(line)
    return buffer.getvalue()


def _lines(blocks: list[Block]) -> Iterator[list[object]]:
    for one in blocks:
        for row, cells in one.rows:
            for (_, title, _), cell in zip(SHOWN, cells, strict=True):
                yield [
                    one.task, row.label, title, cell.mean, cell.seeds, cell.bootstrap, cell.paper,
                    cell.best,
                ]  # fmt: skip


def write(
    folder: Path, found: list[Results], command: str, swept: Sequence[tuple[Sweep, Results]] = ()
) -> list[Path]:
    """Write the table in every form, and the claims one by one; the files."""
    command = publishable(command)
    blocks = [block(results) for results in found]
    page = render(
        "table1.html",
        {
            "version": penex.__version__,
            "title": "The paper's main table, and ours",
            "asked": _RULE,
            "heads": [title for _, title, _ in SHOWN],
            "blocks": [
                {
                    "title": f"{one.title}, {one.seeds}",
                    "rows": [{"name": tables.name(row), "cells": cells} for row, cells in one.rows],
                    "notes": one.notes,
                }
                for one in blocks
            ],
            "command": command,
        },
        Path(__file__).parent,
    )
    content = {
        f"{NAME}.md": markdown(blocks, command),
        f"{NAME}.csv": as_csv(blocks),
        f"{NAME}.tex": latex(blocks),
        f"{NAME}.html": page,
        "claims.md": document(found, command, swept),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        files.write_text(folder / name, text)
    return [folder / name for name in content]
