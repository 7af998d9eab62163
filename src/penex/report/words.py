"""What came out, in sentences."""

import math

from penex import registry
from penex.lab.ground.sentences import count, listed, visible
from penex.lab.records import Json
from penex.metrics import METRICS, Metric
from penex.report.plain import placeless
from penex.report.results import Results, Row
from penex.report.statistics import (
    FEWEST,
    Interval,
    Verdict,
    has_learned,
    mean_and_spread,
    paired_difference,
    verdict,
)

_FEW = 5
_MORE = f"--seeds {_FEW} or more can tell a difference from luck."


def sentences(results: Results) -> list[str]:
    """What the table says, for someone who would not read it, and what it cannot say."""
    config = next((run.config for run in results.records()), {})
    treated = [text] if (text := treatment(config)) else []
    return [*findings(results), *treated, *_limits(results), *origins(results)]


def findings(results: Results) -> list[str]:
    """Who leads, by how much, and how PENEX compares with cross-entropy."""
    said = []
    for size in results.train_sizes:
        rows = results.at(size)
        sizes = len(results.train_sizes)
        where = f"With {count(size, 'training example')}" if sizes > 1 else ""
        found = [verdict(rows, METRICS[name]) for name in ("accuracy", "cross_entropy")]
        leads = [v for v in found if v is not None and v.leads]
        said += list(dict.fromkeys(judged(v, where) for v in leads))
        said += _against_ce(rows, where)
        said += [_diverged(row, where) for row in rows if row.diverged]
    return said


def _limits(results: Results) -> list[str]:
    """What the number of runs allows to say."""
    said = []
    missing = sum(len(row.missing) for row in results.rows)
    if missing:
        said.append(f"{count(missing, 'run')} {'is' if missing == 1 else 'are'} not done yet.")
    said += results.damaged
    if results.seeds == 1:
        said.append(f"One seed shows no spread: {_MORE}")
    elif results.seeds < FEWEST:
        said.append(f"{count(results.seeds, 'seed')} cannot show a winner: {_MORE}")
    elif results.seeds < _FEW:
        said.append(
            f"{results.seeds} seeds make wide intervals: only large differences show; more --seeds "
            "narrow them."
        )
    return said


def caveats(results: Results) -> list[str]:
    """What a careful reader would ask, answered: for the page."""
    said = _limits(results)
    if results.seeds >= FEWEST:
        said.append(
            "Every table and every metric is judged on its own, and there are several: a lone bold "
            "number is a hint, no proof."
        )
    said += [
        f"{row.title} diverged with {'its one seed' if row.total == 1 else 'all of its seeds'}: it "
        "has no numbers, and cannot win."
        if len(row.diverged) == len(row.done)
        else f"{row.title} diverged with {len(row.diverged)} of its {row.total} seeds: its mean is "
        "that of the others, and it cannot win."
        for row in results.rows
        if row.diverged
    ]
    said += [
        f"{row.title}: {metric.title} is not finite for some seed, so it has no mean."
        for row in results.rows
        for metric in results.metrics
        if row.broken(metric.name)
    ]
    said += origins(results)
    said += data_notes(results)
    tuned = any(":" in row.label for row in results.rows)
    if not tuned:
        said.append("No loss was tuned: each has its default parameter.")
    return said


def data_notes(results: Results) -> list[str]:
    """What was said of the user's data when they were read: what was left out, copies."""
    facts = next((run.environment.get("data") for run in results.records()), None)
    notes = facts.get("notes") if isinstance(facts, dict) else None
    return [placeless(str(note)) for note in notes] if isinstance(notes, list) else []


def origins(results: Results) -> list[str]:
    """Where the values of the losses came from, if they were looked up."""
    titles = {row.label: row.title for row in results.rows}
    return [
        f"{titles[label]}: {source}."
        for label, source in results.sources.items()
        if label in titles and source != "nothing to tune"
    ]


def treatment(config: Json) -> str:
    """What was done to the data on purpose, in a sentence; empty if nothing was.

    >>> treatment({"label_noise": {"kind": "flip", "rate": 0.1}, "class_weights": None})
    '10 % of the training labels were made wrong on purpose.'
    """
    said = []
    noise = config.get("label_noise")
    if noise:
        share = f"{100 * noise['rate']:g} %"
        said.append(
            f"{share} of the training labels were made wrong on purpose."
            if noise["kind"] == "flip"
            else f"{share} of the training and validation labels were drawn anew, at random."
        )
    if config.get("class_weights"):
        said.append(f"Classes were weighted ({config['class_weights']}).")
    return " ".join(said)


def judged(found: Verdict, where: str = "") -> str:
    """A verdict in words: of whom the leader is clear beyond luck, and of whom it is not.

    Args:
        found: with one rival or more.
        where: which of several tables it is about.
    """
    metric, nearest = found.metric, found.leads[0]
    lead = nearest.seeds
    first, second = found.leader.title, nearest.rival.title
    title = metric.title if where else metric.title[0].upper() + metric.title[1:]
    start, by = _start(where, f"{title}:"), metric.text(lead.mean)
    beaten = [one.rival.title for one in found.beaten]
    others = [one.rival.title for one in found.leads if not one.clear]
    if not found.learned:
        nothing = "nothing is better than guessing yet: train longer, or look at the labels."
        return _start(where, nothing) if where else nothing.capitalize()
    if found.clear:
        every = f", and clear of {listed(beaten[1:])}" if len(beaten) > 1 else ""
        said = f"{start} {first} is best, by {by} over {second} ({_range(lead, metric)}){every}."
        return said + _of_this_test_set(found)
    if beaten:
        said = f"{start} {first} leads; clear of {listed(beaten)}; not of {listed(others)}."
        return said + _of_this_test_set(found)
    ahead = f"{first} is ahead of {second} by {by}"
    if lead.mean == 0:
        return f"{start} {first} and {second} are level."
    if lead.pairs < FEWEST:
        seeds = "one seed" if lead.pairs == 1 else count(lead.pairs, "seed")
        return f"{start} no clear winner. {ahead}, with {seeds}: that may be luck."
    if math.isnan(lead.low):
        return (
            f"{start} no clear winner. {ahead} with every seed, which is too few values to make an "
            "interval of."
        )
    if lead.excludes_zero:
        return (
            f"{start} no clear winner. {ahead} ({_range(lead, metric)}), but among "
            f"{found.comparisons} comparisons that may be luck (p = {nearest.p:.2f} by Holm)."
        )
    return f"{start} no clear winner. {ahead}, but the {_range(lead, metric)} includes zero."


def _of_this_test_set(found: Verdict) -> str:
    """A sentence on leads that the seeds make clear and the size of the test set does not."""
    open_ = [lead.rival.title for lead in found.beaten if lead.overall.low <= 0]
    return f" Another test set may reverse its lead over {listed(open_)}." if open_ else ""


def _against_ce(rows: list[Row], where: str) -> list[str]:
    """PENEX against cross-entropy: the question that most users come with."""
    penex = next((row for row in rows if row.loss == registry.SUBJECT), None)
    ce = next((row for row in rows if row.loss == registry.BASELINE), None)
    if penex is None or ce is None:
        return []
    if not (has_learned(penex) or has_learned(ce)):
        return []  # a difference between two that guess says nothing
    parts, taken_back = [], []
    for name in ("accuracy", "cross_entropy", "ece"):
        metric = METRICS[name]
        change = paired_difference(penex.values(name), ce.values(name))
        if math.isnan(change.mean):
            return []
        parts.append(f"{metric.title} {with_interval(change, metric)}")
        if change.excludes_zero and not _is_clear(rows, metric, {penex.label, ce.label}):
            taken_back.append(metric.title)
    said = f"{_start(where, f'{penex.title} minus {ce.title}:')} {', '.join(parts)}."
    if taken_back:
        said += f" Among all comparisons of the table, {listed(taken_back)} may be luck (Holm)."
    return [said]


def _is_clear(rows: list[Row], metric: Metric, labels: set[str]) -> bool:
    """Whether the lead of one of two losses over the other is beyond luck, by the whole table."""
    found = verdict(rows, metric)
    every = (*found.leads, *found.below) if found else ()
    return any(one.clear for one in every if {one.leader.label, one.rival.label} == labels)


def _diverged(row: Row, where: str) -> str:
    reasons = [row.done[seed]["reason"] for seed in row.diverged]
    runs = f"{len(reasons)} of {count(row.total, 'run')}"
    return _start(where, f"{row.title}: {runs} diverged; {visible(reasons[0])}.")


def _start(where: str, rest: str) -> str:
    return f"{where}, {rest}" if where else rest


def _range(interval: Interval, metric: Metric) -> str:
    return f"95 % interval {metric.text(interval.low)} to {metric.text(interval.high)}"


def cell(row: Row, metric: Metric) -> str:
    """Mean ± standard deviation over seeds, or what there is."""
    if row.broken(metric.name):
        return "not finite"
    mean, spread = mean_and_spread(row.values(metric.name).values())
    if math.isnan(mean):
        return "diverged" if row.diverged else "–"
    return metric.text(mean) + ("" if math.isnan(spread) else f" ± {metric.text(spread)}")


def with_interval(change: Interval, metric: Metric) -> str:
    """A difference in a metric, and its interval if there is one, of seeds enough to trust it."""
    if math.isnan(change.mean):
        return "–"
    low, high = metric.text(change.low, sign=True), metric.text(change.high, sign=True)
    tail = "" if math.isnan(change.low) or change.pairs < FEWEST else f" [{low}, {high}]"
    return metric.text(change.mean, sign=True) + tail
