"""Test metrics against the number of training images: what the paper's discussion concludes."""

from penex import registry
from penex.paper import plan
from penex.paper.figures.picture import Picture, Point, Shown, Source, Verdict
from penex.report.figures import train_size
from penex.report.results import Results, Row
from penex.report.statistics import FEWEST, Interval, paired_difference


def leads(results: Results) -> dict[int, Interval]:
    """The accuracy of PENEX (rho estimated) less cross-entropy's on the test set, by size."""

    def row(size: int, loss: str) -> Row | None:
        rows = [r for r in results.at(size) if r.loss == loss and "rho=" not in r.label]
        return rows[0] if rows and rows[0].values("accuracy") else None

    found = {}
    for size in results.train_sizes:
        ours, base = row(size, registry.SUBJECT), row(size, registry.BASELINE)
        if ours is not None and base is not None:
            found[size] = paired_difference(ours.values("accuracy"), base.values("accuracy"))
    return found


def points(results: Results) -> list[Point]:
    """Whether the lead is larger with less data."""
    claim = "PENEX leads cross-entropy by more, the fewer the training images"
    found = leads(results)
    said = "; ".join(f"{size:,}: {lead.words}" for size, lead in found.items())
    if len(found) < 2:
        return [Point(claim, "not trained", f"Accuracy of PENEX less CE: {said or 'none'}.")]
    few, many = found[min(found)], found[max(found)]
    verdict: Verdict = "unclear"
    if min(few.pairs, many.pairs) < FEWEST:
        pass
    elif few.low > many.high:
        verdict = "holds"
    elif few.high < many.low:
        verdict = "does not hold"
    return [Point(claim, verdict, f"Accuracy of PENEX less CE on the test set: {said}.")]


def shown(results: Results) -> Shown:
    """The figure of some records."""
    return Shown(
        lambda: train_size(results),
        points(results),
        f"{results.seeds_in_words}; mean ± standard deviation over seeds. {results.made_with}",
    )


def _make(source: Source) -> Shown | None:
    (sweep,) = plan.sweeps()["size"]
    found = source.load(sweep.task, sweep.losses, PICTURE.needs, sweep.train_sizes)
    trained = {row.train_size for row in found.rows if row.done} if found else set()
    return shown(found) if found is not None and len(trained) > 1 else None


PICTURE = Picture(
    "size",
    "The number of training images",
    "No figure of the paper's, but what its discussion concludes: PENEX is of advantage with "
    "little data only.",
    _make,
    "penex reproduce size",
)
