"""What `penex reproduce` does: train what is missing, show it beside the paper's."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from penex.installing import install
from penex.lab.data.noise import Kind
from penex.lab.ground import files
from penex.lab.ground.errors import LabError, unknown, writes
from penex.lab.records import LISTING, archived
from penex.lab.tasks import encoded, placed
from penex.lab.training.compare import Comparison
from penex.lab.training.session import Watcher
from penex.paper import fair, plan, studies, sweeps, tables
from penex.paper.carrying import carried_out, listing_for
from penex.paper.plan import TABLE1, TEXTS, Sweep
from penex.paper.standins import write_people, write_stand_ins
from penex.report import results
from penex.report.results import Results

SWEEPS = ("floor", "rho", "alpha", "gap", "ablations", "sensitivity", "size", "tuned")
WHAT = ("table1", "fair", *SWEEPS)
SEEDS = 5
_SMOKE_SIZES = {"cifar100": 100, "cifar100n": 100}  # one of each class; others train on forty

_Found = list[tuple[Sweep | None, Results]]


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
    seeds: int = SEEDS
    tuned: bool = False
    authors: bool = False
    read_only: bool = False
    smoke: bool = False
    epochs: int | None = None
    trial_epochs: int | None = None
    train_size: int | None = None
    noise_kind: Kind | None = None
    data: Path | None = None
    encoder: str | None = None
    out: Path = Path("runs")
    slim: Path | None = None
    device: str = "auto"
    save_seconds: float = 60.0
    pack: str = "auto"

    def __post_init__(self) -> None:
        if self.what != "table1" and (self.tuned or self.authors):
            raise LabError(f"--tuned and --authors are for table1; this is {self.what}.")
        if self.what not in ("table1", "fair") and self.losses:
            raise LabError(f"--losses are for table1 and fair; this is {self.what}.")
        if self.what != "fair" and self.trial_epochs is not None:
            raise LabError(f"--trial-epochs are for fair; this is {self.what}.")
        if self.what == "tuned" and self.smoke:
            raise LabError("tuned cannot be tried with --smoke: it takes what studies found.")
        if self.tuned + self.authors + bool(self.losses) > 1:
            raise LabError("Choose one of --tuned, --authors and --losses.")
        known = fair.TASKS if self.what == "fair" else TABLE1
        besides = TEXTS if self.what == "table1" and not self.smoke else ()
        for name in self.task:
            if name not in (*known, *besides):
                raise unknown("task", name, (*known, *besides))
        if not self.task:
            object.__setattr__(self, "task", known)
        if len(set(self.task)) < len(self.task):
            raise LabError("A task is there twice: name each once.")
        if self.slim is not None and self.slim.resolve() == self.out.resolve():
            raise LabError("--slim must be another folder than --out, which has the whole records.")


def reproduce(request: Request) -> None:
    """Read the records, train what is missing, print it beside the paper's, write it."""
    with tempfile.TemporaryDirectory() as name:
        if request.smoke:
            data, out = Path(name) / "data", Path(name) / "runs"
            write_stand_ins(data)
            write_people(data)
            request = replace(
                request, seeds=2, read_only=False, epochs=1, data=data, out=out, slim=None
            )
        written = _fair(request) if request.what == "fair" else _compared(request)
    if written and request.smoke:
        print(f"\nAll of it works. What it wrote is gone: {written}. The numbers mean nothing.")
    elif written:
        print(f"\nIn {request.out}: {written}.")


def _compared(request: Request) -> str:
    """Train what is missing of the table or the sweep, write it; the names of the files."""
    planned = [(sweep, _varied(request, one)) for sweep, one in _planned(request)]
    if not request.read_only:  # what is missing of the data is said now
        for _, comparison in planned:
            if plan.missing(comparison, request.out):
                comparison.task.collect()
    found = [(sweep, carried_out(request, one)) for sweep, one in planned]
    return _shown(request, [(sweep, one) for sweep, one in found if one is not None])


def _fair(request: Request) -> str:
    """Tune what is not tuned, train what is missing, write the tables; the file."""
    found = []
    for name in request.task:
        task = fair.task(name)
        losses, out = request.losses or fair.LOSSES, request.out
        if not request.read_only:
            epochs = request.trial_epochs or request.epochs
            changes = {} if epochs is None else {"epochs": epochs}
            there = task if request.data is None else placed(task, request.data)
            what = fair.study(there, losses, changes, 2 if request.smoke else fair.TRIALS)
            what = replace(what, train_size=_size(request, name))
            studies.tune(
                what,
                studies.Way(
                    request.command,
                    request.watch,
                    out,
                    slim=request.slim,
                    device=request.device,
                    save_seconds=request.save_seconds,
                    pack=request.pack,
                ),
            )
        listing = None
        if not request.read_only:
            comparison = fair.comparison(task, losses, request.seeds, out)
            comparison = _varied(replace(request, losses=()), comparison)
            carried_out(request, comparison)
            listing = listing_for(request, comparison, request.what)
        if listing is not None or archived.exists(out / name / LISTING):
            found.append(results.load(out / name, listing))
    if not found:
        raise LabError(f"There are no records of this in {request.out}.")
    if writes():
        text = fair.chapter(found, request.out)
        print(text)
        files.write_text(request.out / "fair.md", text)
    return "fair.md"


def _planned(request: Request) -> list[tuple[Sweep | None, Comparison]]:
    """The comparisons, each with the sweep that it is part of."""
    if request.what == "table1":
        studies = request.out if request.tuned else None
        say = partial(print, file=sys.stderr)
        every = plan.main_table(request.task, request.seeds, studies=studies, say=say)
        return [(None, comparison) for comparison in every]
    return [(one, plan.plan_sweep(one, request.seeds)) for one in _sweeps(request)]


def _varied(request: Request, comparison: Comparison) -> Comparison:
    """A comparison with what the user wants otherwise than the paper has it."""
    task, treatment = comparison.task, comparison.treatment
    if request.data is not None:
        task = placed(task, request.data)
    if request.encoder is not None:
        task = encoded(task, request.encoder)
    if request.noise_kind is not None:
        if task.label_noise is None:
            raise LabError(f"--noise-kind is for --task cifar10_noisy; {task.name} has no noise.")
        noise = replace(task.label_noise, kind=request.noise_kind)
        treatment = replace(treatment, label_noise=noise)
    sizes, size = comparison.train_sizes, _size(request, task.name)
    if size is not None:
        sizes = (size // 2, size) if request.smoke and sizes else (size,)
    return replace(
        comparison,
        task=task,
        losses=request.losses or comparison.losses,
        train_sizes=sizes,
        changes={} if request.epochs is None else {"epochs": request.epochs},
        treatment=treatment,
    )


def _size(request: Request, task: str) -> int | None:
    """The number of training examples; None for the task's own."""
    return _SMOKE_SIZES.get(task, 40) if request.smoke else request.train_size


def _sweeps(request: Request) -> list[Sweep]:
    """The sweeps of that name; a sentence if a task that was asked for has none."""
    name, tasks, out = request.what, request.task, request.out
    every = plan.sweeps().get(name, ())
    if name == "tuned":
        every = tuple(one for task in tasks if (one := plan.studied(task, out)) is not None)
    found = [sweep for sweep in every if sweep.task in tasks]
    none = [task for task in tasks if task not in {sweep.task for sweep in found}]
    if none and (tasks != TABLE1 or not found):
        if name == "tuned":
            raise LabError(
                f"No study of {', '.join(none)} in {out} has another value than the authors': "
                "penex tune TASK --all makes studies."
            )
        raise LabError(f"{name} is about {', '.join(sweep.task for sweep in every)}.")
    return found


def _shown(request: Request, found: _Found) -> str:
    """Print the tables and write them; the names of the files."""
    if not found:
        raise LabError(f"There are no records of this in {request.out}.")
    if not writes():
        return ""
    try:
        if request.what == "table1":
            return _table1(request, [one for _, one in found])
        swept = [(sweep, one) for sweep, one in found if sweep is not None]
        print(sweeps.text(swept))
        chapter = "\n\n".join(sweeps.chapter(swept)) + "\n"
        files.write_text(request.out / f"{request.what}.md", chapter)
        return f"{request.what}.md"
    except ModuleNotFoundError as error:
        print(f"The tables are left out: they need {error.name} ({install('lab')}).")
        return ""


def _table1(request: Request, found: list[Results]) -> str:
    print(tables.text([tables.block(one) for one in found]))
    swept = list(_all_swept(request, {one.task for one in found}))
    written = tables.write(request.out, found, request.command, swept)
    return ", ".join(path.name for path in written)


def _all_swept(request: Request, tasks: set[str]) -> Iterator[tuple[Sweep, Results]]:
    """Every sweep on some tasks whose versions all have records: a part would be no answer."""
    planned = [
        (name, one) for name, every in plan.sweeps().items() for one in every if one.task in tasks
    ]
    try:
        studies = [plan.studied(task, request.out) for task in TABLE1 if task in tasks]
        planned += [("tuned", one) for one in studies if one is not None]
    except LabError as error:
        print(f"Our studies are left out: {error}", file=sys.stderr)
    for name, sweep in planned:
        comparison = plan.plan_sweep(sweep, request.seeds)
        one = results.load(request.out / sweep.task, listing_for(request, comparison, name))
        if all(row.done for row in one.rows):
            yield sweep, one
