"""penex reproduce: the paper's tables, with real results beside its own."""

import json
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from penex.cli import training
from penex.cli.benchmarking import bench
from penex.cli.options import hinted
from penex.lab.errors import LabError, unknown
from penex.lab.reproduction import (
    TABLE1,
    missing,
    plan,
    plan_sweep,
    studied,
    sweeps,
    write_stand_ins,
)

if TYPE_CHECKING:
    from penex.lab.compare import Comparison
    from penex.lab.reproduction import Sweep
    from penex.report.results import Results

_SEEDS = 5
_Tasks = Annotated[tuple[str, ...], hinted("TASK [TASK ...]", "(default: all)")]


def reproduce(
    what: Annotated[
        Literal["table1", "rho", "alpha", "gap", "tuned", "runtime"], tyro.conf.Positional
    ],
    /,
    task: _Tasks = TABLE1,
    seeds: int = _SEEDS,
    tuned: bool = False,
    authors: bool = False,
    read_only: bool = False,
    smoke: bool = False,
    data: Annotated[Path | None, hinted("DIR", "(default: PENEX_DATA, or ./data)")] = None,
    device: str = "auto",
    out: Path = Path("runs"),
    save_seconds: float = 60.0,
    pack: str = "auto",
) -> None:
    """Make the paper's table again: read the records, train what is missing, print both.

    table1 is the main table's vision tasks under its five losses and two of ours; it lies in OUT as
    Markdown, LaTeX, CSV and a page. rho varies the average and the bounds of rho on CIFAR-10, alpha
    the sensitivity on CIFAR-100, gap what the paper's text and its authors' code do differently.
    tuned puts the values of our own studies (penex tune) beside the authors'. runtime is
    `penex bench` with its defaults.

    Args:
        what: table1, rho, alpha, gap, tuned or runtime.
        task: which of its tasks.
        seeds: how many; the paper has one.
        tuned: fill table1 with the values of our own studies, where there are some.
        authors: take the values in the authors' configurations, as it does unless told otherwise.
        read_only: train nothing, show what is there: --out results shows what we have measured.
        smoke: try all of it in two minutes, on tiny files of noise in the official formats.
        data: the folder with the official files.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        out: the folder for records.
        save_seconds: how often to save a checkpoint while training.
        pack: how many models to train at once: a number, off, or auto for what pays.
    """
    if what == "runtime":
        if task != TABLE1 or tuned or authors or read_only or data is not None or seeds != _SEEDS:
            raise LabError("penex reproduce runtime takes --device, --out and --smoke only.")
        with tempfile.TemporaryDirectory() as name:
            place = Path(name) if smoke else out / "bench"
            bench(device=device, out=place, seconds=0.02 if smoke else 1.0)
        return
    if what != "table1" and (tuned or authors):
        raise LabError(f"--tuned and --authors are for table1; this is {what}.")
    if what == "tuned" and smoke:
        raise LabError("tuned cannot be tried with --smoke: it takes what studies found.")
    if tuned and authors:
        raise LabError("Choose one of --tuned and --authors.")
    for name in task:
        if name not in TABLE1:
            raise unknown("task", name, TABLE1)
    if len(set(task)) < len(task):
        raise LabError("A task is there twice: name each once.")
    options: dict[str, Any] = {"device": device, "save_seconds": save_seconds, "pack": pack}
    seeds = 2 if smoke else seeds
    with tempfile.TemporaryDirectory() as name:
        if smoke:
            data, out = Path(name) / "data", Path(name) / "runs"
            write_stand_ins(data)
        reading = read_only and not smoke
        if what != "table1":
            planned = [
                (sweep, plan_sweep(sweep, seeds, data=data, smoke=smoke))
                for sweep in _sweeps(what, task, out)
            ]
            written = _swept(what, planned, out, read_only=reading, options=options)
        else:
            comparisons = plan(
                task,
                seeds,
                data=data,
                studies=out if tuned else None,
                smoke=smoke,
                say=partial(print, file=sys.stderr),
            )
            written = _table1(comparisons, out, read_only=reading, options=options)
    if written and smoke:
        print(f"\nAll of it works. What it wrote is gone: {written}. The numbers mean nothing.")
    elif written:
        print(f"\nIn {out}: {written}.")


def _table1(
    comparisons: list["Comparison"], out: Path, *, read_only: bool, options: dict[str, Any]
) -> str:
    """Train what is missing, print the table; the names of the files that were written."""
    from penex.lab.compare import LISTING
    from penex.report import reproduction as report

    if not read_only:
        _check_data([comparison for comparison in comparisons if missing(comparison, out)])
    every = [_carried_out(c, out, LISTING, read_only=read_only, **options) for c in comparisons]
    found = [one for one in every if one is not None]
    if not found:
        raise LabError(f"There are no records of these tasks in {out}.")
    if not training.writes():
        return ""
    print(report.text([report.block(one) for one in found]))
    swept = _all_swept(out, {one.task for one in found}, comparisons[0].seeds)
    written = report.write(out, found, training.command_line(), swept)
    return ", ".join(path.name for path in written)


def _sweeps(name: str, tasks: tuple[str, ...], out: Path) -> "list[Sweep]":
    """The sweeps of that name; a sentence if a task that was asked for has none."""
    every = sweeps().get(name, ())
    if name == "tuned":
        every = tuple(one for task in tasks if (one := studied(task, out)) is not None)
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


def _all_swept(out: Path, tasks: set[str], seeds: int) -> "list[tuple[Sweep, Results]]":
    """What there is of every sweep on some tasks: records of more than the first version."""
    planned = [
        (name, one) for name, every in sweeps().items() for one in every if one.task in tasks
    ]
    try:
        studies = [studied(task, out) for task in TABLE1 if task in tasks]
        planned += [("tuned", one) for one in studies if one is not None]
    except LabError as error:
        print(f"Our studies are left out: {error}", file=sys.stderr)
    found = [(one, _read(plan_sweep(one, seeds), out, f"{name}.json")) for name, one in planned]
    return [one for one in found if sum(bool(row.done) for row in one[1].rows) > 1]


def _swept(
    name: str,
    planned: "list[tuple[Sweep, Comparison]]",
    out: Path,
    *,
    read_only: bool,
    options: dict[str, Any],
) -> str:
    """Train what is missing, print the tables; the name of the file that was written."""
    from penex.lab import files
    from penex.report import sweeps as report

    if not read_only:
        _check_data([comparison for _, comparison in planned if missing(comparison, out)])
    found = []
    for sweep, comparison in planned:
        results = _carried_out(comparison, out, f"{name}.json", read_only=read_only, **options)
        if results is not None:
            found.append((sweep, results))
    if not found:
        raise LabError(f"There are no records of this in {out}.")
    if not training.writes():
        return ""
    print(report.text(found))
    files.write_text(out / f"{name}.md", "\n\n".join(report.chapter(found)) + "\n")
    return f"{name}.md"


def _carried_out(
    comparison: "Comparison",
    out: Path,
    name: str,
    *,
    read_only: bool,
    device: str,
    save_seconds: float,
    pack: str,
) -> "Results | None":
    """The results of a comparison whose missing runs are trained, unless it is only to be read.

    None, and a line about it, if there is nothing to read.
    """
    from penex.lab.compare import compare

    total, left = len(comparison.runs()), len(missing(comparison, out))
    if left and not read_only:
        print(f"{comparison.task.name}: {left} of {total} runs to train", file=sys.stderr)
        with training.open_session(device, None, out, total, save_seconds) as session:
            compare(
                comparison,
                out,
                session.device,
                command=training.command_line(),
                hooks=session.hooks,
                done=session.done,
                pack=training.pack_size(pack),
                name=name,
            )
    elif left == total:
        print(f"{comparison.task.name}: no records in {out}", file=sys.stderr)
        return None
    return _read(comparison, out, name)


def _read(comparison: "Comparison", out: Path, name: str) -> "Results":
    """What is there of a comparison, with the command that trained it."""
    from penex.lab.compare import listing_of
    from penex.report import results

    listing = listing_of(comparison, out, training.command_line())
    with suppress(OSError, ValueError, KeyError, TypeError):
        listed = json.loads((out / comparison.task.name / name).read_text())
        listing["command"] = str(listed["command"])
    return results.load(out / comparison.task.name, listing)


def _check_data(comparisons: list["Comparison"]) -> None:
    """Read the data of every task that must be trained: what is missing is said now."""
    for comparison in comparisons:
        comparison.task.collect()
