"""Tables of the paper beside ours: the main one, and the appendix's of ResNet-18."""

import csv
import io
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import penex
from penex.lab.ground import files
from penex.lab.tasks import find
from penex.paper.claims import Claim
from penex.paper.printed import PRINTED
from penex.report import tables, words
from penex.report.page import render
from penex.report.results import Results, Row
from penex.report.statistics import RULE, mean_and_spread

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
    def less(self) -> str:
        """Ours less the paper's; empty without one of them.

        >>> Cell(0.5, 0.1, 0.1, 0.75, False).less
        '-0.250'
        """
        absent = self.note or self.paper is None
        return "" if absent else f"{self.mean - (self.paper or 0.0):+.3f}"

    @property
    def text(self) -> str:
        """Mean ± seeds [bootstrap] (paper)."""
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


def block(results: Results, title: str = "") -> Block:
    """A task's part of the table.

    Args:
        results: of the task.
        title: if not the task's own.
    """
    rows = results.at(results.train_sizes[-1])
    best = tables.winners(rows)
    paper = PRINTED.get(results.task, {})
    return Block(
        results.task,
        title or find(results.task).title,
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


LEGEND = (
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
    return "\n".join([*lines, LEGEND])


def markdown(blocks: list[Block], command: str) -> str:
    """The table as Markdown."""
    parts = []
    for one in blocks:
        parts += [
            f"**{one.title}, {one.seeds}**\n\n{table(one)}",
            *([" ".join(one.notes)] if one.notes else []),
        ]
    return "\n\n".join([*parts, LEGEND, f"`{command}`"]) + "\n"


def table(one: Block) -> str:
    """A task's part, as a table in Markdown."""
    lines = [["loss", *(title for _, title, _ in SHOWN)]]
    for row, cells in one.rows:
        shown = [f"**{cell.text}**" if cell.best else cell.text for cell in cells]
        lines.append([tables.name(row), *shown])
    return tables.marked_down(lines)


def differences(one: Block) -> list[list[str]]:
    """Ours less what the paper prints, where it prints something: a head, and a line a loss."""
    shown = [k for k in range(len(SHOWN)) if any(cells[k].less for _, cells in one.rows)]
    lines = [["ours less the paper's", *(SHOWN[k][1] for k in shown)]]
    return lines + [[row.title, *(cells[k].less for k in shown)] for row, cells in one.rows]


def latex(blocks: list[Block]) -> str:
    """The table for a paper that loads booktabs."""
    parts = []
    for one in blocks:
        heads = " & ".join(f"${title}$" if "-" in title else title for _, title, _ in SHOWN)
        lines = [
            f"% {one.title}, {one.seeds}. {LEGEND}",
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


def forms(
    name: str,
    title: str,
    blocks: list[Block],
    command: str,
    judged: Sequence[Sequence[Claim]] = (),
    notes: Sequence[str] = (),
) -> dict[str, str]:
    """A table as CSV, LaTeX and a page, by the names of their files.

    Args:
        name: of the files.
        title: of the page.
        blocks: of the table.
        command: how it was made.
        judged: the claims about each block, for the page; none if they are elsewhere.
        notes: what the page says after all blocks.
    """
    shown = []
    for one, found in itertools.zip_longest(blocks, judged, fillvalue=()):
        assert isinstance(one, Block)
        rows = [{"name": tables.name(row), "cells": cells} for row, cells in one.rows]
        less = differences(one) if found else []
        title_of = f"{one.title}, {one.seeds}"
        shown.append(
            {"title": title_of, "rows": rows, "notes": one.notes, "less": less, "claims": found}
        )
    context = {
        "version": penex.__version__,
        "title": title,
        "asked": LEGEND,
        "heads": [head for _, head, _ in SHOWN],
        "blocks": shown,
        "notes": notes,
        "command": command,
    }
    return {
        f"{name}.csv": as_csv(blocks),
        f"{name}.tex": latex(blocks),
        f"{name}.html": render("table.html", context, Path(__file__).parent),
    }


def written(folder: Path, content: Mapping[str, str]) -> list[Path]:
    """Write files into a folder; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        files.write_text(folder / name, text)
    return [folder / name for name in content]
