"""The paper's main table as comparisons, and what it says of its parameters as sweeps."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from penex.lab.compare import FIVE, Comparison
from penex.lab.records import Record
from penex.lab.runs import LossSpec, Run
from penex.lab.tasks import Task, find
from penex.lab.tuning.values import Tuned, tuned

TABLE1 = ("cifar10", "cifar10_noisy", "cifar100", "pathmnist")
LOSSES = (*FIVE, "ce_zloss", "unnormalised")  # our two extras have their defaults


@dataclass(frozen=True)
class Sweep:
    """Losses in several versions on one task.

    Attributes:
        task: its name.
        title: what is varied.
        why: what is asked, as a sentence.
        losses: the versions; the others are held against the first.
        claim: what the paper says of it; empty if nothing.
        authors_first: whether each loss has the authors' value first, and is held against that.
        sources: where the values of a version came from, in words; of those that were looked up.
    """

    task: str
    title: str
    why: str
    losses: tuple[str, ...]
    claim: str = ""
    authors_first: bool = False
    sources: dict[str, str] = field(default_factory=dict)


_RHO = Sweep(
    "cifar10",
    "The average and the bounds of rho on CIFAR-10",
    "The paper fixes the weight of the average at 0.1 and the bounds at 1e-6 and 100 for all "
    "experiments: do they matter?",
    (
        "penex:alpha=0.03",
        "penex:alpha=0.03,ema=0.01",
        "penex:alpha=0.03,ema=0.5",
        "penex:alpha=0.03,ema=1",
        "penex:alpha=0.03,order=listing",
        "penex:alpha=0.03,rho_min=1e-12,rho_max=1e12",
        "penex:alpha=0.03,rho_min=0.01",
        "penex:alpha=0.03,rho_max=0.001",
    ),
    "the weight of the average and the bounds of rho need no tuning",
)
_ALPHA = Sweep(
    "cifar100",
    "The sensitivity alpha on CIFAR-100",
    "The paper tunes alpha and no other number: how much hangs on it?",
    tuple(f"penex:alpha={alpha}" for alpha in (0.085, 1e-5, 0.01, 0.03, 0.2, 0.4)),
    "alpha needs little tuning",
)
_SMOKE_SIZES = {"cifar100": 100}  # one of each class; others train on forty
_CLASSES = {"cifar-10-batches-py": 10, "cifar-100-python": 100}


def sweeps() -> dict[str, tuple[Sweep, ...]]:
    """The sweeps by name, one for each of their tasks."""
    code = "penex:alpha=0.085,order=listing", "penex:alpha=0.085,rho_min=1e-10"
    gap = _gap("cifar100", *code), _gap("cifar10"), _gap("cifar10_noisy")
    return {"rho": (_RHO,), "alpha": (_ALPHA,), "gap": gap}


def _gap(name: str, *others: str) -> Sweep:
    """PENEX on a task, beside the other loss of the authors' code: with their rho, and with ours.

    Args:
        name: of the task.
        others: more versions, with the numbers of their code.
    """
    task = find(name)
    printed = task.paper["penex"]
    theirs = task.tuned["ex_log_penalty"]
    return Sweep(
        name,
        f"Where PENEX's gap may come from: {task.title}",
        f"The paper prints an accuracy of {printed['accuracy']:.3f}, a cross-entropy of "
        f"{printed['cross_entropy']:.3f} and a Brier score of {printed['brier']:.3f}: does a "
        "difference between its text and the authors' code explain what we miss of them? "
        "`ex_log_penalty` is a loss that the code has beside PENEX, with an alpha of its own and "
        "rho 1; ours is alpha."
        + (" The order and the lower bound of rho are those of the code." if others else ""),
        (
            str(LossSpec("penex", dict(task.tuned["penex"]))),
            *others,
            str(LossSpec("ex_log_penalty", {**theirs})),
            str(LossSpec("ex_log_penalty", {"alpha": theirs["alpha"]})),
        ),
    )


def authors(task: Task) -> tuple[str, ...]:
    """The losses of the table with the values in the authors' configurations.

    >>> from penex.lab.tasks import find
    >>> authors(find("cifar10"))[4]
    'penex:alpha=0.03'
    """
    return tuple(str(LossSpec(name, dict(task.tuned.get(name, {})))) for name in LOSSES)


def plan(
    names: tuple[str, ...],
    seeds: int,
    *,
    data: Path | None = None,
    studies: Path | None = None,
    smoke: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> list[Comparison]:
    """The comparisons of the table, one a task.

    Args:
        names: of tasks in `TABLE1`.
        seeds: how many.
        data: the folder with the official files; None for the usual one.
        studies: the folder of all tasks whose studies give the values; None for the authors'.
        smoke: True for one epoch on the stand-ins.
        say: gets a line for each value of a study, about its source.
    """
    comparisons = []
    for name in names:
        sources: dict[str, str] = {}
        task = _task(name, data)
        losses = authors(task)
        if studies is not None:
            sources = {one.loss: one.source for one in _tuned(task, studies)}
            losses = tuple(sources)
            for loss, source in sources.items():
                say(f"{name}, {loss}: {source}")
        comparisons.append(_comparison(task, losses, seeds, sources, smoke=smoke))
    return comparisons


def _task(name: str, data: Path | None) -> Task:
    task = find(name)
    return task if data is None else replace(task, collect=partial(task.collect, data))


def _tuned(task: Task, studies: Path) -> list[Tuned]:
    return tuned(task, LOSSES, Comparison(task, ("ce",), 1).runs(), None, studies / task.name)


def studied(name: str, studies: Path) -> Sweep | None:
    """The authors' values and, if our studies found others, ours; None if they did not.

    Args:
        name: of the task.
        studies: the folder of all tasks.
    """
    task = find(name)
    pairs = [
        (theirs, one)
        for loss, theirs, one in zip(LOSSES, authors(task), _tuned(task, studies), strict=True)
        if loss in task.tuned and one.from_study and one.loss != theirs
    ]
    if not pairs:
        return None
    return Sweep(
        name,
        f"Our studies' values beside the authors': {task.title}",
        "Is a value that we found better than the one the authors give?",
        tuple(loss for theirs, one in pairs for loss in (theirs, one.loss)),
        authors_first=True,
        sources={one.loss: one.source for _, one in pairs},
    )


def plan_sweep(
    sweep: Sweep, seeds: int, *, data: Path | None = None, smoke: bool = False
) -> Comparison:
    """A sweep as a comparison; the arguments are those of `plan`."""
    return _comparison(_task(sweep.task, data), sweep.losses, seeds, sweep.sources, smoke=smoke)


def _comparison(
    task: Task, losses: tuple[str, ...], seeds: int, sources: dict[str, str], *, smoke: bool
) -> Comparison:
    sizes = (_SMOKE_SIZES.get(task.name, 40),) if smoke else ()
    changes = {"epochs": 1} if smoke else {}
    return Comparison(task, losses, seeds, sizes, changes, sources=sources)


def missing(comparison: Comparison, out: Path) -> list[Run]:
    """The runs of a comparison that are not there."""
    return [run for run in comparison.runs() if not Record.of(out, run.config).is_done]


def write_stand_ins(folder: Path) -> None:
    """Tiny files of noise in the official formats, for every task of the table."""
    random = np.random.default_rng(0)

    def cifar(path: Path, count: int, label: str, classes: int) -> None:
        content = {
            "data": random.integers(0, 256, (count, 3072), dtype=np.uint8),
            label: [k % classes for k in range(count)],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(content, protocol=2))

    ten, hundred = (folder / name for name in _CLASSES)
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        cifar(ten / name, 20, "labels", 10)
    cifar(hundred / "train", 200, "fine_labels", 100)
    cifar(hundred / "test", 100, "fine_labels", 100)
    meta = {"fine_label_names": [f"class {k}" for k in range(100)]}
    (hundred / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    arrays = {}
    for part, count in (("train", 54), ("val", 9), ("test", 36)):
        arrays[f"{part}_images"] = random.integers(0, 256, (count, 28, 28, 3), dtype=np.uint8)
        arrays[f"{part}_labels"] = (np.arange(count) % 9).astype(np.uint8)[:, None]
    np.savez_compressed(folder / "pathmnist.npz", allow_pickle=False, **arrays)
