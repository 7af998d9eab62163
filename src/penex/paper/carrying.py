"""How a comparison of the paper is carried out: what is missing is trained, all of it kept."""

import re
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from penex.lab.ground import files
from penex.lab.ground.errors import writes
from penex.lab.ground.sentences import count
from penex.lab.records import LISTING, Record, archived
from penex.lab.records.scores import slim
from penex.lab.records.sealing import sealed
from penex.lab.tasks.runs import Run
from penex.lab.training.compare import Comparison, Listing, compare, listing_of
from penex.lab.training.session import open_session, pack_size
from penex.paper import plan
from penex.paper.request import Request
from penex.report import results
from penex.report.results import Results


def carried_out(request: Request, comparison: Comparison) -> Results | None:
    """The results of a comparison whose missing runs are trained, unless it is only to be read.

    None, and a line about it, if there is nothing to read.
    """
    out, every = request.out, comparison.runs
    left = len(plan.missing(comparison, out))
    if left and not request.read_only:
        print(
            f"{comparison.task.name}: {left} of {count(len(every), 'run')} to train",
            file=sys.stderr,
        )
        watcher = request.watch(len(every))
        with open_session(
            watcher, request.device, out, request.save_seconds, planned=every
        ) as session:
            hooks = session.place.hooks

            def done(run: Run, record: Record, reused: bool) -> None:
                hooks.done(run, record, reused)
                _keep(request, run, record)

            compare(
                comparison,
                replace(session.place, hooks=replace(hooks, done=done)),
                command=request.command,
                pack=pack_size(request.pack),
                name=_file(request.what, comparison),
            )
    elif left == len(every):
        print(f"{comparison.task.name}: no records in {out}", file=sys.stderr)
        return None
    else:
        for run in every:
            if (record := Record.of(out, run.config)).is_done:
                _keep(request, run, record)
    listing = listing_for(request, comparison, request.what)
    if request.slim is not None and writes():
        place = _small_folder(request, comparison.task.name) / _file(request.what, comparison)
        files.write_json(place, sealed({**listing, "command": portable(listing["command"])}))
    return results.load(out / comparison.task.name, listing)


def _small_folder(request: Request, task: str) -> Path:
    """Where the small form of a task lies; under other noise it is not the table's."""
    assert request.slim is not None
    kind = request.noise_kind
    return request.slim / (task if kind in (None, "flip") else f"{task}_{kind}")


def _keep(request: Request, run: Run, record: Record) -> None:
    """Write the small form of a record; the scores of single examples for the first seed only."""
    if request.slim is not None and writes():
        folder = record.folder.relative_to(request.out / run.task.name)
        slim(record, _small_folder(request, run.task.name) / folder, scores=run.seed == 0)


def portable(command: str) -> str:
    """A command with the folders of one machine left open.

    >>> portable("penex reproduce table1 --data '/of mine/x' --seeds 3 --slim=results")
    'penex reproduce table1 --data FOLDER --seeds 3 --slim=FOLDER'
    """
    return re.sub(r"(--(?:data|encoder|out|slim)[ =])('[^']*'|\S+)", r"\1FOLDER", command)


def listing_for(request: Request, comparison: Comparison, what: str) -> Listing:
    """The runs of a comparison, with the command that trained them."""
    listing = listing_of(comparison, request.out, request.command)
    with suppress(OSError, ValueError, KeyError, TypeError):
        path = request.out / comparison.task.name / _file(what, comparison)
        listing["command"] = str(files.loads(archived.read(path))["command"])
    return listing


def _file(what: str, comparison: Comparison) -> str:
    """The file in a task's folder that lists the runs."""
    if augment := comparison.changes.get("augment"):
        return f"{augment.replace(',', '-')}.json"
    return LISTING if what in ("table1", "fair", "resnet") else f"{what}.json"
