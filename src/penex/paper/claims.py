"""The paper's claims about its main table, one by one, and what the records say of each."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from penex.lab.records import Json
from penex.lab.tasks import find
from penex.metrics import METRICS, Metric
from penex.paper.printed import PRINTED
from penex.report import tables
from penex.report.results import Results, Row
from penex.report.statistics import FEWEST, Interval, advantage, mean_and_spread

_PAPERS_PIXELS = 64  # of its files of PathMNIST
CLOSE = 0.02  # accuracy: a baseline that misses the paper by more means a bug

_TABLE = ("accuracy", "ece_per_batch", "cross_entropy", "brier")
_LEADS = ("accuracy", "cross_entropy", "brier")
_BASELINES = ("ce", "label_smoothing", "confidence_penalty", "focal")


@dataclass(frozen=True)
class Claim:
    """A claim and what became of it.

    Attributes:
        task: where.
        words: what is claimed.
        paper: the paper's numbers.
        ours: what we measured.
        verdict: ``holds``, ``does not hold`` or ``unclear``.
    """

    task: str
    words: str
    paper: str
    ours: str
    verdict: str


def claims(results: Results) -> Iterator[Claim]:
    """Every claim that a task's records bear on."""
    paper = PRINTED.get(results.task, {})
    trained = {row.loss: row for row in results.at(results.train_sizes[-1]) if row.done}
    rows = _sound(results)
    for loss in (*_BASELINES, "penex"):
        if loss in trained and loss in paper:
            yield _level(results.task, trained[loss], paper[loss]["accuracy"], loss in rows)
    if "penex" not in rows or "penex" not in paper:
        return
    for metric in (m for m in METRICS.values() if m.name in _TABLE):
        said = {loss: column[metric.name] for loss, column in paper.items()}
        if "ce" in rows:
            yield _against(results.task, metric, rows["penex"], rows["ce"], said)
        others = [rows[loss] for loss in _BASELINES if loss in rows]
        best = (max if metric.higher else min)(said, key=lambda loss: said[loss])
        if best == "penex" and others and all(loss in trained for loss in _BASELINES):
            yield _best(results.task, metric, rows["penex"], others, said)


def is_sound(row: Row) -> bool:
    """Whether all runs have numbers: a mean over what is left would flatter."""
    return bool(row.done) and not row.diverged and not any(map(row.broken, _TABLE))


def _sound(results: Results) -> dict[str, Row]:
    return {row.loss: row for row in results.at(results.train_sizes[-1]) if is_sound(row)}


def _level(task: str, row: Row, paper: float, sound: bool) -> Claim:
    values = list(row.values("accuracy").values())
    mean, spread = mean_and_spread(values)
    verdict = "holds" if sound and abs(mean - paper) <= CLOSE else "does not hold"
    if sound and len(values) < FEWEST:
        verdict = "unclear"
    level = f"{mean:.3f}" if math.isnan(spread) else f"{mean:.3f} ± {spread:.3f}"
    return Claim(
        task,
        f"{row.title} reaches the paper's accuracy, within {CLOSE}",
        f"{paper:.3f}",
        level if sound else tables.status(row) or "not finite",
        verdict,
    )


def _verdict(lead: Interval) -> str:
    if not lead.excludes_zero:
        return "unclear"
    return "holds" if lead.mean > 0 else "does not hold"


def _words(lead: Interval, other: Row) -> str:
    return f"lead over {other.title}: {lead.words}"


def _against(task: str, metric: Metric, penex: Row, ce: Row, said: dict[str, float]) -> Claim:
    lead = advantage(penex, ce, metric)
    return Claim(
        task,
        f"PENEX has a better {metric.title} than cross-entropy",
        f"{said['penex']:.3f} against {said['ce']:.3f}",
        _words(lead, ce),
        _verdict(lead),
    )


def _best(
    task: str, metric: Metric, penex: Row, others: list[Row], said: dict[str, float]
) -> Claim:
    """Against the best of the others, by our own means: the paper's choice may be another."""

    def mean(row: Row) -> float:
        return mean_and_spread(row.values(metric.name).values())[0]

    rival = (max if metric.higher else min)(others, key=mean)
    lead = advantage(penex, rival, metric)
    runner = sorted(
        (value for loss, value in said.items() if loss != "penex"), reverse=metric.higher
    )[0]
    return Claim(
        task,
        f"PENEX has the best {metric.title} of the five losses",
        f"{said['penex']:.3f}, the next {runner:.3f}",
        _words(lead, rival),
        _verdict(lead),
    )


def leads(found: list[Results]) -> str:
    """A table of PENEX's leads over the two losses that people would take instead; or nothing."""
    rivals = {"ce": "cross-entropy", "label_smoothing": "label smoothing"}
    metrics = [metric for metric in METRICS.values() if metric.name in _LEADS]
    head = [f"{metric.title}: over {rival}" for metric in metrics for rival in rivals.values()]
    lines = [["PENEX's lead, in", *head]]
    for results in found:
        rows = _sound(results)
        if not {"penex", *rivals} <= set(rows):
            continue
        cells = [
            _cell(advantage(rows["penex"], rows[rival], m)) for m in metrics for rival in rivals
        ]
        lines.append([find(results.task).title, *cells])
    return tables.marked_down(lines) if len(lines) > 1 else ""


def _cell(lead: Interval) -> str:
    """Bold where the interval excludes zero."""
    mean, _, interval = lead.words.partition(" ")
    return f"**{mean}** {interval}" if lead.excludes_zero else lead.words


def caveat(task: str, facts: Json) -> str:
    """What keeps the levels of a task from being the paper's, as a sentence; or nothing."""
    pixels = facts.get("data", {}).get("pixels")
    if task != "pathmnist" or pixels in (None, _PAPERS_PIXELS):
        return ""
    return (
        f" From files of {pixels} pixels scaled to 32; the paper's have {_PAPERS_PIXELS}. That is "
        "another level for every loss, so read the leads and not the accuracies."
    )


def markdown(results: Results) -> str:
    """The claims that a task's records bear on, as a table."""
    found = ([c.words, c.paper, c.ours, c.verdict] for c in claims(results))
    return tables.marked_down([["claim", "paper", "ours", "verdict"], *found])
