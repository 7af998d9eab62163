"""A comparison as Markdown, LaTeX and CSV."""

import csv
import html
import io
from collections.abc import Iterable, Sequence

from penex.lab.ground.sentences import count
from penex.metrics import METRICS, VOTED
from penex.report import leads, ways
from penex.report.plain import csv_text
from penex.report.results import Results, Row
from penex.report.statistics import RULE, verdict
from penex.report.words import cell as cell
from penex.report.words import findings, sentences


def winners(rows: list[Row]) -> set[tuple[str, str]]:
    """(label, metric) of every cell that is best beyond luck."""
    found = [verdict(rows, metric) for metric in (METRICS | VOTED).values()]
    return {(v.leader.label, v.metric.name) for v in found if v is not None and v.clear}


def status(row: Row) -> str:
    """What a reader must know besides the numbers."""
    kinds = {"diverged": row.diverged, "missing": row.missing, "damaged": row.damaged}
    return ", ".join(f"{len(runs)} of {row.total} {kind}" for kind, runs in kinds.items() if runs)


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
    seeds, examples = count(results.seeds, "seed"), count(size, "training example")
    shown = "" if results.seeds == 1 else ", mean ± standard deviation over seeds"
    view = f" {results.view.words}" if results.view.identity else ""
    return f"{results.task}, {examples}, {seeds}: test set{view}{shown}"


def marked_down(lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, its head first.

    >>> print(marked_down([["loss", "accuracy"], ["ce", "0.9"]]))
    | loss | accuracy |
    |---|---|
    | ce | 0.9 |
    """
    head, *rest = lines
    shown = [f"| {' | '.join(line)} |" for line in (head, *rest)]
    return "\n".join([shown[0], "|---" * len(head) + "|", *shown[1:]])


def markdown(results: Results) -> str:
    """The table, its sentences and its command as Markdown; bold is best beyond luck."""
    parts, against = [], []
    heads = [f"{m.title} {'↑' if m.higher else '↓'}" for m in results.metrics]
    for size in results.train_sizes:
        rows = results.at(size)
        bold = winners(rows)
        lines = [["loss", *map(_escaped, heads)]]
        for row in rows:
            cells = [
                f"**{cell(row, m)}**" if (row.label, m.name) in bold else cell(row, m)
                for m in results.metrics
            ]
            lines.append([_escaped(name(row)), *cells])
        parts.append(f"**{_escaped(caption(results, size))}**\n\n" + marked_down(lines))
        examples = count(size, "training example")
        if ways_lines := ways.lines(rows):
            every = marked_down([ways.HEADS, *ways_lines])
            against += [f"**Judged in every way, {examples}**\n\n{every}", ways.NOTE]
        against += _against(rows, examples)
    said = "\n".join(f"- {_escaped(sentence)}" for sentence in sentences(results))
    command = f"\n\n`{results.command}`" if results.command else ""
    against += [leads.NOTE] if against else []
    return "\n\n".join([*parts, f"Bold: {RULE}.", said, *against]) + command + "\n"


def _against(rows: list[Row], where: str) -> list[str]:
    """The leader against each other loss as Markdown, if there is anything to say."""
    found = leads.lines(rows)
    if not found:
        return []
    table = marked_down([_escaped(cell) for cell in line] for line in (leads.HEADS, *found))
    return [f"**The leader against each other loss, {where}**\n\n{table}"]


def _escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "\\|")


def as_csv(results: Results) -> str:
    """A line a run and metric: nothing is rounded and nothing is summarised."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        ["task", "loss", "train_size", "seed", "status", "part", "metric", "value", "bootstrap"]
    )
    for row in results.rows:
        start = [csv_text(results.task), csv_text(row.label), row.train_size]
        for seed, done in row.done.items():
            for part in ("validation", "test"):
                for name in (m.name for m in results.metrics):
                    if name in VOTED and name not in done.get(part, {}):
                        continue
                    value = done.get(part, {}).get(name)
                    spread = done.get(f"{part}_spread", {}).get(name)
                    writer.writerow([*start, seed, done["status"], part, name, value, spread])
    return buffer.getvalue()


def latex(results: Results) -> str:
    """The table for a paper that loads booktabs."""
    parts = []
    heads = " & ".join(f"{latex_text(m.title)} {_ARROWS[m.higher]}" for m in results.metrics)
    for size in results.train_sizes:
        rows = results.at(size)
        bold = winners(rows)
        lines = [
            f"% {caption(results, size)}",
            f"\\begin{{tabular}}{{l{'c' * len(results.metrics)}}}",
            "\\toprule",
            f"Loss & {heads} \\\\",
            "\\midrule",
        ]
        for row in rows:
            best = ((m, (row.label, m.name) in bold) for m in results.metrics)
            cells = [latex_cell(cell(row, m), won) for m, won in best]
            lines.append(f"{latex_text(name(row))} & {' & '.join(cells)} \\\\")
        parts.append("\n".join([*lines, "\\bottomrule", "\\end{tabular}"]))
    notes = "".join(f"% {sentence}\n" for sentence in [f"Bold: {RULE}.", *findings(results)])
    return "\n\n".join(parts) + "\n" + notes


_ARROWS = {True: "$\\uparrow$", False: "$\\downarrow$"}


def latex_cell(text: str, best: bool) -> str:
    """A number for LaTeX."""
    number = text.replace("±", "$\\pm$").replace("–", "--")
    return f"\\textbf{{{number}}}" if best else number


_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "_&%#${}"}
    | {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
)


def latex_text(text: str) -> str:
    r"""A text for LaTeX.

    >>> print(latex_text("a_b{50 %}"))
    a\_b\{50 \%\}
    """
    return text.translate(_LATEX)
