"""A comparison as Markdown and CSV."""

import csv
import io
import math

from penex.report.results import METRICS, Metric, Results, Row
from penex.report.statistics import mean_and_spread, verdict
from penex.report.words import sentences


def cell(row: Row, metric: Metric) -> str:
    """Mean ± standard deviation over seeds, or what there is."""
    if row.broken(metric.name):
        return "not finite"
    mean, spread = mean_and_spread(list(row.values(metric.name).values()))
    if math.isnan(mean):
        return "diverged" if row.diverged else "–"
    return f"{mean:.4f}" if math.isnan(spread) else f"{mean:.4f} ± {spread:.4f}"


def winners(rows: list[Row]) -> set[tuple[str, str]]:
    """(label, metric) of every cell that is best beyond luck."""
    found = [verdict(rows, metric) for metric in METRICS]
    return {(v.leader.label, v.metric.name) for v in found if v is not None and v.clear}


def status(row: Row) -> str:
    """What a reader must know besides the numbers."""
    notes = []
    total = len(row.done) + len(row.missing)
    if row.diverged:
        notes.append(f"{len(row.diverged)} of {total} diverged")
    if row.missing:
        notes.append(f"{len(row.missing)} of {total} missing")
    return ", ".join(notes)


def name(row: Row) -> str:
    """The loss's title with what a reader must know."""
    note = status(row)
    return f"{row.title} ({note})" if note else row.title


def aligned(table: list[list[str]]) -> list[str]:
    """The lines of a table for a terminal.

    >>> aligned([["loss", "accuracy"], ["CE", "0.9"]])
    ['loss  accuracy', 'CE    0.9']
    """
    widths = [max(len(line[k]) for line in table) for k in range(len(table[0]))]
    return [
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]


def caption(results: Results, size: int) -> str:
    """What the numbers are."""
    seeds = "1 seed" if results.seeds == 1 else f"{results.seeds} seeds"
    shown = "" if results.seeds == 1 else ", mean ± standard deviation over seeds"
    return f"{results.task}, {size} training examples, {seeds}: test set{shown}"


def markdown(results: Results) -> str:
    """The table, its sentences and its command as Markdown; bold is best beyond luck."""
    parts = []
    for size in results.train_sizes:
        rows = results.at(size)
        bold = winners(rows)
        lines = [
            "| loss | "
            + " | ".join(f"{m.title} {'↑' if m.higher else '↓'}" for m in METRICS)
            + " |",
            "|---|" + "---|" * len(METRICS),
        ]
        for row in rows:
            cells = [
                f"**{cell(row, m)}**" if (row.label, m.name) in bold else cell(row, m)
                for m in METRICS
            ]
            lines.append(f"| {_escaped(name(row))} | {' | '.join(cells)} |")
        parts.append(f"**{caption(results, size)}**\n\n" + "\n".join(lines))
    said = "\n".join(f"- {_escaped(sentence)}" for sentence in sentences(results))
    rule = (
        "Bold: the best mean among losses that completed with every seed, where the 95 % interval "
        "of the seed-paired difference to the runner-up excludes zero."
    )
    command = f"\n\n`{results.command}`" if results.command else ""
    return "\n\n".join([*parts, rule, said]) + command + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def as_csv(results: Results) -> str:
    """A line a run and metric: nothing is rounded and nothing is summarised."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        ["task", "loss", "train_size", "seed", "status", "part", "metric", "value", "bootstrap"]
    )
    for row in results.rows:
        for seed, done in row.done.items():
            start = [results.task, row.label, row.train_size, seed, done["status"]]
            for part in ("validation", "test"):
                for metric in METRICS:
                    value = done.get(part, {}).get(metric.name)
                    spread = done.get(f"{part}_spread", {}).get(metric.name)
                    writer.writerow([*start, part, metric.name, value, spread])
    return buffer.getvalue()


def latex(results: Results) -> str:
    """The table for a paper that loads booktabs."""
    parts = []
    for size in results.train_sizes:
        rows = results.at(size)
        bold = winners(rows)
        heads = " & ".join(f"{m.title} {_ARROWS[m.higher]}" for m in METRICS)
        lines = [
            f"% {caption(results, size)}",
            f"\\begin{{tabular}}{{l{'c' * len(METRICS)}}}",
            "\\toprule",
            f"Loss & {heads} \\\\",
            "\\midrule",
        ]
        for row in rows:
            cells = [latex_cell(cell(row, m), (row.label, m.name) in bold) for m in METRICS]
            lines.append(f"{latex_text(name(row))} & {' & '.join(cells)} \\\\")
        parts.append("\n".join([*lines, "\\bottomrule", "\\end{tabular}"]))
    return "\n\n".join(parts) + "\n"


_ARROWS = {True: "$\\uparrow$", False: "$\\downarrow$"}


def latex_cell(text: str, best: bool) -> str:
    """A number for LaTeX."""
    number = text.replace("±", "$\\pm$").replace("–", "--")
    return f"\\textbf{{{number}}}" if best else number


def latex_text(text: str) -> str:
    """A text for LaTeX."""
    for sign in ("\\", "_", "&", "%", "#", "$", "{", "}"):
        text = text.replace(sign, "\\textbackslash{}" if sign == "\\" else "\\" + sign)
    return text
