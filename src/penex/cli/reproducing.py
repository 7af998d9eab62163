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
from penex.lab.reproduction import TABLE1, missing, plan, write_stand_ins

if TYPE_CHECKING:
    from penex.lab.compare import Comparison

_SEEDS = 5
_Tasks = Annotated[tuple[str, ...], hinted("TASK [TASK ...]", "(default: all four)")]


def reproduce(
    what: Annotated[Literal["table1", "runtime"], tyro.conf.Positional],
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

    table1 is the main table's vision tasks under its five losses and two of ours; runtime is
    `penex bench` with its defaults. The table lies in OUT as Markdown, LaTeX, CSV and a page.

    Args:
        what: table1 or runtime.
        task: which of the tasks.
        seeds: how many; the paper has one.
        tuned: take the values of our own studies (penex tune), where there are some.
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
    if tuned and authors:
        raise LabError("Choose one of --tuned and --authors.")
    for name in task:
        if name not in TABLE1:
            raise unknown("task", name, TABLE1)
    if len(set(task)) < len(task):
        raise LabError("A task is there twice: name each once.")
    options: dict[str, Any] = {"device": device, "save_seconds": save_seconds, "pack": pack}
    with tempfile.TemporaryDirectory() as name:
        if smoke:
            data, out = Path(name) / "data", Path(name) / "runs"
            write_stand_ins(data)
        comparisons = plan(
            task,
            2 if smoke else seeds,
            data=data,
            studies=out if tuned else None,
            smoke=smoke,
            say=partial(print, file=sys.stderr),
        )
        written = _table1(comparisons, out, read_only=read_only and not smoke, options=options)
    if written and smoke:
        print(f"\nAll of it works: {written} were written, and are gone. The numbers mean nothing.")
    elif written:
        print(f"\nIn {out}: {written}.")


def _table1(
    comparisons: list["Comparison"], out: Path, *, read_only: bool, options: dict[str, Any]
) -> str:
    """Train what is missing, print the table; the names of the files that were written."""
    from penex.lab.compare import LISTING, compare, listing_of
    from penex.report import reproduction as report
    from penex.report import results

    left = [len(missing(comparison, out)) for comparison in comparisons]
    if not read_only:
        _check_data([c for c, count in zip(comparisons, left, strict=True) if count])
    found: list[results.Results] = []
    for comparison, count in zip(comparisons, left, strict=True):
        listing = listing_of(comparison, out, training.command_line())
        kept = out / comparison.task.name / LISTING
        if read_only or not count:  # how they were trained, not how they are read
            with suppress(OSError, ValueError, KeyError, TypeError):
                listing["command"] = json.loads(kept.read_text())["command"]
        total = len(listing["runs"])
        if count and not read_only:
            print(f"{comparison.task.name}: {count} of {total} runs to train", file=sys.stderr)
            device, seconds = options["device"], options["save_seconds"]
            with training.open_session(device, None, out, total, seconds) as session:
                compare(
                    comparison,
                    out,
                    session.device,
                    command=training.command_line(),
                    hooks=session.hooks,
                    done=session.done,
                    pack=training.pack_size(options["pack"]),
                )
        if count < total or not read_only:
            found.append(results.load(out / comparison.task.name, listing))
        else:
            print(f"{comparison.task.name}: no records in {out}", file=sys.stderr)
    if not found:
        raise LabError(f"There are no records of these tasks in {out}.")
    if not training.writes():
        return ""
    print(report.text([report.block(one) for one in found]))
    return ", ".join(path.name for path in report.write(out, found, training.command_line()))


def _check_data(comparisons: list["Comparison"]) -> None:
    """Read the data of every task that must be trained: what is missing is said now."""
    for comparison in comparisons:
        comparison.task.collect()
