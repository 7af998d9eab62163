"""What `penex tune` does: the paper's protocol on any task, and what is shown of it."""

import contextlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penex.installing import install
from penex.lab import tuning
from penex.lab.ground import files
from penex.lab.ground.errors import Interrupted, LabError
from penex.lab.ground.processes import launched
from penex.lab.ground.sentences import count, duration
from penex.lab.records import Record, archived
from penex.lab.records.scores import slim
from penex.lab.training.session import EngineName, Watcher, open_session, pack_size
from penex.lab.tuning.search import Tuning
from penex.lab.tuning.storage import JOURNAL, open_storage
from penex.lab.tuning.study import Progress, all_studies
from penex.lab.workers import leases
from penex.lab.workers.server import is_server, trouble
from penex.paper.plan import TUNABLE
from penex.paper.printed import authors_of
from penex.report import studies
from penex.report.all import pages
from penex.report.page.tuning import write as write_page


@dataclass(frozen=True)
class Way:
    """How studies are carried out: options of `penex tune`, and two things more.

    Attributes:
        command: how the user asked for it, for the page.
        watch: (number of runs) -> who is told how they go on.
    """

    command: str
    watch: Callable[[int], Watcher]
    out: Path = Path("runs")
    storage: str | None = None
    slim: Path | None = None
    minutes: float = math.inf
    device: str = "auto"
    save_seconds: float = 30.0
    pack: str = "auto"
    keep_checkpoints: bool = False
    lease_seconds: float = leases.SECONDS
    engine: EngineName = "local"

    def __post_init__(self) -> None:
        if launched() and int(os.environ["WORLD_SIZE"]) > 1:
            raise LabError("Tuning trains many models in one process: start it without torchrun.")
        if not self.minutes > 0:
            raise LabError(f"--minutes must be a number above 0; got {self.minutes}.")
        if self.storage is None or not is_server(self.storage):
            leases.check_alone(self.lease_seconds)
        if self.slim is not None and self.storage is not None:
            raise LabError("--slim keeps the journal, and with --storage there is none.")
        if self.slim is not None and self.slim.resolve() == self.out.resolve():
            raise LabError("--slim must be another folder than --out, which has the whole records.")


def losses_of(loss: tuple[str, ...], every: bool) -> tuple[str, ...]:
    """The losses that --loss and --all mean."""
    if every == bool(loss):
        raise LabError("Say what to tune: --loss penex, or --all; not both.")
    return TUNABLE if every else loss


def tune(what: Tuning, way: Way) -> bool:
    """Carry out studies, or what is left of them; print what came out, write the page.

    False if the time was over before the studies were.
    """
    task, out = what.task.name, way.out
    storage = open_storage(way.storage, out / task)
    began = time.monotonic()
    end = began + 60 * way.minutes
    done_before: list[int] = []

    def told(stand: list[Progress]) -> None:
        finished = sum(one.finished for one in stand)
        done_before[:] = done_before or [finished]
        left = sum(max(one.wanted - one.finished, 0) for one in stand)
        now = finished - done_before[0]
        for one in stand:
            session.say(_line(one))
        if now and left:
            session.say(f"about {duration((time.monotonic() - began) / now * left)} left")
        if way.slim is not None:
            _keep(all_studies(storage, task), out, way.slim, task)

    with contextlib.closing(storage), trouble(storage.shown):
        watcher = way.watch(what.trials * len(what.losses))
        with open_session(
            watcher,
            way.device,
            out,
            way.save_seconds,
            keep_checkpoints=way.keep_checkpoints,
            engine=way.engine,
        ) as session:
            asked = session.place.hooks.stop
            hooks = replace(session.place.hooks, stop=lambda: asked() or time.monotonic() > end)
            try:
                found = tuning.tune(
                    what,
                    storage,
                    replace(session.place, hooks=hooks),
                    told=told,
                    say=session.say,
                    lease_seconds=way.lease_seconds,
                    pack=pack_size(way.pack),
                )
            except Interrupted:
                if asked():
                    raise
                session.say(f"Stopped in time. To go on: {way.command}")
                return False
        authors = authors_of(task)
        results = {
            loss: studies.load(study, loss, out, authors.get(loss, {}))
            for loss, study in {**all_studies(storage, task), **found}.items()
        }
    try:
        written = (
            f"Page: {write_page(pages(out / task), task, list(results.values()), way.command)}."
        )
    except ModuleNotFoundError as error:
        written = f"The page needs {error.name}: {install('lab')}."
    print(studies.text([results[loss] for loss in found]))
    print(f"\n{time.monotonic() - began:.0f} s. {written} Studies: {storage.shown}")
    return True


def _line(one: Progress) -> str:
    """How a study stands, in a line."""
    best = ", ".join(f"{name} {value:.4g}" for name, value in one.best.items())
    text = f"{one.loss}: {one.finished} of {count(max(one.wanted, one.finished), 'trial')}"
    text += f", {one.running} running" if one.running else ""
    text += f", {one.failed} failed" if one.failed else ""
    return f"{text}; best so far {best} ({one.value:.4f})" if best else text


def _keep(found: dict[str, Any], out: Path, target: Path, task: str) -> None:
    """Copy the journal, and small records of each study's best and worst."""
    (target / task).mkdir(parents=True, exist_ok=True)
    files.write(target / task / JOURNAL, archived.read(out / task / JOURNAL))
    for study in found.values():
        trials = [trial for trial in study.get_trials(deepcopy=False) if trial.value is not None]
        trials.sort(key=lambda trial: (trial.value, trial.number))
        for folder in {trial.user_attrs["record"] for trial in (*trials[:1], *trials[-1:])}:
            if Record(out / folder).is_done:
                slim(Record(out / folder), target / folder, scores=False)
