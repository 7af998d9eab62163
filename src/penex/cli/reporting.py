"""penex report: tables, figures and the page from records alone."""

from pathlib import Path
from typing import Annotated

import tyro

from penex.cli.options import hinted
from penex.lab.errors import LabError
from penex.lab.records import LISTING


def report(
    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, hinted("DIR [DIR]", "(required)")],
    /,
    to: Annotated[Path | None, hinted("FILE")] = None,
) -> None:
    """Build the page, tables and figures of a comparison again, or one page of two comparisons.

    Nothing is trained; records without logits will do, and what cannot be drawn is left out.

    Args:
        folders: the folder of a comparison (it holds comparison.json), or two of them.
        to: where to write the page (unless given: page.html, or comparison-of-two.html, in the
            first folder).
    """
    from penex.report import page, results, terminal
    from penex.report.all import write_all

    if not 1 <= len(folders) <= 2:
        raise LabError(f"penex report takes one folder or two; got {len(folders)}.")
    found = [results.load(_comparison(folder)) for folder in folders]
    for one in found:
        terminal.show(one)
    if len(found) == 2:
        path = page.write(found[0], found[1], to or found[0].folder / "comparison-of-two.html")
        print(f"\nWritten: {path}")
    elif to is not None:
        print(f"\nWritten: {page.write(found[0], path=to)}")
    else:
        written = write_all(found[0])
        print(f"\nIn {found[0].folder}: {', '.join(path.name for path in written)}.")


def _comparison(folder: Path) -> Path:
    """The folder with a listing: this one, or the only one inside."""
    if (folder / LISTING).exists() or not folder.is_dir():
        return folder
    inside = sorted(path.parent for path in folder.glob(f"*/{LISTING}"))
    if len(inside) == 1:
        return inside[0]
    if inside:
        names = ", ".join(str(path) for path in inside)
        raise LabError(f"{folder} holds several comparisons: choose one of {names}.")
    return folder
