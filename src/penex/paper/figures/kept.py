"""What the figures that train small models came to: kept, so that no page has to train again."""

from pathlib import Path
from typing import Any

import torch

from penex.lab.ground import environment, files
from penex.lab.ground.errors import RecordError
from penex.paper.chapters import Chapter
from penex.paper.claims import Claim
from penex.paper.figures.picture import Picture, Shown

NAME = "figures.json"  # beside the records
_FORMAT = 1


def title(picture: Picture) -> str:
    """Of its chapter."""
    return f"Figure: {picture.title}"


def chapter(picture: Picture, made: Shown) -> Chapter:
    """What became of a caption."""
    claims = [Claim(picture.name, p.claim, "", p.found, p.verdict) for p in made.points]
    return Chapter(title(picture), claims, [made.setup])


def write(folder: Path, picture: Picture, made: Shown) -> Path:
    """Keep what a figure came to beside what others did; the file."""
    path = folder / NAME
    known = _content(path)
    facts = environment.describe(torch.device("cpu"))
    known[picture.name] = {
        "points": [list(point) for point in made.points],
        "setup": made.setup,
        "machine": f"{facts['device']}, torch {facts['torch']}, Python {facts['python']}",
    }
    files.write_json(path, {"format": _FORMAT, "figures": known})
    return path


def read(folder: Path, picture: Picture) -> Chapter:
    """What a figure came to; a chapter without claims if nothing was kept."""
    path = folder / NAME
    one = _content(path).get(picture.name)
    if one is None:
        return Chapter(title(picture))
    try:
        claims = [
            Claim(picture.name, claim, "", found, verdict)
            for claim, verdict, found in one["points"]
        ]
        setup, machine = str(one["setup"]), str(one["machine"])
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from error
    command = f"penex reproduce figures --only {picture.name}"
    return Chapter(title(picture), claims, [setup], machine=machine, command=command)


def _content(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    try:
        content = files.loads(path.read_bytes())
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {_FORMAT}")
        return dict(content["figures"])
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> RecordError:
    return RecordError(
        f"{path} is damaged ({type(error).__name__}: {error}). It is left as it is: move it away, "
        "and penex reproduce figures makes another."
    )
