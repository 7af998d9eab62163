"""penex report: tables, figures and the page from records alone."""

from pathlib import Path
from typing import Annotated

import tyro

from penex.cli.options import choice, hinted
from penex.lab.ground.errors import LabError
from penex.lab.records import LISTING, archived
from penex.lab.records.views import Select, View


def report(
    folders: Annotated[
        tuple[Path, ...], tyro.conf.Positional, hinted("PLACE [PLACE]", "(required)")
    ],
    /,
    to: Annotated[Path | None, hinted("DIR|FILE.html")] = None,
    select: Annotated[
        Select | None, hinted(choice(Select), "(default: as it was compared)")
    ] = None,
    calibrate: Annotated[bool | None, hinted("True|False", "(default: as it was compared)")] = None,
) -> None:
    """Build the page, tables and figures of a comparison again, or one page of two comparisons.

    Nothing is trained; records without logits will do, and what cannot be drawn is left out.

    Args:
        folders: the folder of a comparison (it holds comparison.json) or the archive that stands
            for one, as results/cifar10.zip; or two of them.
        to: a folder for all of it (unless given: the first comparison's own, or runs/report/TASK
            for an archive), or a file for the page alone.
        select: judge after the last epoch, or after the one with the best validation
            cross-entropy.
        calibrate: judge at a temperature fitted to the validation set, or at the loss's own.
    """
    from penex.report import page, results, terminal
    from penex.report.all import pages, write_all

    if not 1 <= len(folders) <= 2:
        raise LabError(f"penex report takes one folder or archive, or two; got {len(folders)}.")
    found = [results.load(_comparison(folder)) for folder in folders]
    if select is not None or calibrate is not None:
        views = [
            View(select or one.view.select, one.view.calibrate if calibrate is None else calibrate)
            for one in found
        ]
        places = zip(folders, views, strict=True)
        found = [results.load(_comparison(folder), view=view) for folder, view in places]
    for one in found:
        terminal.show(one)
    is_page = to is not None and to.suffix.lower() in (".html", ".htm")
    place = to or pages(found[0].folder)
    if len(found) == 2 or is_page:
        path = place if is_page else place / "comparison-of-two.html"
        print(f"\nWritten: {page.write(path, *found)}")
    else:
        written = write_all(found[0], place)
        print(f"\nIn {place}: {', '.join(path.name for path in written)}.")


def _comparison(place: Path) -> Path:
    """The folder with a listing: this one, the one that an archive stands for, or one inside."""
    if place.is_file() and place.suffix == archived.SUFFIX:
        return archived.folder_of(place)
    if archived.exists(place / LISTING) or not place.is_dir():
        return place
    near = {path.with_suffix("") for path in place.glob(f"*{archived.SUFFIX}")}
    near |= {path.parent for path in place.glob(f"*/{LISTING}")}
    inside = sorted(path for path in near if archived.exists(path / LISTING))
    if len(inside) == 1:
        return inside[0]
    if inside:
        names = ", ".join(str(path) for path in inside)
        raise LabError(f"{place} holds several comparisons: choose one of {names}.")
    return place
