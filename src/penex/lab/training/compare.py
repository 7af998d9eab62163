"""A comparison: losses times seeds times training sizes, and the list of its runs on disk."""

import functools
import hashlib
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penex.lab.ground import files, ranks
from penex.lab.ground.errors import LabError
from penex.lab.records import KEPT, LISTING, Record, examples
from penex.lab.records.reading import FORMAT
from penex.lab.records.sealing import sealed
from penex.lab.records.views import View
from penex.lab.tasks import Task
from penex.lab.tasks.runs import Contender, Run, Treatment, plan
from penex.lab.training import check_data, packing
from penex.lab.training.place import Place
from penex.registry import FIVE

Listing = dict[str, Any]

_MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes:
        task: what is trained on what.
        losses: as on the command line: ``penex``, ``penex:alpha=0.03``.
        seeds: how many, from 0.
        train_sizes: the sizes of the training set; none for the task's own.
        changes: what is changed in the task's recipe.
        treatment: what is done to the data.
        sources: where the value of a loss came from, in words, if it was looked up.
        view: how the runs are judged.
    """

    task: Task
    losses: tuple[str, ...] = FIVE
    seeds: int = 3
    train_sizes: tuple[int, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)
    treatment: Treatment = field(default_factory=Treatment)
    sources: dict[str, str] = field(default_factory=dict)
    view: View = field(default_factory=View)

    @functools.cached_property
    def runs(self) -> list[Run]:
        """Every run, seed by seed: what was trained when one stops early can be compared."""
        if not 1 <= self.seeds <= _MOST_SEEDS:
            raise LabError(
                f"A comparison needs at least 1 seed and at most {_MOST_SEEDS}; got {self.seeds}."
            )
        if not self.losses:
            raise LabError("A comparison needs at least one loss.")
        contenders = [Contender.parse(text) for text in self.losses]
        for k, one in enumerate(contenders):
            if any(_kind(other) == _kind(one) for other in contenders[:k]):
                raise LabError(f"The loss {one} is there twice: name each once.")
        sizes = self.train_sizes or (self.task.train_size,)
        return [
            plan(self.task, one, seed, size, self.changes, self.treatment)
            for size in dict.fromkeys(sizes)
            for seed in range(self.seeds)
            for one in contenders
        ]


def _kind(one: Contender) -> object:
    return one.loss.name, one.loss.resolved, one.changes


def compare(
    comparison: Comparison,
    place: Place,
    *,
    command: str = "",
    pack: int | None = None,
    name: str = LISTING,
    carry_out: Callable[[list[Run], Place, int | None], None] = packing.carry_out,
) -> Listing:
    """Carry out a comparison, or what is left of it; the list of its runs.

    Args:
        comparison: what is compared.
        place: where.
        command: how the user asked for it, for the record.
        pack: how many models to train at once; None for what pays on the device.
        name: of the file for the list, in the task's folder.
        carry_out: (runs, place, pack) -> None; trains them, here or elsewhere: all of their records
            are here then.
    """
    planned = comparison.runs
    folder = place.out / comparison.task.name
    for run in planned:  # a size that the data do not have must not stop the third hour
        if run.seed == 0:
            place.data(run)
    check_data(planned, place)
    listing = listing_of(comparison, place.out, command)
    _write(folder / name, listing)
    carry_out(planned, place, pack)
    _write(folder / name, listing)  # another comparison may have taken the place meanwhile
    if ranks.rank() == 0 and name == LISTING:
        _keep_examples(planned, place)
    return listing


def _keep_examples(planned: list[Run], place: Place) -> None:
    """Keep the images that the losses disagree on: the first seed's, at the first size."""
    first = planned[0]
    alike = [run for run in planned if (run.seed, run.train_size) == (first.seed, first.train_size)]
    records = {run.label: place.record(run) for run in alike}
    completed = {k: r for k, r in records.items() if r.done()["status"] == "completed"}
    folder = place.out / first.task.name
    examples.keep(folder, place.data(first), completed, first.seed, first.train_size)


def _write(path: Path, listing: Listing) -> None:
    if ranks.rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name == LISTING and path.exists():
            _keep_previous(path, listing)
        files.write_json(path, sealed(listing))


def _keep_previous(path: Path, listing: Listing) -> None:
    """Keep another comparison's list where a report can be made of it, and say so."""
    content = key = path.read_bytes()
    with suppress(ValueError, KeyError, TypeError):  # a damaged one is kept too
        known = files.loads(content)["runs"]
        if known == listing["runs"]:
            return
        key = files.dumps(known).encode()
    place = path.parent / KEPT / hashlib.sha256(key).hexdigest()[:8]
    place.mkdir(parents=True, exist_ok=True)
    files.write(place / LISTING, content)
    with suppress(FileNotFoundError):
        (path.parent / examples.NAME).replace(place / examples.NAME)
    again = shlex.join(["penex", "report", str(place)])
    print(
        f"The page and tables in {path.parent} become this comparison's. The one before is kept: "
        f"{again} makes its page and tables again.",
        file=sys.stderr,
    )


def listing_of(comparison: Comparison, out: Path, command: str = "") -> Listing:
    """The runs of a comparison and their folders, whether they are there or not."""
    folder = out / comparison.task.name
    return {
        "format": FORMAT,
        "task": comparison.task.name,
        "command": command,
        **({"sources": comparison.sources} if comparison.sources else {}),
        **({"judged": comparison.view.identity} if comparison.view.identity else {}),
        "runs": [
            {
                "loss": run.loss.name,
                "label": run.label,
                "train_size": run.train_size,
                "seed": run.seed,
                "folder": str(Record.of(out, run.config).folder.relative_to(folder)),
            }
            for run in comparison.runs
        ],
    }
