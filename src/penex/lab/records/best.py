"""Which of several runs is used where a folder of them is named."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from penex.lab.ground import files
from penex.lab.ground.errors import LabError, RecordError
from penex.lab.models.exported import CARD
from penex.lab.records import LISTING, Json, Record, home_of
from penex.lab.records.sealing import is_as_sealed

_LEVELS = ("seed-*", "*/seed-*", "*/*/seed-*")  # below a configuration, a loss, a task


class Choice(NamedTuple):
    """The best run of a folder.

    Attributes:
        folder: of the run.
        among: how many completed runs there were.
        own_code: whether its model is made by code outside penex.
    """

    folder: Path
    among: int
    own_code: bool


def best_run(folder: Path) -> Choice:
    """The run with the lowest validation cross-entropy in a task's or a loss's folder.

    Of a task's folder those of its latest comparison count, if there was one.
    """
    records = [Record(place) for place in _places(folder)]
    usable = [(one, one.done()) for one in records if one.is_done and one.has(CARD)]
    record = best_of(usable)
    if record is None:
        raise LabError(
            f"{folder} holds no completed run with its model: give the folder of a run, "
            "runs/TASK/LOSS/HASH/seed-N, of a loss or of a task."
        )
    return Choice(record.folder, len(usable), ":" in str(record.config().get("model")))


def best_of(runs: Iterable[tuple[Record, Json]]) -> Record | None:
    """The run with the lowest validation cross-entropy; None of none.

    Args:
        runs: where each lies, and how it ended.
    """
    scores = [(done["validation"].get("cross_entropy"), one) for one, done in runs]
    ranked = sorted(
        ((float("inf") if score is None else score, str(one.folder), one) for score, one in scores),
        key=lambda each: each[:2],
    )
    return ranked[0][2] if ranked else None


def _places(folder: Path) -> list[Path]:
    """The folders of the runs that a folder stands for."""
    if not folder.is_dir():
        raise LabError(f"There is no folder {folder}.")
    if (folder / CARD).exists():
        return [folder]
    if (folder / LISTING).exists():
        return _listed(folder)
    for level in _LEVELS:
        found = sorted(place for place in folder.glob(level) if place.is_dir())
        if found:
            return found
    tasks = sorted({place.parents[2].name for place in folder.glob("*/*/*/seed-*")})
    if tasks:
        raise LabError(
            f"{folder} holds the tasks {', '.join(tasks)}: name one, as {folder / tasks[0]}."
        )
    return []


def _listed(folder: Path) -> list[Path]:
    try:
        listing = files.loads((folder / LISTING).read_bytes())
        if not is_as_sealed(listing):
            raise ValueError(listing)
        return [home_of(folder) / run["folder"] for run in listing["runs"]]
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise RecordError(
            f"{folder / LISTING} is damaged: it lists no runs, or was changed."
        ) from error
