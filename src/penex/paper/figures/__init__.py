"""The paper's figures: each a function of records or of fixed seeds, with its caption judged."""

import base64
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import penex
from penex.lab.ground import files
from penex.lab.ground.errors import unknown
from penex.paper.chapters import Chapter
from penex.paper.claims import NOT_TRAINED, Claim
from penex.paper.figures import (
    ablations,
    boosting,
    curves,
    imagenet,
    kept,
    margins,
    sensitivity,
    shape,
    size,
)
from penex.paper.figures.picture import Picture, Point, Source
from penex.report.figures import drawn
from penex.report.page import render, safe

PICTURES: dict[str, Picture] = {
    one.name: one
    for one in (
        boosting.PICTURE,
        margins.PICTURE,
        shape.PICTURE,
        curves.ONE,
        ablations.PICTURE,
        curves.ALL,
        sensitivity.PICTURE,
        size.PICTURE,
        imagenet.PICTURE,
    )
}
KINDS = ("png", "svg", "pdf")
PAGE = "figures.html"


class Drawn(NamedTuple):
    """What came of drawing.

    Attributes:
        files: that were written.
        chapters: what became of each caption, for the page about the whole paper.
    """

    files: list[Path]
    chapters: list[Chapter]


def write(
    source: Source, names: Sequence[str], command: str, say: Callable[[str], None] = print
) -> Drawn:
    """Draw figures into the folder `figures` of the records, and a page that shows them.

    Args:
        source: where the records are.
        names: of the figures; none for all.
        command: how the user asked for it, for the page.
        say: gets a line for each figure, and one for each point of its caption.
    """
    for name in names:
        if name not in PICTURES:
            raise unknown("figure", name, tuple(PICTURES))
    folder = source.folder / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    written, shown, chapters = [], [], []
    for picture in (PICTURES[name] for name in dict.fromkeys(names or PICTURES)):
        if picture.trains and (known := _known(source, picture, bool(names))) is not None:
            say(f"{picture.name}: {known.missing or 'trained before; what it came to is kept.'}")
            chapters.append(known)
            shown.append({**_words(picture), **_again(known, folder / f"{picture.name}.png")})
            continue
        if picture.trains:
            print(f"{picture.name}: small models are trained", file=sys.stderr)
        made = picture.make(source)
        if made is None:
            missing = f"There are no records of it in {source.folder.name}: {picture.needs} trains."
            say(f"{picture.name}: not drawn. {missing}")
            shown.append({**_words(picture), "image": "", "missing": missing})
            chapters.append(untrained(picture))
            continue
        found = drawn(folder, picture.name, made.draw, KINDS)
        say(f"{picture.name}: {', '.join(path.name for path in found)}")
        for point in made.points:
            say(f"  {point.claim}: {point.verdict}. {point.found}")
        written += found
        shown.append({**_words(picture), **_shown(made.points, made.setup, found)})
        chapters.append(kept.chapter(picture, made))
        if picture.trains:
            written.append(kept.write(source.folder, picture, made))
    context = {
        "version": penex.__version__,
        "title": "The paper's figures, and ours",
        "asked": "Each figure of the paper made again, what its caption claims in our words, and "
        "what became of it. Intervals are of 95 %, paired by seed.",
        "pictures": shown,
        "command": command,
    }
    page = folder / PAGE
    files.write_text(page, render(PAGE, context, Path(__file__).parent))
    return Drawn([*dict.fromkeys(written), page], chapters)


def _known(source: Source, picture: Picture, asked: bool) -> Chapter | None:
    """What small models came to before; None if they are to be trained now.

    They are unless nothing may be trained, or they were drawn already and nobody asked for them by
    name.
    """
    known = kept.read(source.folder, picture)
    if source.read_only:
        return known if known.claims else untrained(picture)
    drawn_before = (source.folder / "figures" / f"{picture.name}.png").exists()
    return known if known.claims and drawn_before and not asked else None


def _again(known: Chapter, image: Path) -> dict[str, object]:
    """What the page shows of a figure that is not drawn again."""
    points = [Point(claim.words, claim.verdict, claim.ours) for claim in known.claims]
    said = " ".join(f"{point.claim}: {point.verdict}. {point.found}" for point in points)
    if not image.exists():
        return {"image": "", "missing": known.missing or said}
    return _shown(points, " ".join(known.notes), [image])


def untrained(picture: Picture) -> Chapter:
    """The chapter of a figure without records: its caption in our words, not judged."""
    claim = Claim(picture.name, picture.claim, "", "", NOT_TRAINED)
    return Chapter(
        kept.title(picture),
        [claim],
        missing=f"Not all of its records are there yet; command: {_command(picture)}",
    )


def _command(picture: Picture) -> str:
    return picture.needs or f"penex reproduce figures --only {picture.name}"


def _words(picture: Picture) -> dict[str, object]:
    return {"name": picture.name, "title": picture.title, "claim": picture.claim}


def _shown(points: Sequence[Point], setup: str, found: Sequence[Path]) -> dict[str, object]:
    image = base64.b64encode(found[0].read_bytes()).decode()
    return {
        "image": safe(f"data:image/png;base64,{image}"),
        "points": points,
        "setup": setup,
        "files": ", ".join(path.name for path in found),
    }
