"""What came out, in sentences."""

import math

from penex.lab.records import Json
from penex.report.results import METRIC, METRICS, Results, Row
from penex.report.statistics import Interval, Verdict, paired_difference, verdict

_FEW = 5


def sentences(results: Results) -> list[str]:
    """What the table says, for someone who would not read it, and what it cannot say."""
    config = next((record.config() for record in results.records()), {})
    treated = [text] if (text := treatment(config)) else []
    return [*findings(results), *treated, *_limits(results), *origins(results)]


def findings(results: Results) -> list[str]:
    """Who leads, by how much, and how PENEX compares with cross-entropy."""
    said = []
    for size in results.train_sizes:
        rows = results.at(size)
        where = f"With {size} training examples" if len(results.train_sizes) > 1 else ""
        found = [verdict(rows, METRIC[name]) for name in ("accuracy", "cross_entropy")]
        said += [_lead(v, where) for v in found if v is not None and v.runner_up is not None]
        said += _against_ce(rows, where)
        said += [_diverged(row, where) for row in rows if row.diverged]
    return said


def _limits(results: Results) -> list[str]:
    """What the number of runs allows to say."""
    said = []
    missing = sum(len(row.missing) for row in results.rows)
    if missing:
        said.append(f"{missing} run{'s are' if missing > 1 else ' is'} not done yet.")
    if results.seeds == 1:
        said.append("One seed shows no spread: --seeds 5 or more can tell a difference from luck.")
    elif results.seeds < _FEW:
        said.append(
            f"{results.seeds} seeds make wide intervals: only large differences show; more --seeds "
            "narrow them."
        )
    return said


def caveats(results: Results) -> list[str]:
    """What a careful reader would ask, answered: for the page."""
    said = _limits(results)
    if results.seeds > 1:
        said.append(
            "The leader is picked by the same data that its lead is judged by, and there are "
            "several metrics: a lone bold number is a hint, no proof."
        )
    said += [
        f"{row.title} diverged with all of its seeds: it has no numbers, and cannot win."
        if len(row.diverged) == len(row.done)
        else f"{row.title} diverged with {len(row.diverged)} of its seeds: its mean is that of the "
        "others, and it cannot win."
        for row in results.rows
        if row.diverged
    ]
    said += [
        f"{row.title}: {metric.title} is not finite for some seed, so it has no mean."
        for row in results.rows
        for metric in METRICS
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
    record = next(results.records(), None)
    facts = record.environment().get("data") if record is not None else None
    notes = facts.get("notes") if isinstance(facts, dict) else None
    return [str(note) for note in notes] if isinstance(notes, list) else []


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


def _lead(found: Verdict, where: str) -> str:
    lead, metric = found.lead, found.metric
    assert lead is not None
    assert found.runner_up is not None
    first, second = found.leader.title, found.runner_up.title
    start = _start(where, f"{metric.title}:")
    if found.clear:
        return f"{start} {first} is best, by {lead.mean:.4f} over {second} ({_range(lead)})."
    if lead.mean == 0:
        return f"{start} {first} and {second} are level."
    if lead.pairs > 1 and math.isnan(lead.low):
        return (
            f"{start} no clear winner. {first} is ahead of {second} by {lead.mean:.4f} with every "
            "seed, which is too few values to make an interval of."
        )
    if lead.pairs < 2:
        return f"{start} {first} is ahead of {second} by {lead.mean:.4f}, with one seed."
    return (
        f"{start} no clear winner. {first} is ahead of {second} by {lead.mean:.4f}, but the "
        f"{_range(lead)} includes zero."
    )


def _against_ce(rows: list[Row], where: str) -> list[str]:
    """PENEX against cross-entropy: the question that most users come with."""
    penex = next((row for row in rows if row.loss == "penex"), None)
    ce = next((row for row in rows if row.loss == "ce"), None)
    if penex is None or ce is None:
        return []
    parts = []
    for name in ("accuracy", "cross_entropy", "ece"):
        metric = METRIC[name]
        change = paired_difference(penex.values(name), ce.values(name))
        if math.isnan(change.mean):
            return []
        known = not math.isnan(change.low)
        tail = f" [{change.low:+.4f}, {change.high:+.4f}]" if known else ""
        parts.append(f"{metric.title} {change.mean:+.4f}{tail}")
    return [_start(where, f"{penex.title} minus {ce.title}:") + f" {', '.join(parts)}."]


def _diverged(row: Row, where: str) -> str:
    reasons = [row.done[seed]["reason"] for seed in row.diverged]
    total = len(row.done) + len(row.missing)
    count = f"{len(reasons)} of {total}"
    verb = "run" if total == 1 else "runs"
    return _start(where, f"{row.title}: {count} {verb} diverged; {reasons[0]}.")


def _start(where: str, rest: str) -> str:
    return f"{where}, {rest}" if where else rest[0].upper() + rest[1:]


def _range(interval: Interval) -> str:
    return f"95 % interval {interval.low:.4f} to {interval.high:.4f}"
