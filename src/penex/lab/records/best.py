"""Which of several runs is used where a folder of them is named."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from penex.lab.ground import files
from penex.lab.ground.errors import LabError, RecordError
from penex.lab.models.exported import CARD
from penex.lab.records import LISTING, Json, Record, home_of
from penex.lab.records.reading import BEST, CALIBRATED
from penex.lab.records.sealing import is_as_sealed
from penex.lab.records.views import View

_LEVELS = ("seed-*", "*/seed-*", "*/*/seed-*")  # below a configuration, a loss, a task


class Choice(NamedTuple):
    """The best network of a folder of runs.

    Attributes:
        folder: of its run, or the one in it of its best epoch, where runs are judged after that.
        among: how many completed runs there were.
        own_code: whether its model is made by code outside penex.
        temperature: fitted to the validation set, where runs are judged so; else None.
        view: how they are judged.
    """

    folder: Path
    among: int
    own_code: bool
    temperature: float | None
    view: View


def best_run(folder: Path) -> Choice:
    """The run with the lowest validation cross-entropy in a task's or a loss's folder.

    Of a task's folder those of its latest comparison count, if there was one, judged as that was.
    """
    places, view = _places(folder)
    records = [Record(place) for place in places]
    usable = [one for one in records if one.is_done and network_of(one, view) is not None]
    record = best_of(((one, one.done()) for one in usable), view)
    judged = None if record is None else network_of(record, view)
    if record is None or judged is None:
        raise LabError(
            f"{folder} holds no completed run with its model: give the folder of a run, "
            "runs/TASK/LOSS/HASH/seed-N, of a loss or of a task."
        )
    return Choice(judged[0], len(usable), ":" in str(record.config().get("model")), judged[1], view)


def network_of(record: Record, view: View) -> tuple[Path, float | None] | None:
    """Where the network lies that a view judges, and the fitted temperature if it has one.

    None if it is gone, or was never there.
    """
    if not record.has(CARD):
        return None  # as in results/: no other file is asked for
    done, card = record.done(), CARD
    if view.select == "best":
        own = f"{BEST}/{CARD}"
        if record.has(own) or own in done.get("sha256", {}):  # else the best epoch was the last
            done, card = done[BEST], own
    if not record.has(card):
        return None
    temperature = done[CALIBRATED]["temperature"] if view.calibrate else None
    return (record.folder / card).parent, temperature


def best_of(runs: Iterable[tuple[Record, Json]], view: View) -> Record | None:
    """The run with the lowest validation cross-entropy; None of none.

    Args:
        runs: where each lies, and how it ended.
        view: how they are judged.
    """
    scores = [(view.of(done)["validation"].get("cross_entropy"), one) for one, done in runs]
    ranked = sorted(
        ((float("inf") if score is None else score, str(one.folder), one) for score, one in scores),
        key=lambda each: each[:2],
    )
    return ranked[0][2] if ranked else None


def _places(folder: Path) -> tuple[list[Path], View]:
    """The folders of the runs that a folder stands for, and how they are judged."""
    if not folder.is_dir():
        raise LabError(f"There is no folder {folder}.")
    if (folder / CARD).exists():
        return [folder], View()
    if (folder / LISTING).exists():
        return _listed(folder)
    for level in _LEVELS:
        found = sorted(place for place in folder.glob(level) if place.is_dir())
        if found:
            return found, View()
    tasks = sorted({place.parents[2].name for place in folder.glob("*/*/*/seed-*")})
    if tasks:
        raise LabError(
            f"{folder} holds the tasks {', '.join(tasks)}: name one, as {folder / tasks[0]}."
        )
    return [], View()


def _listed(folder: Path) -> tuple[list[Path], View]:
    try:
        listing = files.loads((folder / LISTING).read_bytes())
        if not is_as_sealed(listing):
            raise ValueError(listing)
        places = [home_of(folder) / run["folder"] for run in listing["runs"]]
        return places, View(**listing.get("judged", {}))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise RecordError(
            f"{folder / LISTING} is damaged: it lists no runs, or was changed."
        ) from error
