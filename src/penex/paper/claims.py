"""The paper's claims about its main table, one by one, and what the records say of each."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from penex.lab.records import Json
from penex.lab.tasks import find
from penex.metrics import METRICS, Metric
from penex.paper.printed import PRINTED
from penex.registry import SUBJECT
from penex.report import tables
from penex.report.results import Results, Row
from penex.report.statistics import FEWEST, Interval, advantage, mean_and_spread

_PAPERS_PIXELS = 64  # of its files of PathMNIST
Verdict = Literal["holds", "does not hold", "unclear", "not trained"]
NOT_TRAINED: Verdict = "not trained"  # the verdict where there are no records
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
        verdict: ``holds``, ``does not hold``, ``unclear`` or ``not trained``.
    """

    task: str
    words: str
    paper: str
    ours: str
    verdict: Verdict


def claims(results: Results) -> Iterator[Claim]:
    """Every claim that a task's records bear on; of each version of PENEX, if there are several."""
    paper = PRINTED.get(results.task, {})
    rows = [row for row in results.at(results.train_sizes[-1]) if row.done and row.loss in paper]
    rivals = {row.loss: row for row in rows if row.loss in _BASELINES}
    ours = [row for row in rows if row.loss == SUBJECT]
    for row in (*rivals.values(), *ours):
        yield _level(results.task, row, paper[row.loss]["accuracy"], is_sound(row))
    sound = {loss: row for loss, row in rivals.items() if is_sound(row)}
    for row in filter(is_sound, ours):
        who = "PENEX" if len(ours) == 1 else row.title
        for metric in _judged():
            said = _said(paper, metric)
            if "ce" in sound and _is_better(metric, said):
                lead = advantage(row, sound["ce"], metric)
                shown = _words(lead, sound["ce"])
                claim = _against(results.task, metric, said, who)
                yield replace(claim, ours=shown, verdict=_verdict(lead))
            best = _best(results.task, metric, said, who)
            if best is not None and sound and len(rivals) == len(_BASELINES):
                rival = _strongest(metric, list(sound.values()))
                lead = advantage(row, rival, metric)
                yield replace(best, ours=_words(lead, rival), verdict=_verdict(lead))


def _judged() -> list[Metric]:
    return [metric for metric in METRICS.values() if metric.name in _TABLE]


def unmeasured(task: str) -> Iterator[Claim]:
    """What the paper claims of a task, for which there are no records."""
    for metric in _judged():
        said = _said(PRINTED[task], metric)
        if _is_better(metric, said):
            yield _against(task, metric, said)
        if (best := _best(task, metric, said)) is not None:
            yield best


def is_sound(row: Row) -> bool:
    """Whether all runs have numbers: a mean over what is left would flatter."""
    return bool(row.done) and not row.diverged and not any(map(row.broken, _TABLE))


def _sound(results: Results) -> dict[str, Row]:
    """The sound rows by loss; the first of each."""
    rows = [row for row in results.at(results.train_sizes[-1]) if is_sound(row)]
    return {row.loss: row for row in reversed(rows)}


def _level(task: str, row: Row, paper: float, sound: bool) -> Claim:
    values = list(row.values("accuracy").values())
    mean, spread = mean_and_spread(values)
    verdict: Verdict = "holds" if sound and abs(mean - paper) <= CLOSE else "does not hold"
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


def _verdict(lead: Interval) -> Verdict:
    if not lead.excludes_zero:
        return "unclear"
    return "holds" if lead.mean > 0 else "does not hold"


def _words(lead: Interval, other: Row) -> str:
    return f"lead over {other.title}: {lead.words}"


def _said(paper: Mapping[str, Mapping[str, float]], metric: Metric) -> dict[str, float]:
    return {loss: column[metric.name] for loss, column in paper.items()}


def _is_better(metric: Metric, said: dict[str, float]) -> bool:
    """Whether the paper prints a better number for PENEX than for cross-entropy."""
    lead = said[SUBJECT] - said["ce"]
    return lead > 0 if metric.higher else lead < 0


def _against(task: str, metric: Metric, said: dict[str, float], who: str = "PENEX") -> Claim:
    return Claim(
        task,
        f"{who} has a better {metric.title} than cross-entropy",
        f"{said[SUBJECT]:.3f} against {said['ce']:.3f}",
        "",
        NOT_TRAINED,
    )


def _best(task: str, metric: Metric, said: dict[str, float], who: str = "PENEX") -> Claim | None:
    """The claim that PENEX is the best of the five; None where the paper does not print that."""
    ranked = sorted(said, key=lambda loss: said[loss], reverse=metric.higher)
    if ranked[0] != SUBJECT:
        return None
    return Claim(
        task,
        f"{who} has the best {metric.title} of the five losses",
        f"{said[SUBJECT]:.3f}, the next {said[ranked[1]]:.3f}",
        "",
        NOT_TRAINED,
    )


def _strongest(metric: Metric, rivals: list[Row]) -> Row:
    """The best of the others by our own means: the paper's may be another."""
    means = {row.label: mean_and_spread(row.values(metric.name).values())[0] for row in rivals}
    return (max if metric.higher else min)(rivals, key=lambda row: means[row.label])


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
