"""Which rho gives the numbers that the paper prints, and the curve that its authors drew."""

from collections.abc import Iterator

from penex.metrics import METRICS
from penex.paper.claims import Claim, Verdict, caveat, is_sound
from penex.paper.plan import Sweep
from penex.report.results import Results, Row
from penex.report.statistics import mean_and_spread, paired_difference

_JUDGED = tuple(METRICS[name] for name in ("accuracy", "cross_entropy", "brier"))


def sentences(sweep: Sweep, results: Results) -> list[str]:
    """Which version is nearest to the print, and whether the suspect is another than the first."""
    rows = {row.label: row for row in results.rows if is_sound(row)}
    if not sweep.printed or not rows:
        return []
    said = [_nearest(sweep, list(rows.values()))]
    first, suspect = rows.get(sweep.losses[0]), rows.get(sweep.suspect)
    if first is not None and suspect is not None:
        said += [_distances(sweep, first, suspect), _difference(first, suspect)]
    facts = next((record.environment for record in results.records()), {})
    said.append(caveat(results.task, facts).strip())
    return [" ".join(filter(None, said))]


def claim(sweep: Sweep, results: Results) -> Claim | None:
    """Whether the first version is the printed one, where it and the suspect differ beyond luck."""
    rows = {row.label: row for row in results.rows if is_sound(row)}
    first, suspect = rows.get(sweep.losses[0]), rows.get(sweep.suspect)
    if not sweep.printed or first is None or suspect is None:
        return None
    nearer = set()
    for metric in _JUDGED:
        name, paper = metric.name, sweep.printed[metric.name]
        if paired_difference(suspect.values(name), first.values(name)).excludes_zero:
            away = {row.label: abs(_mean(row, name) - paper) for row in (first, suspect)}
            nearer.add(min(away, key=lambda label: away[label]))
    verdict: Verdict = "unclear"
    if len(nearer) == 1:
        verdict = "holds" if nearer == {first.label} else "does not hold"
    printed = ", ".join(f"{m.title} {sweep.printed[m.name]:.3f}" for m in _JUDGED)
    words = "The printed numbers of PENEX are those of Algorithm 1, not of rho at its floor"
    return Claim(sweep.task, words, printed, _distances(sweep, first, suspect), verdict)


def _name(row: Row) -> str:
    """A version by its rho, the rest of it being the same."""
    rho = row.argument("rho")
    return "Algorithm 1" if rho is None else f"rho {rho:g}"


def _mean(row: Row, metric: str) -> float:
    return mean_and_spread(row.values(metric).values())[0]


def _nearest(sweep: Sweep, rows: list[Row]) -> str:
    parts = []
    for metric in _JUDGED:
        paper = sweep.printed[metric.name]
        best = min(rows, key=lambda row: abs(_mean(row, metric.name) - paper))
        said = f"{metric.title} of {paper:.3f} is {_name(best)} with {_mean(best, metric.name):.3f}"
        parts.append(said)
    return f"Nearest to the printed {', to the '.join(parts)}."


def _distances(sweep: Sweep, *rows: Row) -> str:
    names = ", ".join(metric.title for metric in _JUDGED)
    parts = []
    for row in rows:
        away = [f"{_mean(row, m.name) - sweep.printed[m.name]:+.3f}" for m in _JUDGED]
        parts.append(f"{_name(row)} {', '.join(away)}")
    return f"Less what is printed, in {names}: {'; '.join(parts)}."


def _difference(first: Row, suspect: Row) -> str:
    parts, clear = [], []
    for metric in _JUDGED:
        less = paired_difference(suspect.values(metric.name), first.values(metric.name))
        parts.append(f"{metric.title} {less.words}")
        clear += [metric.title] if less.excludes_zero else []
    verdict = f"beyond luck in {', '.join(clear)}" if clear else "no more than luck at our power"
    return f"{_name(suspect)} less {_name(first)}: {', '.join(parts)}; {verdict}."


def curves(sweep: Sweep, results: Results) -> list[list[str]]:
    """The authors' curve beside those of the first version and the suspect; empty without one."""
    rows = [row for row in results.rows if row.label in (sweep.losses[0], sweep.suspect)]
    known = [dict(_curve(row)) for row in rows]
    shared = [epoch for epoch in sweep.curve if known and all(epoch in one for one in known)]
    if not shared:
        return []
    table = [["epoch", "the authors' curve", *map(_name, rows)]]
    for epoch in shared:
        ours = (one[epoch] for one in known)
        table.append([str(epoch), f"{sweep.curve[epoch]:.3f}", *ours])
    return table


CAPTION = (
    "Cross-entropy of the validation set over the epochs: the curve that the authors drew (one "
    "run, read off their drawing) and ours, mean ± standard deviation over seeds."
)


def _curve(row: Row) -> Iterator[tuple[int, str]]:
    """The cross-entropy of the validation set at the epochs that every run of a row has."""
    runs = [
        {line["epoch"]: line["validation"].get("cross_entropy") for line in run.history}
        for run in row.records.values()
    ]
    for epoch in runs[0] if runs else ():
        values = [run[epoch] for run in runs if run.get(epoch) is not None]
        if len(values) == len(runs):
            mean, spread = mean_and_spread(values)
            yield epoch, f"{mean:.3f}" + (f" ± {spread:.3f}" if len(values) > 1 else "")
