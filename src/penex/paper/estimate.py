"""What the whole paper still takes: which runs are missing, and how long they train here."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from penex.lab.bench.probing import example_seconds
from penex.lab.ground import environment
from penex.lab.ground.errors import LabError, RecordError
from penex.lab.ground.sentences import duration
from penex.lab.records import Record
from penex.lab.tasks import Task
from penex.lab.tasks.runs import Run
from penex.lab.training.compare import Comparison
from penex.lab.training.pace import work
from penex.paper import fair, parts
from penex.paper.request import Request
from penex.report.tables import aligned

_SHAPE = (3, 32, 32)  # of the images of every task here
_SEEN = 10  # records of a task: their mean time is known well enough


@dataclass(frozen=True)
class Share:
    """What a part needs.

    Attributes:
        name: of the part.
        there: the runs and trials that are recorded.
        missing: those that are not, each once, though several parts may need it.
        lacking: how many those are with the ones that an earlier part trains.
        shared: how many of those that are there an earlier part has, too.
        note: what else is to be said; empty if nothing.
    """

    name: str
    there: int = 0
    missing: Sequence[Run] = ()
    lacking: int = 0
    shared: int = 0
    note: str = ""


def shares(request: Request, names: Iterable[str]) -> list[Share]:
    """What each part needs, in the order in which they are made."""
    found: list[Share] = []
    seen: set[Path] = set()
    for name in names:
        part = request.part(name)
        if name == "costs":
            found.append(Share(name, note="times the losses here, unless that is recorded"))
        elif name == "figures":
            found.append(Share(name, note="small models, two minutes"))
        elif name == "fair":
            found.append(_fair(part))
        else:
            try:
                runs = [run for one in parts.planned(part) for run in one.comparison.runs]
            except parts.NoStudyError as error:
                found.append(Share(name, note=str(error)))
                continue
            folders = {Record.of(part.out, run.config).folder: run for run in runs}
            missing = {at: run for at, run in folders.items() if not Record(at).is_done}
            fresh = [run for at, run in missing.items() if at not in seen]
            note = "" if len(fresh) == len(missing) else "the others missing are counted above"
            there = folders.keys() - missing.keys()
            found.append(Share(name, len(there), fresh, len(missing), len(there & seen), note))
            seen |= folders.keys()
    return found


def _fair(part: Request) -> Share:
    """Trials that are not told, and runs; what is not tuned has no values to train with yet."""
    there, missing, kept, notes = 0, [], 0, []
    number = fair.trials(part.smoke)
    for name in part.task:
        task = fair.task(name)
        try:
            finished = fair.finished(part.out, name, number)
        except LabError as error:
            finished = Counter()
            notes.append(str(error))
        tuned = tuple(loss for loss in fair.LOSSES if finished[loss] == number)
        there += sum(finished[loss] for loss in fair.LOSSES)
        left = [_trial(part, task)] * sum(number - finished[loss] for loss in fair.LOSSES)
        if tuned:
            every = part.varied(fair.comparison(task, tuned, part.seed_count, part.out))
            undone = [run for run in every.runs if not Record.of(part.out, run.config).is_done]
            there += len(every.runs) - len(undone)
            left += undone
        run = part.varied(Comparison(task, ("ce",), 1)).runs[0]
        left += [run] * (part.seed_count * (len(fair.LOSSES) - len(tuned)))
        if fair.is_closed(part.out, name) and len(tuned) < len(fair.LOSSES):
            kept += len(left)
            notes.append(name)
        else:
            missing += left
    note = f"not trained: {', '.join(notes)}; their studies are in an archive" if kept else ""
    return Share("fair", there, missing, len(missing) + kept, note=note or " ".join(notes))


def _trial(part: Request, task: Task) -> Run:
    epochs = part.trial_epochs or part.epochs
    return replace(part, epochs=epochs).varied(Comparison(task, ("ce",), 1)).runs[0]


def seconds(found: Sequence[Share], request: Request, device: torch.device) -> dict[str, float]:
    """How long each part trains on this machine, by what a training example costs.

    That is known from records that this machine made, packs included; for a network without such
    records a step on noise is timed.
    """
    paces: dict[str, float] = {}
    probed: dict[str, float] = {}
    for share in found:
        for run in share.missing:
            task = run.task
            if task.name not in paces:
                known = _recorded(request.out / ("fair" if share.name == "fair" else ""), run,
                                  environment.device_name(device))  # fmt: skip
                if known is None and task.model not in probed:
                    probed[task.model] = example_seconds(task, _SHAPE, device)
                paces[task.name] = probed[task.model] if known is None else known
    return {
        share.name: sum(paces[run.task.name] * work(run) for run in share.missing)
        for share in found
    }


def _recorded(out: Path, run: Run, machine: str) -> float | None:
    """Seconds an example, by the records of a task that this machine made; None if there are none.

    Only whole records on the disk count: those in an archive were made elsewhere, or long ago.
    """
    found = []
    for path in sorted((out / run.task.name).glob("*/*/seed-*/done.json"))[:_SEEN]:
        record = Record(path.parent)
        try:
            config, facts = record.config(), record.environment()
            did = config["recipe"]["epochs"] * config["train_size"]
            if facts.get("device") == machine and config["model"] == run.task.model:
                found.append(record.done()["wall_time"] / did)
        except (RecordError, KeyError, TypeError, ZeroDivisionError):
            continue
    return statistics.fmean(found) if found else None


def text(found: Sequence[Share], times: dict[str, float], request: Request, machine: str) -> str:
    """The plan for a terminal: what is read, what is missing, how long that takes."""
    lines = [["part", "there", "missing", "time here", ""]]
    for share in found:
        missing = len(share.missing)
        took = f"about {duration(times[share.name])}" if missing and times else ""
        lines.append([share.name, str(share.there), str(missing), took, share.note])
    there = sum(share.there - share.shared for share in found)
    missing = sum(len(share.missing) for share in found)
    said = f"{there} runs and trials are read from {request.out}"
    if not missing:
        said += "; nothing is missing."
    elif request.read_only:
        said += f"; {missing} are not there, and with --read-only none is trained."
    else:
        total = duration(sum(times.values()))
        said += (
            f"; {missing} are missing: about {total} on {machine}, by what a training example "
            "costs here. Several parts may share a run; it is trained once. Ctrl-C stops; the "
            "same command goes on."
        )
    return "\n".join([*aligned(lines), "", said])
