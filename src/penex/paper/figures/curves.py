"""Validation curves of every task and metric (the paper's fig:metric_curves, _all)."""

from typing import Any

from penex import registry
from penex.lab.tasks import find
from penex.metrics import METRICS
from penex.paper.figures import over_epochs
from penex.paper.figures.picture import Picture, Point, Shown, Source, Verdict, rise, rises, stays
from penex.paper.plan import FLOOR, TABLE1
from penex.paper.printed import authors_of
from penex.report.figures import grid
from penex.report.results import Results, Row
from penex.report.statistics import paired_difference

_NLL = METRICS["cross_entropy"]
_NEEDS = "penex reproduce table1, penex reproduce floor"
_LITTLE = 0.02  # of cross-entropy: less is no overfitting


def losses(task: str) -> list[str]:
    """The table's five with the authors' values, and PENEX with rho at its floor."""
    known = authors_of(task)
    named = [(name, dict(known.get(name, {}))) for name in registry.FIVE]
    named.append((registry.SUBJECT, {**known[registry.SUBJECT], "rho": FLOOR}))
    words = [(name, ",".join(f"{k}={v}" for k, v in given.items())) for name, given in named]
    return [f"{name}:{given}" if given else name for name, given in words]


def draw(every: list[Results]) -> Any:
    """A line of panels for each task, a panel for each metric."""
    lines = []
    for results in every:
        (title, panel), *rest = over_epochs.panels(results)
        lines.append([(f"{results.task}: {title}", panel), *rest])
    return grid(lines, 2.6, 2.0)


def points(results: Results) -> list[Point]:
    """Whether PENEX ends at least as good as every rival, and which losses overfit."""
    rows = {row.label: row for row in results.rows if row.values("accuracy", "validation")}
    rivals = [row for row in rows.values() if row.loss != registry.SUBJECT]
    ours = [row for row in rows.values() if row.loss == registry.SUBJECT]
    if not rivals or not ours:
        return []
    found = [_as_good(results.task, one, rivals) for one in ours]
    for row in (*(one for one in rivals if one.loss == registry.BASELINE), *ours):
        change = rise(over_epochs.shared(row, _NLL))
        base = row.loss == registry.BASELINE
        found.append(
            Point(
                f"{results.task}: {over_epochs.short(row)} "
                + ("overfits" if base else "shows no sign of overfitting"),
                rises(change, _LITTLE) if base else stays(change, _LITTLE),
                "From the best epoch to the last, validation cross-entropy changes by "
                f"{change.words}.",
            )
        )
    return found


def _as_good(task: str, ours: Row, rivals: list[Row]) -> Point:
    """By the validation set after the last epoch, against the best rival in each metric."""
    said, marks = [], []
    for metric in over_epochs.SHOWN:
        sign = 1 if metric.higher else -1
        values = {row.label: row.values(metric.name, "validation") for row in rivals}
        best = max(rivals, key=lambda r: sign * sum(values[r.label].values()) / len(r.done))
        lead = paired_difference(ours.values(metric.name, "validation"), values[best.label])
        better = sign * lead.mean > 0
        marks.append(("better" if better else "worse") if lead.excludes_zero else "")
        said.append(f"{metric.title} {lead.words} against {over_epochs.short(best)}")
    verdict: Verdict = "unclear"
    if "worse" in marks:
        verdict = "does not hold"
    elif set(marks) == {"better"}:
        verdict = "holds"
    return Point(
        f"{task}: {over_epochs.short(ours)} ends at least as good as the best rival in each metric",
        verdict,
        f"Less the best rival: {'; '.join(said)}.",
    )


def _of(*tasks: str) -> Any:
    def make(source: Source) -> Shown | None:
        found = [source.load(task, losses(task), _NEEDS) for task in tasks]
        every = [one for one in found if one is not None]
        if not every:
            return None
        titles = "; ".join(find(one.task).title for one in every)
        return Shown(
            lambda: draw(every),
            [point for one in every for point in points(one)],
            f"{titles}. The authors' values; {every[0].seeds_in_words} (thin lines are seeds). "
            "PENEX thick with rho by Algorithm 1; dashed with rho held at 1e-6, which the printed "
            f"numbers fit. The best rival of a metric is picked by the same runs, which favours "
            "it. ECE is that of the whole set, where the paper has a mean over batches. "
            f"{every[0].made_with}",
        )

    return make


ONE = Picture(
    "curves_cifar100",
    "Validation curves on CIFAR-100",
    "Larger is better. Tuned PENEX (thick) regularises well, often generalises better than the "
    "other regularisers, and shows no sign of overfitting, unlike cross-entropy.",
    _of("cifar100"),
    _NEEDS,
)
ALL = Picture(
    "curves",
    "Validation curves of all tasks",
    "Larger is better. PENEX does at least as well as every other regulariser and typically "
    "better, on every task but ImageNet (which, like BBC News, has no records here).",
    _of(*TABLE1),
    _NEEDS,
)
