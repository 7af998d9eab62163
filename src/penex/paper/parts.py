"""The parts of the paper: each trains what is missing and shows it beside the paper's."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from penex.installing import install
from penex.lab.ground import files
from penex.lab.ground.errors import LabError, writes
from penex.lab.records import LISTING, archived
from penex.lab.tasks import find, placed
from penex.lab.training.compare import Comparison
from penex.lab.tuning import journal
from penex.paper import (
    chapters,
    claims,
    costs,
    fair,
    plan,
    resnet,
    studies,
    sweeps,
    table1,
    tables,
    timings,
)
from penex.paper.carrying import carried_out, listing_for
from penex.paper.chapters import Chapter
from penex.paper.plan import RESNET, TABLE1, TREES, Sweep
from penex.paper.request import Request, usual_seeds
from penex.report import results
from penex.report.results import Results


@dataclass(frozen=True)
class Made:
    """What a part came to.

    Attributes:
        text: for the terminal.
        written: the names of the files in the folder.
        chapters: for the page about the whole paper.
    """

    text: str = ""
    written: Sequence[str] = ()
    chapters: Sequence[Chapter] = ()


class NoStudyError(LabError):
    """A sweep over the values of studies, where there are none."""


class Planned(NamedTuple):
    """A comparison, with the sweep that it is part of."""

    sweep: Sweep | None
    comparison: Comparison


def make(request: Request) -> Made:
    """Make a part: read its records, train what is missing, write its tables."""
    kinds = {"fair": _fair, "costs": _costs, "figures": _figures}
    try:
        return kinds.get(request.what, _compared)(request)
    except ModuleNotFoundError as error:
        return Made(f"The tables are left out: they need {error.name} ({install('lab')}).")


def planned(request: Request) -> list[Planned]:
    """The comparisons of a table or a sweep, as the user wants them."""
    seeds, what = request.seed_count, request.what
    if what == "table1":
        found = request.out if request.tuned else None
        say = partial(print, file=sys.stderr)
        every = plan.main_table(request.task, seeds, studies=found, say=say)
    elif what == "resnet":
        every = plan.resnet_table(request.task, seeds, request.augment or "")
    else:
        swept = _sweeps(request)
        return [Planned(one, request.varied(plan.plan_sweep(one, seeds))) for one in swept]
    return [Planned(None, request.varied(one)) for one in every]


def check_data(request: Request) -> None:
    """What is missing of the data is said now, and not in the third hour."""
    if request.what == "fair":
        journal.optuna()  # which may not be installed
        for name in request.task:
            if fair.is_closed(request.out, name):
                continue
            task = find(name)
            (task if request.data is None else placed(task, request.data)).collect()
    elif request.what not in ("costs", "figures"):
        for _, comparison in planned(request):
            if plan.missing(comparison, request.out):
                comparison.task.collect()


def _compared(request: Request) -> Made:
    every = planned(request)
    if not request.read_only:
        check_data(request)
    found = [(sweep, one, carried_out(request, one)) for sweep, one in every]
    there = [(sweep, one) for sweep, _, one in found if one is not None]
    if request.what == "resnet":
        there += [(None, one) for one in _other_augmentations(request)]
    if not writes():
        return Made()
    lacking = [_lacking(request, sweep, one) for sweep, one, got in found if got is None]
    if not there:
        return Made(chapters=lacking)
    swept = [(sweep, one) for sweep, one in there if sweep is not None]
    plain = [one for _, one in there]
    if request.what == "table1":
        text = tables.text([tables.block(one) for one in plain])
        more = list(_all_swept(request, {one.task for one in plain}))
        written = table1.write(request.out, plain, request.command, more)
        shown = list(map(chapters.of_main_table, plain))
    elif request.what == "resnet":
        text = resnet.text(plain)
        written = resnet.write(request.out, plain, request.command)
        shown = list(map(chapters.of_resnet, plain))
    else:
        text = sweeps.text(swept)
        document = "\n\n".join(sweeps.chapter(swept)) + "\n"
        written = tables.written(request.out, {f"{request.what}.md": document})
        shown = [chapters.of_sweep(*one) for one in swept]
    names = [path.name for path in written]
    shown = [chapters.placed(one, names, f"penex reproduce {request.what}") for one in shown]
    return Made(text, names, [*shown, *lacking])


def _lacking(request: Request, sweep: Sweep | None, comparison: Comparison) -> Chapter:
    """The chapter of a comparison without records."""
    task = comparison.task
    command = f"penex reproduce {request.what} --task {task.name}"
    if sweep is not None:
        return chapters.untrained(sweep.title, command)
    return chapters.untrained(task.title, command, list(claims.unmeasured(task.name)))


def _other_augmentations(request: Request) -> Iterator[Results]:
    """What there is of the same table with another augmentation: it is shown, and not trained."""
    for augment in ("", plan.AUGMENTED):
        if augment != (request.augment or ""):
            for one in plan.resnet_table(request.task, request.seed_count, augment):
                other = request.varied(one)
                if len(plan.missing(other, request.out)) < len(other.runs):
                    yield results.load(
                        request.out / other.task.name, listing_for(request, other, request.what)
                    )


def _fair(request: Request) -> Made:
    """Tune what is not tuned, train what is missing, write the tables."""
    found, lacking = [], []
    for name in request.task:
        task, out = fair.task(name), request.out
        listing = None
        losses = request.losses or fair.LOSSES
        if not request.read_only and not _stays(request, name, losses):
            _tune(request, name)
            comparison = fair.comparison(task, losses, request.seed_count, out)
            comparison = replace(request, losses=()).varied(comparison)
            carried_out(request, comparison)
            listing = listing_for(request, comparison, request.what)
        if listing is not None or archived.exists(out / name / LISTING):
            found.append(results.load(out / name, listing))
        else:
            command = f"penex reproduce fair --task {name}"
            lacking.append(chapters.untrained(task.title, command))
    if not found or not writes():
        return Made(chapters=lacking)
    text = fair.chapter(found, request.out)
    files.write_text(request.out / "fair.md", text)
    command = "penex reproduce fair"
    shown = [chapters.placed(chapters.of_fair(one), ["fair.md"], command) for one in found]
    return Made(text, ["fair.md"], [*shown, *lacking])


def _stays(request: Request, name: str, losses: tuple[str, ...]) -> bool:
    """Whether a task's studies lack trials and cannot be gone on with; then a line says so."""
    number = fair.trials(request.smoke)
    if not fair.is_closed(request.out, name):
        return False
    told = fair.finished(request.out, name, number)
    lacking = [loss for loss in losses if told[loss] < number]
    if lacking:
        print(
            f"{name}: its studies are in an archive, stay as they are and lack "
            f"{', '.join(lacking)}; another --out tunes anew.",
            file=sys.stderr,
        )
    return bool(lacking)


def _tune(request: Request, name: str) -> None:
    epochs = request.trial_epochs or request.epochs
    changes = {} if epochs is None else {"epochs": epochs}
    task = fair.task(name)
    there = task if request.data is None else placed(task, request.data)
    trials = fair.trials(request.smoke)
    what = fair.study(there, request.losses or fair.LOSSES, changes, trials)
    studies.tune(
        replace(what, train_size=request.size(name)),
        studies.Way(
            request.command,
            request.watch,
            request.out,
            slim=request.slim,
            device=request.device,
            save_seconds=request.save_seconds,
            pack=request.pack,
        ),
    )


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
            raise NoStudyError(
                f"No study of {', '.join(none)} in {out} has another value than the authors': "
                "penex tune TASK --all makes studies."
            )
        raise LabError(f"{name} is about {', '.join(sweep.task for sweep in every)}.")
    return found


def _all_swept(request: Request, tasks: set[str]) -> Iterator[tuple[Sweep, Results]]:
    """Every sweep on some tasks whose versions all have records: a part would be no answer."""
    every = [
        (name, one) for name, some in plan.sweeps().items() for one in some if one.task in tasks
    ]
    try:
        studied = [plan.studied(task, request.out) for task in TABLE1 if task in tasks]
        every += [("tuned", one) for one in studied if one is not None]
    except LabError as error:
        print(f"Our studies are left out: {error}", file=sys.stderr)
    for name, sweep in every:
        comparison = plan.plan_sweep(sweep, request.seed_count)
        one = results.load(request.out / sweep.task, listing_for(request, comparison, name))
        if all(row.done for row in one.rows):
            yield sweep, one


def _costs(request: Request) -> Made:
    """Time this machine if nobody did, and put what the records say beside the paper's tables."""
    if not request.read_only:
        timings.time_once(request.out, request.device, request.command, quick=request.smoke)
    every = plan.main_table(TABLE1, request.seed_count)
    seeds = usual_seeds("resnet") if request.seeds is None else request.seeds
    for augment in ("", plan.AUGMENTED):
        every += plan.resnet_table(RESNET, seeds, augment)
    found: dict[str, Results] = {}
    for one in map(request.varied, every):
        if len(plan.missing(one, request.out)) < len(one.runs):
            listing = listing_for(request, one, "table1")
            found.setdefault(one.task.name, results.load(request.out / one.task.name, listing))
    timed = timings.benches(request.out)
    grids = [costs.resources(found), costs.runtime(timed)]
    judged = costs.claims(timed)
    if not writes():
        return Made()
    written = [path.name for path in costs.write(request.out, grids, judged, request.command)]
    machines = "; ".join(dict.fromkeys(one.machine for one in timed))
    notes = [] if found else [chapters.no_records("penex reproduce table1")]
    chapter = Chapter(
        "Runtime and resources",
        judged,
        notes,
        machine=machines,
        files=written,
        tables=[(one.title, [one.head, *one.rows]) for one in grids],
    )
    return Made(costs.text(grids), written, [chapter])


def _figures(request: Request) -> Made:
    """Draw the figures; in a trial, train what they need first."""
    from penex.paper import figures
    from penex.paper.figures.picture import Source

    def prepare(comparison: Comparison) -> Comparison:
        comparison = request.varied(comparison)
        if request.smoke and comparison.task.name not in TREES:  # for which there is no stand-in
            carried_out(request, comparison)
        return comparison

    source = Source(request.out, request.seed_count, prepare, request.smoke, request.read_only)
    lines: list[str] = []
    drawn = figures.write(source, request.only, request.command, lines.append)
    names = [str(path.relative_to(request.out)) for path in drawn.files]
    page = Path("figures", figures.PAGE).as_posix()
    shown = [replace(one, files=[page]) for one in drawn.chapters]
    return Made("\n".join(lines), names, shown)
