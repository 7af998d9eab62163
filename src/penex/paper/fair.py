"""A comparison that a hostile reviewer accepts: every loss at its own rate, with the same effort.

The paper fixes one learning rate for all losses, and a better rate gains more than one loss gains
over another. Here each loss has the same number of trials over its rate and its parameter, the
same rates for all; trials are judged by the cross-entropy of the validation set at a fitted
temperature, so that no loss gains by the scale of its outputs. The test set is looked at once, with
new seeds, after the last epoch and after the best, at the loss's temperature and at a fitted one.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from penex.lab.records.views import View
from penex.lab.tasks import Task, find
from penex.lab.training.compare import Comparison
from penex.lab.tuning.plan import Tuning
from penex.lab.tuning.values import tuned
from penex.metrics import METRICS
from penex.registry import Parameter
from penex.report.results import Results, Row
from penex.report.statistics import mean_and_spread

TASKS = ("cifar10_noisy", "cifar10n_worse", "cifar100", "cifar10", "cifar10n_aggre", "cifar100n")
LOSSES = (
    "ce",
    "label_smoothing",
    "confidence_penalty",
    "focal",
    "brier",
    "gce",
    "nce_rce",
    "elr",
    "penex",
    "penex:rho=1e-6",
)
TRIALS = 12
JUDGED = View("last", calibrate=True)


def _searched(name: str, low: float, high: float, *, log: bool = True) -> tuple[Parameter, ...]:
    return (Parameter(name, low, low, high, "", log=log),)


# Twelve trials are few: each parameter is searched where its literature, and ours, found it good.
SEARCH = {
    "label_smoothing": _searched("epsilon", 0.01, 0.5),
    "confidence_penalty": _searched("lambda_", 0.05, 2.0),
    "focal": _searched("gamma", 0.5, 5.0, log=False),
    "gce": _searched("q", 0.1, 0.9, log=False),
    "nce_rce": _searched("a", 0.1, 100.0),
    "elr": _searched("lambda_", 0.5, 10.0),
    "penex": _searched("alpha", 0.01, 1.0),
}


def task(name: str) -> Task:
    """A task with the search of this table."""
    return replace(find(name), search={**find(name).search, "brier": (), "ce": (), **SEARCH})


def study(one: Task, losses: tuple[str, ...], changes: dict[str, int]) -> Tuning:
    """What is tuned, in one batch, so that no suggestion depends on another's result."""
    return Tuning(one, losses, TRIALS, TRIALS, changes=dict(changes), along=("lr",), view=JUDGED)


def comparison(one: Task, losses: tuple[str, ...], seeds: int, out: Path) -> Comparison:
    """The losses at what their studies found."""
    like = Comparison(one, losses[:1], 1).runs
    found = tuned(one, losses, like, None, out / one.name)
    sources = {each.loss: each.source for each in found}
    return Comparison(one, tuple(sources), seeds, sources=sources)


COLUMNS = (
    ("accuracy", View()),
    ("cross_entropy", View()),
    ("cross_entropy", View("last", True)),
    ("brier", View()),
    ("ece", View()),
    ("ece", View("last", True)),
    ("accuracy", View("best")),
    ("cross_entropy", View("best")),
    ("cross_entropy", View("best", True)),
)


def table(by_view: dict[View, Results]) -> Iterator[list[str]]:
    """The rows of a task's table, its head first."""
    yield ["loss", *(_head(name, view) for name, view in COLUMNS)]
    for k, row in enumerate(by_view[View()].rows):
        cells = [_cell(by_view[view].rows[k], name) for name, view in COLUMNS]
        yield [row.title, *cells]


def _head(name: str, view: View) -> str:
    when = "last epoch" if view.select == "last" else "best epoch"
    return f"{METRICS[name].title}, {when}{', fitted' if view.calibrate else ''}"


def _cell(row: Row, name: str) -> str:
    values = list(row.values(name).values())
    if row.diverged or row.broken(name) or not values:
        return "diverged" if row.diverged else "–"
    mean, spread = mean_and_spread(values)
    digits = METRICS[name].digits - 1
    return f"{mean:.{digits}f} ± {spread:.{digits}f}" if len(values) > 1 else f"{mean:.{digits}f}"


def chapter(found: list[dict[View, Results]]) -> str:
    """The tables as Markdown."""
    parts = []
    for by_view in found:
        usual = by_view[View()]
        lines = list(table(by_view))
        text = [f"## {find(usual.task).title}", ""]
        text.append("| " + " | ".join(lines[0]) + " |")
        text.append("|---" * len(lines[0]) + "|")
        text += ["| " + " | ".join(line) + " |" for line in lines[1:]]
        text += ["", f"{usual.seeds_in_words}, mean ± standard deviation. {usual.made_with}", ""]
        parts.append("\n".join(text))
    return "\n".join(parts)
