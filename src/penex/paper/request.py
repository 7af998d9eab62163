"""What is to be made of the paper, and how: the options of `penex reproduce`, checked."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from penex.lab.data.noise import Kind
from penex.lab.ground.errors import LabError, unknown
from penex.lab.ground.sentences import listed
from penex.lab.tasks import encoded, placed
from penex.lab.training.compare import Comparison
from penex.lab.training.session import Watcher
from penex.paper import fair
from penex.paper.plan import RESNET, TABLE1, TEXTS, TREES

SWEEPS = ("floor", "rho", "alpha", "gap", "tuned", "ablations", "sensitivity", "size")
_TRAINED = ("table1", *SWEEPS, "fair", "resnet")
PARTS = (*_TRAINED, "costs", "figures")  # of all, in this order
APART = ("imagenet",)  # of no part of all: it needs files that few have
WHAT = (*PARTS, *APART, "all")

# Three runs of the ResNet take a GPU as long as a hundred of the others; ImageNet's need all cores.
_SEEDS = {"resnet": 3, "imagenet": 1}
_FEWER = ("resnet", "all")  # what is tried with one seed: two would take minutes
_SMOKE_SIZES = {  # one of each class; others train on forty
    "cifar100": 100,
    "cifar100n": 100,
    "cifar100_resnet18": 100,
    "cifar10_resnet18": 10,
}


def usual_seeds(what: str) -> int:
    """How many seeds a part has unless the user says."""
    return _SEEDS.get(what, 5)


@dataclass(frozen=True)
class Request:
    """What is to be made again, and how: the options of `penex reproduce`, and two things more.

    Attributes:
        command: how the user asked for it, for the record.
        watch: (number of runs) -> who is told how they go on.
    """

    what: str
    command: str
    watch: Callable[[int], Watcher]
    task: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    seeds: int | None = None
    tuned: bool = False
    authors: bool = False
    read_only: bool = False
    plan: bool = False
    smoke: bool = False
    epochs: int | None = None
    trial_epochs: int | None = None
    only: tuple[str, ...] = ()
    train_size: int | None = None
    augment: str | None = None
    noise_kind: Kind | None = None
    data: Path | None = None
    encoder: str | None = None
    out: Path = Path("runs")
    slim: Path | None = None
    device: str = "auto"
    save_seconds: float = 60.0
    pack: str = "auto"

    def __post_init__(self) -> None:
        self._check_belonging()
        if self.what == "tuned" and self.smoke:
            raise LabError("tuned cannot be tried with --smoke: it takes what studies found.")
        if self.what in APART and self.smoke:
            raise LabError(f"{self.what} cannot be tried with --smoke: it needs a tree of images.")
        if self.tuned + self.authors + bool(self.losses) > 1:
            raise LabError("Choose one of --tuned, --authors and --losses.")
        known = {"fair": fair.TASKS, "resnet": RESNET, "imagenet": TREES}.get(self.what, TABLE1)
        besides = TEXTS if self.what == "table1" and not self.smoke else ()
        for name in self.task:
            if name not in (*known, *besides):
                raise unknown("task", name, (*known, *besides))
        if not self.task and self.what in (*_TRAINED, *APART):
            object.__setattr__(self, "task", known)
        if len(set(self.task)) < len(self.task):
            raise LabError("A task is there twice: name each once.")
        if self.slim is not None and self.slim.resolve() == self.out.resolve():
            raise LabError("--slim must be another folder than --out, which has the whole records.")

    def _check_belonging(self) -> None:
        """A sentence for an option that this part does not have."""
        for given, names, wheres in (
            (self.task, "--task is", (*_TRAINED, *APART)),
            (self.tuned or self.authors, "--tuned and --authors are", ("table1",)),
            (self.losses, "--losses are", ("table1", "fair", "resnet", *APART)),
            (self.trial_epochs is not None, "--trial-epochs are", ("fair", "all")),
            (self.augment is not None, "--augment is", ("resnet", "all")),
            (self.plan, "--plan is", ("all",)),
            (self.only, "--only is", ("figures", "all")),
        ):
            if given and self.what not in wheres:
                raise LabError(f"{names} for {listed(wheres)}; this is {self.what}.")
        for name in self.only:
            if self.what == "all" and name not in PARTS:
                raise unknown("part", name, PARTS)

    @property
    def seed_count(self) -> int:
        """How many seeds: as the user says, or what the part has."""
        return usual_seeds(self.what) if self.seeds is None else self.seeds

    def part(self, what: str) -> "Request":
        """The same for a part of all."""
        inside = "fair" if what == "fair" else "."
        return replace(
            self,
            what=what,
            task=(),
            only=(),
            plan=False,
            trial_epochs=self.trial_epochs if what == "fair" else None,
            augment=self.augment if what == "resnet" else None,
            out=self.out / inside,
            slim=None if self.slim is None else self.slim / inside,
        )

    def tried(self, folder: Path) -> "Request":
        """The same on stand-ins in a folder, as small as can be."""
        return replace(
            self,
            seeds=1 if self.what in _FEWER else 2,
            read_only=False,
            epochs=1,
            data=folder / "data",
            out=folder / "runs",
            slim=None,
        )

    def size(self, task: str) -> int | None:
        """The number of training examples; None for the task's own."""
        return _SMOKE_SIZES.get(task, 40) if self.smoke else self.train_size

    def varied(self, comparison: Comparison) -> Comparison:
        """A comparison with what the user wants otherwise than the paper has it."""
        task, treatment = comparison.task, comparison.treatment
        if self.data is not None:
            task = placed(task, self.data)
        if self.encoder is not None:
            task = encoded(task, self.encoder)
        if self.noise_kind is not None:
            if task.label_noise is None:
                raise LabError(
                    f"--noise-kind is for --task cifar10_noisy; {task.name} has no noise."
                )
            noise = replace(task.label_noise, kind=self.noise_kind)
            treatment = replace(treatment, label_noise=noise)
        sizes, size = comparison.train_sizes, self.size(task.name)
        if size is not None:
            sizes = (size // 2, size) if self.smoke and sizes else (size,)
        epochs = {} if self.epochs is None else {"epochs": self.epochs}
        return replace(
            comparison,
            task=task,
            losses=self.losses or comparison.losses,
            train_sizes=sizes,
            changes={**comparison.changes, **epochs},
            treatment=treatment,
        )
