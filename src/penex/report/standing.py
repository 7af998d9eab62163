"""Who stands where: the sentence and the picture that a reader sees first. Both ask the verdict."""

import math
from collections.abc import Mapping

from penex import registry
from penex.lab.ground.sentences import count, listed
from penex.metrics import METRICS, Metric
from penex.report.drawing import Dot, Line, Mark, Panel, Point, limits, toned
from penex.report.results import Results, Row
from penex.report.statistics import FEWEST, Verdict, mean_and_spread, verdict

METRICS_FIRST = ("accuracy", "cross_entropy")  # what a winner is asked for


def headline(results: Results) -> str:
    """Who won and by how much, or that nobody did, in one sentence: of the largest training size.

    It says no more than `Verdict.clear` does.
    """
    size = results.train_sizes[-1]
    rows = results.at(size)
    said = _judged(rows)
    if len(results.train_sizes) > 1:
        return f"With {count(size, 'training example')}, {said}"
    return said[0].upper() + said[1:] if said.startswith(("nobody", "in ", "there")) else said


def _judged(rows: list[Row]) -> str:
    found = [verdict(rows, METRICS[name]) for name in METRICS_FIRST]
    known = [one for one in found if one is not None and one.leads]
    if not known:
        what = "only one loss was trained" if len(rows) == 1 else "nobody has a rival to beat"
        return f"there is no winner: {what} with every seed."
    if not any(one.learned for one in known):
        return "nobody won: nothing has learned yet."
    names = _names(rows)
    won = [one for one in known if one.clear]
    if not won:
        return f"nobody won: {_why(known, names)}."
    said = [
        f"{names[one.leader.label]} won in {one.metric.title}, by "
        f"{one.metric.text(one.leads[0].seeds.mean)} over {names[one.leads[0].rival.label]}"
        for one in won
    ]
    lost = [f"in {one.metric.title} nobody did" for one in known if not one.clear]
    same = len({one.leader.label for one in won}) == 1
    if same and len(won) > 1:
        parts = [
            f"by {one.metric.text(one.leads[0].seeds.mean)} in {one.metric.title} over "
            f"{names[one.leads[0].rival.label]}"
            for one in won
        ]
        said = [f"{names[won[0].leader.label]} won, {' and '.join(parts)}"]
    return "; ".join([*said, *lost]) + "."


def _why(found: list[Verdict], names: dict[str, str]) -> str:
    """Why there is no winner."""
    if all(one.leads[0].seeds.mean == 0 for one in found):
        level = [one.rival for one in found[0].leads if one.seeds.mean == 0]
        return f"{listed([names[row.label] for row in (found[0].leader, *level)])} are level"
    pairs = min(one.leads[0].seeds.pairs for one in found)
    if pairs < FEWEST:
        seeds = "one seed" if pairs == 1 else count(pairs, "seed")
        return f"{seeds} cannot tell a lead from luck"
    if not any(one.beaten for one in found):
        return "no loss leads by more than luck"
    shared = []
    for one in found:
        ahead = [one.leader, *(lead.rival for lead in one.leads if lead not in one.beaten)]
        if len(ahead) > len(one.leads):
            shared.append(f"in {one.metric.title} nobody is ahead by more than luck")
        else:
            together = listed([names[row.label] for row in ahead])
            shared.append(f"in {one.metric.title}, {together} share the lead")
    return "; ".join(shared)


def _names(rows: list[Row]) -> dict[str, str]:
    """Each row's name: without its numbers, where its loss is there once."""
    losses = [row.loss for row in rows]
    return {
        row.label: registry.title(row.loss)
        if losses.count(row.loss) == 1 and row.loss in registry.LOSSES
        else row.title
        for row in rows
    }


def reading(results: Results) -> str:
    """How to read the picture of the largest training size."""
    rows = results.at(results.train_sizes[-1])
    said = "Small dots are seeds, large ones their means."
    if results.seeds == 1:
        said = "A dot is a loss with its one seed: no interval can be made of that."
    found = [verdict(rows, METRICS[name]) for name in METRICS_FIRST]
    known = [one for one in found if one is not None and one.leads]
    if known and not any(one.learned for one in known):
        said += " Nothing is better than guessing yet, so nobody is ahead."
    elif any(map(_halves, known)):
        said += (
            " A bar is the 95 % interval of a loss's distance to the best mean (the dotted line), "
            "paired by seed and corrected for the number of comparisons: where it reaches the "
            "line, the lead may be luck."
        )
    elif results.seeds > 1:
        said += f" There are no intervals: {count(results.seeds, 'seed')} show too little for them."
    for one in known:
        ranked = (one.leader, *(lead.rival for lead in one.leads))
        values = {row.label: row.values(one.metric.name).values() for row in ranked}
        if far_off({label: mean_and_spread(v)[0] for label, v in values.items()}, one.metric):
            return f"{said} What is far worse than the rest stands at the edge."
    return said


def panel(results: Results, size: int, metric: Metric) -> Panel:
    """Each loss a row: its seeds, their mean, and how sure its distance to the leader is."""
    rows = results.at(size)
    found = verdict(rows, metric)
    halves = _halves(found)
    means = {row.label: mean_and_spread(row.values(metric.name).values())[0] for row in rows}
    near = [row for row in rows if row.label not in far_off(means, metric)]
    axis = _axis(near, metric, halves)
    marks: list[Mark] = []
    if found is not None and halves:
        best = means[found.leader.label]
        marks.append(Line([(best, len(rows) - 0.5), (best, -0.5)], "muted", "guide", dash=2))
    for place, row in enumerate(rows):
        ink = toned(row.loss, results.variant(row))
        values = list(row.values(metric.name).values())
        mean, half = means[row.label], halves.get(row.label)
        if not values or row.broken(metric.name):
            continue
        words = f"{row.title}: {metric.text(mean)}"
        if half is not None:
            low, high = (min(max(mean + end, axis[0]), axis[1]) for end in (-half, half))
            marks.append(Line([(low, place), (high, place)], ink, "interval"))
            words += f" ± {metric.text(half)}" if half < math.inf else ", no interval"
        if row not in near:
            mean = axis[0] if metric.higher else axis[1]
        elif len(values) > 1:
            marks += [Dot((value, place), ink, metric.text(value), 1.8) for value in values]
        marks.append(Dot((mean, place), ink, words, 5.0))
    return Panel(
        f"{metric.title} on the test set, by loss, {metric.direction}: "
        + ", ".join(f"{row.title} {_note(row, metric, means[row.label])}" for row in rows),
        axis,
        (len(rows) - 0.5, -0.5),
        metric.direction,
        y_names=[row.title for row in rows],
        y_notes=[_note(row, metric, means[row.label]) for row in rows],
        marks=marks,
    )


def _halves(found: Verdict | None) -> dict[str, float]:
    """Half of the interval of each rival's distance to the leader, by the rival's label.

    None if nobody has one. Where others have, a rival without (its distance is the same with every
    seed) has one without end: a bare dot would look like a sure distance.
    """
    if found is None:
        return {}
    intervals = {lead.rival.label: found.corrected(lead) for lead in found.leads}
    halves = {label: one.high - one.mean for label, one in intervals.items()}
    if all(map(math.isnan, halves.values())):
        return {}
    return {label: math.inf if math.isnan(half) else half for label, half in halves.items()}


def far_off(means: Mapping[str, float], metric: Metric) -> set[str]:
    """Losses so much worse than most that they would squeeze the rest into a corner.

    Their distance to the best is three times that of the loss before them; never half of all.

    >>> found = {"ce": 0.94, "focal": 0.93, "penex": 0.95, "ex": 0.3}
    >>> far_off(found, METRICS["accuracy"])
    {'ex'}
    """
    sign = 1 if metric.higher else -1
    known = sorted(
        ((sign * mean, label) for label, mean in means.items() if not math.isnan(mean)),
        reverse=True,
    )
    away = [known[0][0] - mean for mean, _ in known]
    for k in reversed(range(len(known) // 2 + 1, len(known))):
        if away[k] > 3 * away[k - 1] > 0:
            return {label for _, label in known[k:]}
    return set()


def _axis(rows: list[Row], metric: Metric, halves: dict[str, float]) -> Point:
    """All values, and of intervals what leaves the values a third of the room or more."""
    values = {row.label: list(row.values(metric.name).values()) for row in rows}
    low, high = limits(value for some in values.values() for value in some)
    span = high - low
    middles = {label: mean_and_spread(some)[0] for label, some in values.items()}
    known = [(middle, halves[label]) for label, middle in middles.items() if label in halves]
    ends = [middle + sign * half for middle, half in known for sign in (-1, 1)]
    low, high = max(min([low, *ends]), low - span), min(max([high, *ends]), high + span)
    if not any(value < 0 for some in values.values() for value in some):
        low = max(low, 0.0)  # nothing that is drawn here can be below
    return low, min(high, 1.0) if metric.name == "accuracy" else high


def _note(row: Row, metric: Metric, mean: float) -> str:
    if row.broken(metric.name):
        return "not finite"
    return ("diverged" if row.diverged else "–") if math.isnan(mean) else metric.text(mean)
