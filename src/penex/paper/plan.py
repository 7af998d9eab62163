"""The paper's main table as comparisons, and what it says of its parameters as sweeps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penex.lab.records import Record
from penex.lab.tasks import Task, find
from penex.lab.tasks.runs import LossSpec, Run
from penex.lab.training.compare import Comparison
from penex.lab.tuning.values import Tuned, tuned
from penex.paper.printed import CURVES, PRINTED, authors_of
from penex.registry import FIVE

TABLE1 = ("cifar10", "cifar10_noisy", "cifar100", "pathmnist")
TEXTS = ("bbc_news",)  # of the table too, for whoever has an encoder
TUNABLE = FIVE[1:]  # of the table's losses, those with a parameter
LOSSES = (*FIVE, "ce_zloss", "unnormalised")  # our two extras have their defaults
RESNET = ("cifar10_resnet18", "cifar100_resnet18")
TREES = ("tiny_imagenet",)  # what stands for ImageNet on one GPU
AUGMENTED = "flip,crop"  # what 0.947 on CIFAR-10 is otherwise known with


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
        printed: what the paper prints of it, by metric; empty if it prints nothing.
        curve: the cross-entropy of the validation set that the authors drew, by epoch.
        suspect: the version that may be the printed one; one of `losses`.
        train_sizes: how many training images, if several are asked about; none for the task's own.
        changes: of the recipe, for all versions.
    """

    task: str
    title: str
    why: str
    losses: tuple[str, ...]
    claim: str = ""
    authors_first: bool = False
    sources: dict[str, str] = field(default_factory=dict)
    printed: Mapping[str, float] = field(default_factory=dict)
    curve: Mapping[int, float] = field(default_factory=dict)
    suspect: str = ""
    train_sizes: tuple[int, ...] = ()
    changes: Mapping[str, int | float | bool | str] = field(default_factory=dict)


FLOOR = 1e-6  # of rho, in the paper's experiments
_HELD = tuple(10.0**-digits for digits in range(3, 9))

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
)
ALPHAS = (1e-5, 0.2, 0.4, 0.8, 1.6, 3.2)  # of the figure on sensitivity
SIZES = (500, 2_000, 10_000, 40_000)
_ABLATIONS = Sweep(
    "cifar10",
    "The exponential loss without PENEX's penalty: CIFAR-10",
    "Does the exponential loss need this penalty? EX alone has none, CONEX keeps the sum of the "
    "logits at 0: built into the model, by a squared penalty, or by an augmented Lagrangian; alpha "
    "is 1 / (K - 1) there, and the other numbers are the authors'.",
    ("penex:alpha=0.1", "conex_lagrangian", "conex_penalty", "conex_hard", "ex"),
)
IMAGENET_RATES = (1e-3, 1e-5)  # cross-entropy's, and the paper's for PENEX
_IMAGENET = Sweep(
    "tiny_imagenet",
    "A vision transformer at cross-entropy's rate and at a hundredth of it: Tiny-ImageNet",
    "The paper trains PENEX on ImageNet at a hundredth of the others' rate, and does not say why. "
    "Does PENEX need that, with rho as Algorithm 1 estimates it, and with rho at its floor?",
    (
        "ce",
        "label_smoothing",
        *(
            f"penex{held}@lr={rate:g}"
            for held in ("", f":rho={FLOOR:g}")
            for rate in IMAGENET_RATES
        ),
    ),
    changes={"epochs": 30, "warmup_epochs": 3.0, "batch_size": 512, "accumulate": 1},
)


def sweeps() -> dict[str, tuple[Sweep, ...]]:
    """The sweeps by name, one for each of their tasks."""
    code = "penex:alpha=0.085,order=listing", "penex:alpha=0.085,rho_min=1e-10"
    return {
        "floor": tuple(map(_floor, TABLE1)),
        "rho": (_RHO,),
        "alpha": (_ALPHA,),
        "gap": (_gap("cifar100", *code), _gap("cifar10"), _gap("cifar10_noisy")),
        "ablations": (_ABLATIONS,),
        "sensitivity": (_sensitivity("cifar10"), _sensitivity("cifar100")),
        "size": (_size("cifar10"),),
        "imagenet": (_IMAGENET,),
    }


def _sensitivity(name: str) -> Sweep:
    """PENEX with each alpha of the paper's figure, with rho estimated and with rho at its floor."""
    each = [{"alpha": alpha} for alpha in ALPHAS]
    held = [{**one, "rho": FLOOR} for one in each]
    return Sweep(
        name,
        f"Small and large alpha: {find(name).title}",
        "The paper finds that a larger alpha is slower at first, often better at the end, and less "
        "stable if it is very large. Is that so with rho as Algorithm 1 estimates it, and with rho "
        "at its floor?",
        tuple(str(LossSpec("penex", {**one})) for one in (*each, *held)),
    )


def _size(name: str) -> Sweep:
    """The table's losses at several training sizes, and PENEX with rho at its floor."""
    five = tuple(str(LossSpec(loss, {**authors_of(name).get(loss, {})})) for loss in FIVE)
    alpha = authors_of(name)["penex"]["alpha"]
    return Sweep(
        name,
        f"Few and many training images: {find(name).title}",
        "The paper concludes that PENEX is of advantage with little data only: is its lead over "
        "cross-entropy larger with fewer training images?",
        (*five, str(LossSpec("penex", {"alpha": alpha, "rho": FLOOR}))),
        train_sizes=SIZES,
    )


def _floor(name: str) -> Sweep:
    """PENEX on a task as the paper has it, and with rho held."""
    alpha = authors_of(name)["penex"]["alpha"]
    held = {rho: str(LossSpec("penex", {"alpha": alpha, "rho": rho})) for rho in _HELD}
    return Sweep(
        name,
        f"Which rho gives the printed numbers: {find(name).title}",
        "The paper estimates rho by Algorithm 1 and lets it fall to 1e-6 at most. Are the numbers "
        "that it prints those of the estimate, or of a rho that is held?",
        (str(LossSpec("penex", {"alpha": alpha})), *held.values()),
        printed=PRINTED[name]["penex"],
        curve=CURVES.get(name, {}),
        suspect=held[FLOOR],
    )


def _gap(name: str, *others: str) -> Sweep:
    """PENEX on a task, beside what the authors' code has besides: another loss, and its numbers.

    Args:
        name: of the task.
        others: more versions, with the numbers of their code.
    """
    task = find(name)
    ours, theirs = authors_of(name)["penex"], authors_of(name)["ex_log_penalty"]
    return Sweep(
        name,
        f"What the authors' code has besides: {task.title}",
        "Rho held at its floor explains most of what Algorithm 1 misses of the numbers that the "
        "paper prints (`penex reproduce floor`), and nothing here is needed for it. What does the "
        "rest of the authors' code do? `ex_log_penalty` is a loss that it has beside PENEX, with "
        "an alpha of its own and rho 1; ours is alpha."
        + (" The order and the lower bound of rho are those of the code." if others else ""),
        (
            str(LossSpec("penex", {**ours})),
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
    return tuple(str(LossSpec(name, {**authors_of(task.name).get(name, {})})) for name in LOSSES)


def main_table(
    names: tuple[str, ...],
    seeds: int,
    *,
    studies: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Comparison]:
    """The comparisons of the table, one a task.

    Args:
        names: of tasks in `TABLE1` or `TEXTS`.
        seeds: how many.
        studies: the folder of all tasks whose studies give the values; None for the authors'.
        say: gets a line for each value of a study, about its source.
    """
    comparisons = []
    for task in map(find, names):
        sources: dict[str, str] = {}
        if studies is not None:
            sources = {one.loss: one.source for one in _tuned(task, studies)}
            for loss, source in sources.items():
                say(f"{task.name}, {loss}: {source}")
        losses = tuple(sources) or authors(task)
        comparisons.append(Comparison(task, losses, seeds, sources=sources))
    return comparisons


def resnet_table(names: tuple[str, ...], seeds: int, augment: str = "") -> list[Comparison]:
    """The comparisons of the appendix's table, one a task: every loss at its default parameters.

    Args:
        names: of tasks in `RESNET`.
        seeds: how many.
        augment: what is done to images at random; the paper does nothing.

    >>> resnet_table(("cifar10_resnet18",), 3)[0].losses[-2:]
    ('penex', 'penex:rho=1e-06')
    """
    losses = (*FIVE, str(LossSpec("penex", {"rho": FLOOR})))
    changes = {"augment": augment} if augment else {}
    return [Comparison(find(name), losses, seeds, changes=dict(changes)) for name in names]


def _tuned(task: Task, studies: Path) -> list[Tuned]:
    like = Comparison(task, ("ce",), 1).runs
    return tuned(task, LOSSES, like, None, studies / task.name, authors_of(task.name))


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
        if loss in authors_of(name) and one.from_study and one.loss != theirs
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


def plan_sweep(sweep: Sweep, seeds: int) -> Comparison:
    """A sweep as a comparison."""
    task, sizes = find(sweep.task), sweep.train_sizes
    changes = dict(sweep.changes)
    return Comparison(task, sweep.losses, seeds, sizes, changes=changes, sources=sweep.sources)


def missing(comparison: Comparison, out: Path) -> list[Run]:
    """The runs of a comparison that are not there."""
    return [run for run in comparison.runs if not Record.of(out, run.config).is_done]
