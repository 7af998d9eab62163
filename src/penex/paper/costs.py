"""What it takes: the paper's appendices on resources and runtime, and what our records say."""

import csv
import io
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penex import registry
from penex.lab.bench.timings import BASE
from penex.lab.ground.sentences import visible
from penex.lab.tasks import find
from penex.paper.claims import NOT_TRAINED, Claim, Verdict
from penex.paper.printed import RESOURCES, RUNTIME
from penex.paper.tables import written
from penex.paper.timings import PASSES, SIZE, Bench
from penex.report.plain import publishable
from penex.report.results import Results
from penex.report.tables import aligned, latex_text, marked_down

NAME = "costs"
NO_BENCH = "No timings yet; command: penex reproduce runtime"

# How `penex bench` calls the losses of the paper's table. Its own code is timed too.
_TIMED = {
    "ce": BASE,
    "label_smoothing": "label smoothing",
    "confidence_penalty": "confidence penalty",
    "focal": "focal",
    "penex": "PENEX",
}
_RIVALS = ("label_smoothing", "confidence_penalty", "focal")
_LISTING = "PENEX, the paper's listing"


@dataclass(frozen=True)
class Grid:
    """A table of texts, with the numbers that they stand for.

    Attributes:
        name: in the CSV file.
        title: above it.
        head: of the columns.
        rows: of texts.
        numbers: (row, column, value), unrounded.
        notes: what a reader must know.
    """

    name: str
    title: str
    head: list[str]
    rows: list[list[str]]
    numbers: list[tuple[str, str, object]] = field(default_factory=list)
    notes: tuple[str, ...] = ()


def runtime(found: Sequence[Bench]) -> Grid:
    """The time of each loss at the paper's size: as printed, then both passes on each machine."""
    head = ["median, µs (of CE's)", *map(registry.title, _TIMED), _LISTING]
    base = RUNTIME[registry.BASELINE][0]
    said = "the paper: forward"
    rows = [[said, *(_time(mean, mean / base) for mean, _ in RUNTIME.values()), "–"]]
    numbers: list[tuple[str, str, object]] = [
        (said, registry.title(loss), mean) for loss, (mean, _) in RUNTIME.items()
    ]
    for one, kind in itertools.product(found, PASSES):
        where = f"{one.machine}: {kind}"
        timed = [one.rows.get((kind, name)) for name in (*_TIMED.values(), _LISTING)]
        cells = ("–" if row is None else _time(row["seconds"], row["ratio"]) for row in timed)
        rows.append([where, *cells])
        known = zip(head[1:], timed, strict=True)
        numbers += [(where, title, row["seconds"]) for title, row in known if row is not None]
    notes = (
        f"One loss over {SIZE.replace('x', ' x ')} logits. The paper: the mean of 100,000 forward "
        "passes, each timed alone, on a machine that it does not name. Ours: the median, the "
        "losses taking turns; in brackets the ratio to cross-entropy in the same run.",
        *(f"{one.machine}: {one.source}, `{one.command or 'penex bench'}`." for one in found),
        *(() if found else (f"{NO_BENCH}.",)),
    )
    return Grid("runtime", "Runtime: a loss at the paper's size", head, rows, numbers, notes)


def _time(seconds: float, ratio: float) -> str:
    return f"{seconds * 1e6:.0f} ({ratio:.2f})"


def resources(found: Mapping[str, Results]) -> Grid:
    """The paper's machines, memory and minutes a run beside those in our records.

    Args:
        found: the comparisons that there are, by task; one that the paper prints nothing of too.
    """
    head = [
        "experiment", "the paper: GPU", "memory of the CPU, MB", "min a run", "ours: machine",
        "runs", "s a run", "peak memory, GiB", "hours of these runs: the paper's", "ours",
    ]  # fmt: skip
    rows = []
    numbers: list[tuple[str, str, object]] = []
    for task in (*RESOURCES, *(name for name in found if name not in RESOURCES)):
        printed = RESOURCES.get(task)
        title = printed.title if printed is not None else find(task).title
        minutes = None if printed is None else printed.minutes
        cells = [title, "–", "–", "–"]
        if printed is not None:
            said = "–" if minutes is None else str(minutes)
            cells = [title, printed.gpu, f"{printed.memory:,}", said]
        rows.append([*cells, *_ours(title, minutes, found.get(task), numbers)])
    notes = (
        "The paper's minutes are approximate, of a run of 200 epochs on one GPU (ImageNet: four). "
        "Ours are the records' own seconds; runs of a table are trained together (packs), and a "
        "run's seconds are its share. Memory: the paper's is the CPU's, ours the device's for a "
        "whole pack. The paper prints no minutes for noisy CIFAR-10, and nothing of ResNet-18.",
    )
    return Grid("resources", "Computational resources", head, rows, numbers, notes)


def _ours(
    title: str,
    minutes: int | None,
    results: Results | None,
    numbers: list[tuple[str, str, object]],
) -> list[str]:
    """What the records of a task say."""
    runs = [] if results is None else list(results.records())
    if not runs:
        return ["no records yet", *["–"] * 5]
    seconds = [float(run.done["wall_time"]) for run in runs]
    machines = dict.fromkeys(str(run.environment.get("device", "unknown")) for run in runs)
    peaks = [run.done["peak_memory"] for run in runs if run.done.get("peak_memory")]
    numbers += [
        (title, "runs", len(runs)),
        (title, "seconds a run", statistics.fmean(seconds)),
        (title, "hours", sum(seconds) / 3600),
    ]
    hours = "–"
    if minutes is not None:
        numbers.append((title, "paper hours", minutes * len(runs) / 60))
        hours = f"{minutes * len(runs) / 60:.1f}"
    return [
        visible("; ".join(machines)),
        str(len(runs)),
        f"{statistics.fmean(seconds):.1f}",
        f"{max(peaks) / 2**30:.1f}" if peaks else "–",
        hours,
        f"{sum(seconds) / 3600:.2g}",
    ]


def claims(found: Sequence[Bench]) -> list[Claim]:
    """That PENEX evaluates faster than the other regularisers: ours and the paper's own code."""
    times = {loss: f"{seconds * 1e6:.0f}" for loss, (seconds, _) in RUNTIME.items()}
    printed = f"{times[registry.SUBJECT]} µs against {', '.join(times[loss] for loss in _RIVALS)}"
    judged = []
    for name in (_TIMED[registry.SUBJECT], _LISTING):
        words = f"A forward pass of {name} is slightly faster than the other regularisers'"
        timed = [one for one in found if one.of(name) is not None]
        judged += [_faster(one, name, words, printed) for one in timed]
        if not timed:
            judged.append(Claim(NAME, words, printed, f"{NO_BENCH}.", NOT_TRAINED))
    return judged


def _faster(one: Bench, name: str, words: str, printed: str) -> Claim:
    """By the middle halves of the times: where they overlap nothing is clear."""
    ours = one.rows[PASSES[0], name]
    rivals = [row for loss in _RIVALS if (row := one.of(_TIMED[loss])) is not None]
    low, high = ours["quartiles"]
    verdict: Verdict = "unclear"
    if len(rivals) == len(_RIVALS) and all(high < row["quartiles"][0] for row in rivals):
        verdict = "holds"
    elif any(row["quartiles"][1] < low for row in rivals):
        verdict = "does not hold"
    shown = ", ".join(f"{row['seconds'] * 1e6:.0f}" for row in rivals)
    said = f"{ours['seconds'] * 1e6:.0f} µs against {shown} on {one.machine}"
    return Claim(NAME, words, printed, said, verdict)


def text(grids: Iterable[Grid]) -> str:
    """The tables for a terminal."""
    return "\n\n".join(
        "\n".join([one.title, "", *aligned([one.head, *one.rows]), "", *one.notes]) for one in grids
    )


def markdown(grids: Iterable[Grid], judged: Sequence[Claim], command: str) -> str:
    """The tables and the claim about them as a document."""
    parts = ["# What it takes: the paper's appendices, and ours"]
    for one in grids:
        parts += [f"## {one.title}", marked_down([one.head, *one.rows]), "\n\n".join(one.notes)]
    lines = [[c.words, c.paper, c.ours, c.verdict] for c in judged]
    parts.append(marked_down([["claim", "paper", "ours", "verdict"], *lines]))
    return "\n\n".join([*parts, f"`{command}`"]) + "\n"


def latex(grids: Iterable[Grid]) -> str:
    """The tables for a paper that loads booktabs."""
    parts = []
    for one in grids:
        notes = [f"% {note}" for note in (f"{one.title}.", *one.notes)]
        lines = [" & ".join(map(_latex, row)) + " \\\\" for row in (one.head, *one.rows)]
        begin = f"\\begin{{tabular}}{{l{'r' * (len(one.head) - 1)}}}"
        parts.append("\n".join([*notes, begin, "\\toprule", lines[0], "\\midrule", *lines[1:],
                                "\\bottomrule", "\\end{tabular}"]))  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _latex(cell: str) -> str:
    marks = {"±": "$\\pm$", "–": "--", "µ": "$\\mu$"}
    shown = latex_text(cell)
    for sign, word in marks.items():
        shown = shown.replace(sign, word)
    return shown


def as_csv(grids: Iterable[Grid]) -> str:
    """A line for each number, unrounded."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["table", "row", "column", "value"])
    for one in grids:
        writer.writerows([one.name, *number] for number in one.numbers)
    return buffer.getvalue()


def write(folder: Path, grids: Sequence[Grid], judged: Sequence[Claim], command: str) -> list[Path]:
    """Write the tables in every form; the files."""
    content = {
        f"{NAME}.md": markdown(grids, judged, publishable(command)),
        f"{NAME}.csv": as_csv(grids),
        f"{NAME}.tex": latex(grids),
    }
    return written(folder, content)
