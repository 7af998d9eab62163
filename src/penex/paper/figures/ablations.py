"""The exponential loss without PENEX's penalty (the paper's fig:metric_curves_ablations)."""

from dataclasses import replace
from typing import Any

from penex import registry
from penex.metrics import METRICS
from penex.paper import plan
from penex.paper.figures import over_epochs
from penex.paper.figures.picture import Picture, Point, Shown, Source, Verdict, below
from penex.report.figures import grid
from penex.report.results import Results, Row
from penex.report.statistics import paired_difference

PARTS = {
    "a": ("penex", "ex", "conex_hard"),
    "b": ("penex", "conex_penalty", "conex_lagrangian"),
}
_ACCURACY = METRICS["accuracy"]
_NEEDS = "penex reproduce ablations"


def draw(results: Results) -> Any:
    """a) without constraint or with it built in; b) by constrained optimisation."""
    lines = []
    for part, names in PARTS.items():
        rows = [row for row in results.rows if row.loss in names]
        if any(row.done for row in rows):
            shown = over_epochs.panels(replace(results, rows=rows), robust=True)
            (title, panel), *rest = shown
            lines.append([(f"{part}) {title}", panel), *rest])
    return grid(lines, 2.6, 2.2)


def points(results: Results) -> list[Point]:
    """Which break down, and which only do worse."""
    rows = {row.loss: row for row in results.rows if row.done}
    return [
        *(_breaks_down(name, rows.get(name)) for name in PARTS["a"][1:]),
        *(_is_worse(name, rows.get(name), rows.get("penex")) for name in PARTS["b"][1:]),
    ]


def _breaks_down(name: str, row: Row | None) -> Point:
    claim = f"{registry.title(name)} breaks down early"
    if row is None:
        return Point(claim, "not trained", "There are no records of it.")
    ended = over_epochs.ends(row, _ACCURACY)
    last = row.values("accuracy", "validation")
    chance = 1 / (row.classes or 10)
    guessing = [seed for seed, value in last.items() if value < 2 * chance]
    broken = len(row.diverged) + len(guessing)
    verdict: Verdict = "unclear"
    if broken in (0, len(row.done)):
        verdict = "holds" if broken else "does not hold"
    epochs = ", ".join(f"{epoch:g}" for epoch, _ in ended.values())
    said = f"{len(row.diverged)} of {len(row.done)} runs diverged"
    said += f", with no number after epoch {epochs}" if epochs else ""
    if last:
        values = ", ".join(f"{value:.3f}" for value in last.values())
        said += f"; accuracy of those that ended: {values}"
    return Point(claim, verdict, f"{said}.")


def _is_worse(name: str, row: Row | None, ours: Row | None) -> Point:
    claim = f"{registry.title(name)} trains, but ends worse than PENEX"
    if row is None or ours is None:
        return Point(claim, "not trained", "There are no records of it.")
    if row.diverged:
        said = f"{len(row.diverged)} of {len(row.done)} runs diverged."
        return Point(claim, "does not hold", said)
    less = paired_difference(
        row.values("accuracy", "validation"), ours.values("accuracy", "validation")
    )
    rough = {r.title: list(over_epochs.roughness(r, _ACCURACY).values()) for r in (row, ours)}
    known = (f"{title} {sum(one) / len(one):.4f}" for title, one in rough.items() if one)
    steps = ", ".join(known) or "too few epochs"
    return Point(
        claim,
        below(less),
        f"Its validation accuracy less PENEX's after the last epoch: {less.words}. The mean step "
        f"of the accuracy from epoch to epoch in the second half: {steps}.",
    )


def shown(results: Results) -> Shown:
    """The figure of some records."""
    return Shown(
        lambda: draw(results),
        points(results),
        f"{results.seeds_in_words}; a dot is where a run had its last finite number, after which "
        f"it is not drawn. The axes show what most runs reach. {results.made_with}",
    )


def _make(source: Source) -> Shown | None:
    (sweep,) = plan.sweeps()["ablations"]
    found = source.load(sweep.task, sweep.losses, _NEEDS)
    trained = 0 if found is None else sum(bool(row.done) for row in found.rows)
    return shown(found) if found is not None and trained > 1 else None


PICTURE = Picture(
    "ablations",
    "Ablations on CIFAR-10",
    "Larger is better. a) The exponential loss without any constraint, or with the zero-sum "
    "constraint built into the model, breaks down early (the second one has NaN as output from "
    "about epoch 80). b) Constrained optimisation of CONEX trains, but ends in worse optima and "
    "is less stable than PENEX, with more to tune.",
    _make,
    _NEEDS,
)
