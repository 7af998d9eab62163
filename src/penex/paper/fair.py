"""A comparison that a hostile reviewer accepts: every loss at its own rate, with the same effort.

The paper fixes one learning rate for all losses, and a better rate gains more than one loss gains
over another. Here each loss has the same number of trials over its rate and its parameter, the
same rates for all; trials are judged by the cross-entropy of the validation set at a fitted
temperature, so that no loss gains by the scale of its outputs. The test set is looked at once, with
new seeds, after the last epoch and after the best, at the loss's temperature and at a fitted one.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from penex.lab.records import OBJECTIVE, Record, archived
from penex.lab.records.views import SELECTS, View
from penex.lab.tasks import Task, find
from penex.lab.training.compare import Comparison
from penex.lab.tuning.search import Tuning
from penex.lab.tuning.storage import JOURNAL, open_storage
from penex.lab.tuning.study import all_studies, progress
from penex.lab.tuning.values import tuned
from penex.metrics import METRICS
from penex.registry import Parameter, title_of
from penex.report import ways
from penex.report.results import Results
from penex.report.statistics import verdict
from penex.report.tables import marked_down
from penex.report.words import judged

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
    "penex_negative",
    "penex_negative:rho=1e-6",
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
    "penex_negative": _searched("alpha", -0.7, -0.05, log=False),
}


def trials(smoke: bool) -> int:
    """How many trials a study has; two where all of it is only tried."""
    return 2 if smoke else TRIALS


def task(name: str) -> Task:
    """A task with the search of this table."""
    return replace(find(name), search={**find(name).search, "brier": (), "ce": (), **SEARCH})


def study(
    one: Task, losses: tuple[str, ...], changes: dict[str, int], number: int = TRIALS
) -> Tuning:
    """What is tuned, in one batch, so that no suggestion depends on another's result."""
    return Tuning(one, losses, number, number, changes=dict(changes), along=("lr",), view=JUDGED)


def finished(out: Path, name: str, number: int) -> Counter[str]:
    """How many trials the studies of a task have, by loss; at most so many as are wanted."""
    found: Counter[str] = Counter()
    if archived.exists(out / name / JOURNAL):
        with contextlib.closing(open_storage(None, out / name, existing=True)) as storage:
            for loss, one in all_studies(storage, name).items():
                found[loss] = min(progress(one, loss, number).finished, number)
    return found


def is_closed(out: Path, name: str) -> bool:
    """Whether the studies of a task lie in an archive, where none can be gone on with."""
    path = out / name / JOURNAL
    return not path.exists() and archived.holds(path)


def comparison(one: Task, losses: tuple[str, ...], seeds: int, out: Path) -> Comparison:
    """The losses at what their studies found."""
    like = Comparison(one, losses[:1], 1).runs
    found = tuned(one, losses, like, None, out / one.name)
    sources = {each.loss: each.source for each in found}
    return Comparison(one, tuple(sources), seeds, sources=sources)


_JUDGED = tuple(
    (name, View(select, name != "accuracy"))
    for select in SELECTS
    for name in ("accuracy", "cross_entropy")
)


def table(results: Results) -> Iterator[list[str]]:
    """The rows of a task's table, its head first."""
    first, *rest = ways.HEADS
    yield [first, "values", *rest]
    for row, (_, *cells) in zip(results.rows, ways.lines(results.rows), strict=True):
        yield [*names(row.label), *cells]


def names(label: str) -> tuple[str, str]:
    """A contender's name without what was tuned, and what was tuned.

    >>> names("penex:rho=1e-06,alpha=0.0531@lr=5.6e-05")
    ('PENEX (rho=1e-06)', 'alpha=0.0531, lr=5.6e-05')
    """
    loss, _, own = label.partition("@")
    name, _, given = loss.partition(":")
    searched = {one.name for one in SEARCH.get(name, ())}
    pairs = [pair for pair in given.split(",") if pair]
    tuned = [pair for pair in pairs if pair.partition("=")[0] in searched]
    held = [pair for pair in pairs if pair not in tuned]
    short = title_of(":".join([name, ",".join(held)]) if held else name)
    return short, ", ".join([*tuned, *filter(None, own.split(","))])


def verdicts(results: Results) -> Iterator[str]:
    """Who leads, and of whom it is clear, in four ways to judge."""
    short = [replace(row, title=names(row.label)[0]) for row in results.rows]
    for name, view in _JUDGED:
        found = verdict([ways.viewed(row, view) for row in short], METRICS[name])
        if found is not None and found.leads:
            yield f"{ways.head(name, view).partition(', ')[2].capitalize()}: {judged(found)}"


class Choice(NamedTuple):
    """What a study would have chosen after fewer epochs, and what it chose.

    Attributes:
        title: of the loss.
        early: the values of the trial that was best after the fewer epochs.
        late: those of the one that was best after all.
        lost: by how much the first one's cross-entropy is above the other's, after all.
    """

    title: str
    early: dict[str, float]
    late: dict[str, float]
    lost: float


def lengths(out: Path, name: str, epochs: int) -> list[Choice]:
    """Whether shorter trials would have chosen alike: trials at a constant rate hold the answer.

    By the cross-entropy of the validation set at the loss's own temperature, which curves have.

    Args:
        out: the folder of all tasks.
        name: of the task.
        epochs: of the shorter trials.
    """
    found = []
    with contextlib.closing(open_storage(None, out / name, existing=True)) as storage:
        for loss, one in all_studies(storage, name).items():
            trials: list[tuple[float, float, dict[str, float]]] = []
            for trial in one.get_trials(deepcopy=False):
                record = Record(out / trial.user_attrs.get("record", ""))
                if trial.value is not None and record.is_done:
                    seen = _seen(record)
                    if epochs in seen and max(seen) > epochs:
                        trials.append((seen[epochs], seen[max(seen)], dict(trial.params)))
            if len(trials) < TRIALS:
                continue
            first = min(trials, key=lambda t: t[0])
            last = min(trials, key=lambda t: t[1])
            found.append(Choice(title_of(loss), first[2], last[2], first[1] - last[1]))
    return found


def _seen(record: Record) -> dict[int, float]:
    """The objective after each epoch that is kept."""
    return {line["epoch"]: float(line["validation"][OBJECTIVE]) for line in record.metrics()}


def chapter(found: list[Results], out: Path) -> str:
    """The document: how it was made, a table and the verdicts a task, and the check of lengths."""
    parts = [_INTRODUCTION]
    for usual in found:
        text = [f"## {find(usual.task).title}", ""]
        text.append(marked_down(table(usual)))
        made = usual.made_with.replace("--data data --out out --slim slim", "--data DATA --out OUT")
        text += ["", f"{usual.seeds_in_words}, mean ± standard deviation over seeds. {made}", ""]
        text += [f"- {said}" for said in verdicts(usual)]
        text += [f"- {said}" for said in _shorter(usual)]
        parts.append("\n".join(text))
        checked = lengths(out, usual.task, SHORT)
        if checked:
            parts.append("\n".join(_checked(checked, usual.task)))
    return "\n\n".join(parts) + "\n"


def _shorter(results: Results) -> Iterator[str]:
    """What is to be known where trials were shorter than runs."""
    made = "it was made with epochs "
    known = {s.partition(made)[2] for s in results.sources.values() if made in s}
    for epochs in sorted(known):
        yield (
            f"The values are of trials of {epochs} epochs. On CIFAR-10 with a tenth of the labels "
            "wrong such trials chose higher rates than full ones (see the check there), so read "
            "the best epoch's columns before the last's. `penex reproduce fair` without "
            "`--trial-epochs` makes this table with trials of full length."
        )


def _checked(checked: list[Choice], name: str) -> Iterator[str]:
    yield f"### Would trials of {SHORT} epochs have chosen alike on {name}?"
    yield ""
    yield (
        "Trials have a constant rate, so a shorter one is the beginning of a longer one. Judged by "
        "the cross-entropy of the validation set at the loss's own temperature:"
    )
    yield ""
    last = "best at the end", "lost, validation cross-entropy"
    lines = [["loss", f"best after {SHORT} epochs", *last]]
    for one in checked:
        values = (", ".join(f"{k} {v:.3g}" for k, v in x.items()) for x in one[1:3])
        lines.append([one.title, *values, f"{one.lost:.3f}"])
    yield marked_down(lines)


SHORT = 50  # epochs of a trial where all of them would take too long

_INTRODUCTION = """# A fair table: every loss at its own rate

<!-- Written by `penex reproduce fair --read-only --out results/fair`; do not edit. -->

Each loss has the same twelve trials over its learning rate and its parameter (the same rates for
all, log-uniform from 0.3 to 30 times the paper's), seed 0. The trial with the lowest cross-entropy
of the validation set after its last epoch, at a temperature fitted to that set, decides: no loss
gains by the scale of its outputs. Then seeds 0 to 4 are trained for 200 epochs and the test set is
looked at once, after the last epoch and after the best by validation cross-entropy, at the loss's
own temperature and at one fitted to the validation set (*fitted*). Where training labels are wrong
by people, so are those of the validation set. Bold is best beyond luck (Holm over all pairs of a
table's losses, 5 seeds); the sentences below a table say who leads, and of whom it is clear."""
