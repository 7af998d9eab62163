"""The way home from a page: the best run at work, and what else lies in its task's folder."""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from penex.lab.ground import files
from penex.lab.records import KEPT, LISTING, home_of
from penex.lab.records.best import best_of, network_of
from penex.lab.records.views import View
from penex.report.finished import Finished
from penex.report.plain import place, publishable
from penex.report.results import Results

_LONGEST = 8  # comparisons in the list: the latest ones


class AtWork(NamedTuple):
    """What to do with a trained model.

    Attributes:
        folder: of its run, as the commands name it.
        predict: the command that predicts with it.
        export: the command that writes it as ONNX.
    """

    folder: str
    predict: str
    export: str


class Before(NamedTuple):
    """Another comparison on the same task.

    Attributes:
        command: how it was asked for.
        again: the command that makes its page.
        page: where its page lies, as seen from the folder of the one that is shown; "" if it is
            not there.
    """

    command: str
    again: str
    page: str


def best(runs: Iterable[Finished], view: View) -> Finished | None:
    """The run with the lowest validation cross-entropy, of those with the model that is judged."""
    known = {run.record.folder: run for run in runs if network_of(run.record, view) is not None}
    found = best_of(((run.record, run.done) for run in known.values()), view)
    return None if found is None else known[found.folder]


def is_best(run: Finished, runs: Iterable[Finished], view: View) -> bool:
    """Whether no other run is better either, with its model or without."""
    ended = ((one.record, one.done) for one in runs if one.done["status"] == "completed")
    return best_of(ended, view) is run.record


def at_work(run: Finished, home: Path, view: View, *, shown: bool = True) -> AtWork:
    """The commands that use a run's model, as it is judged: of its best epoch, say.

    Args:
        run: with the model that is judged.
        home: the folder of its task.
        view: how the run is judged.
        shown: True for a page, which names no folder outside of this one: a run elsewhere is named
            as seen from its task's folder.
    """
    network = network_of(run.record, view)
    assert network is not None
    place, temperature = network
    folder = _within(place, home) if shown else str(place)
    own = " --own-code" if ":" in str(run.config.get("model")) else ""
    own += "" if temperature is None else f" --temperature {temperature:.5g}"
    onnx = f"{Path(os.path.normpath(home)).name or 'model'}.onnx"
    return AtWork(
        folder,
        f"penex predict {shlex.quote(folder)}{own} FILES",
        f"penex export {shlex.quote(folder)} --onnx {shlex.quote(onnx)}{own}",
    )


def is_named(folder: Path) -> bool:
    """Whether a page may name a folder: one below the working folder."""
    path = Path(os.path.normpath(folder))
    if path.is_absolute():
        return path.is_relative_to(Path.cwd())
    return ".." not in path.parts


def _within(folder: Path, home: Path) -> str:
    path, near = (Path(os.path.normpath(one)) for one in (folder, home))
    if is_named(path):
        return place(str(path))
    return str(path.relative_to(near)) if path.is_relative_to(near) else path.name


def before(results: Results) -> list[Before]:
    """The other comparisons that the task's folder keeps, the latest first."""
    home = Path(os.path.normpath(home_of(results.folder)))
    here = Path(os.path.normpath(results.folder))
    listings = [home / LISTING, *(home / KEPT).glob(f"*/{LISTING}")]
    others = [path for path in listings if path.is_file() and path.parent != here]
    others.sort(key=lambda path: (-path.stat().st_mtime, str(path)))
    shown = {os.path.normpath(run.record.folder) for run in results.records()}
    total = sum(row.total for row in results.rows)
    found: list[Before] = []
    for path in others:
        try:
            listed = files.loads(path.read_bytes())
            runs = {os.path.normpath(home / run["folder"]) for run in listed["runs"]}
            command = publishable(str(listed["command"]))
        except (ValueError, TypeError, LookupError, OSError):
            continue  # a damaged one: penex report on it says so
        if shown <= runs and len(runs) == total:
            continue  # the same comparison, which came back
        folder = path.parent
        again = f"penex report {shlex.quote(_within(folder, home.parent))}"
        page = os.path.relpath(folder / "page.html", here)
        found.append(Before(command, again, page if (folder / "page.html").is_file() else ""))
    return found[:_LONGEST]
