"""A folder with a folder for each class: which files there are, and what cannot be looked at."""

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from penex.lab.ground.errors import LabError

PARTS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
_NAMED = 5


class Kind(NamedTuple):
    """What is looked for.

    Attributes:
        things: what they are called.
        files: what their files are called.
        suffixes: how the names of their files end, in small letters.
    """

    things: str
    files: str
    suffixes: Collection[str]


class Found(NamedTuple):
    """A file of the kind.

    Attributes:
        part: which part its folder says.
        label: which class its folder says.
        path: where it is.
        size: its bytes.
        changed: when its content and its entry in the folder changed.
    """

    part: str
    label: str
    path: Path
    size: int
    changed: tuple[int, int]


@dataclass
class Listing:
    """The files of a folder, and what else was seen.

    Attributes:
        root: the folder.
        kind: what was looked for.
        found: the files of the kind, sorted.
        labels: every class, those without such files too.
        others: the other files, by their name.
        unseen: folders, links and files that could not be looked at, and why.
        notes: sentences on what was left out.
    """

    root: Path
    kind: Kind
    found: list[Found] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)
    others: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def name(self, path: Path) -> str:
        """A path below the folder, as it is shown."""
        return str(path.relative_to(self.root))


def some(names: list[str]) -> str:
    """The first few of some names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def list_files(root: Path, kind: Kind) -> Listing:
    """The files of root/<class>/ or, if a training folder has folders, root/<part>/<class>/."""
    listing = Listing(root, kind)
    folders = _folders(root)
    parts = _parts(folders)
    words = {name for names in PARTS.values() for name in names}
    if "train" in parts:
        beside = sorted(f.name for f in folders if f not in parts.values())
        if beside:
            listing.notes.append(f"Beside train/, and left out: {', '.join(beside)}.")
    elif folders and all(folder.name.lower() in words for folder in folders):
        names = ", ".join(folder.name for folder in folders)
        raise LabError(f"{root} has {names} but no train/ with a folder for each class.")
    else:
        parts = {"train": root}
    for part, folder in parts.items():
        for label in _folders(folder):
            listing.labels.add(label.name)
            found = [_looked_at(listing, part, label.name, path) for path in _below(listing, label)]
            listing.found += sorted(one for one in found if one is not None)
    for folder in {root, *parts.values()}:
        _note_broken_links(listing, folder)
    if not any(found.part == "train" for found in listing.found):
        raise LabError(
            f"There are no {kind.things} to train on in {root}: it needs a folder for each class "
            f"with {kind.files} in it, or train/, val/ and test/ with such folders."
            + (f" It has what cannot be read: {some(listing.unseen)}." if listing.unseen else "")
        )
    loose = sum(p.suffix.lower() in kind.suffixes for p in root.iterdir() if p.is_file())
    if loose:
        listing.notes.append(f"{loose} {kind.things} lie in no class's folder, and are left out.")
    if listing.unseen:
        count = len(listing.unseen)
        listing.notes.append(
            f"{count} {'thing' if count == 1 else 'things'} could not be looked at, and what may "
            f"be there is left out: {some(listing.unseen)}."
        )
    return listing


def _below(listing: Listing, label: Path) -> Iterator[Path]:
    """What lies in a class's folder and the folders in it, but for folders, and hidden things.

    Links are followed. A folder that can be reached in several ways is looked at once; one above
    the class's own, to which a link may lead, not at all: other classes lie there.
    """
    left = [label]
    seen = {(above.st_dev, above.st_ino) for above in map(Path.stat, label.resolve().parents)}
    while left:
        folder = left.pop()
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as inside:
                names = sorted(item.name for item in inside if not item.name.startswith("."))
        except OSError as error:
            listing.unseen.append(f"{listing.name(folder)} ({error.strerror})")
            continue
        for name in names:
            if os.path.isdir(folder / name):
                left.append(folder / name)
            else:
                yield folder / name


def _looked_at(listing: Listing, part: str, label: str, path: Path) -> Found | None:
    """A file as it is listed, if it is of the kind by its name."""
    try:
        status = path.stat()
    except OSError as error:
        why = "a link to nothing" if path.is_symlink() else error.strerror
        listing.unseen.append(f"{listing.name(path)} ({why})")
        return None
    if path.suffix.lower() not in listing.kind.suffixes or not stat.S_ISREG(status.st_mode):
        listing.others.append(listing.name(path))
        return None
    changed = (status.st_mtime_ns, status.st_ctime_ns)
    return Found(part, label, path, status.st_size, changed)


def _note_broken_links(listing: Listing, folder: Path) -> None:
    """A class whose folder is a link to nothing is no class, and shall not go without a word."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and not path.exists() and not path.name.startswith("."):
            listing.unseen.append(f"{listing.name(path)} (a link to nothing)")


def _parts(folders: list[Path]) -> dict[str, Path]:
    """The folders of parts: those with a part's name that have folders themselves."""
    parts: dict[str, Path] = {}
    for part, names in PARTS.items():
        for name in names:
            for folder in folders:
                if folder.name.lower() == name and _folders(folder):
                    parts.setdefault(part, folder)
    return parts


def _folders(root: Path) -> list[Path]:
    return sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
