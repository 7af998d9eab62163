"""A folder of images, one folder a class, decoded once into a cache."""

import hashlib
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from penex.lab import environment, files
from penex.lab.data import Collection, Examples, cache
from penex.lab.data.pixels import decode, reason
from penex.lab.errors import LabError

PARTS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
_SIZES = (32, 64)
_SMALL = 48  # a median shorter side up to this is trained at 32 pixels
_SAMPLE = 200
_NAMED = 5
_CHUNK = 256
_MANY = 2000

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], None]


class Found(NamedTuple):
    """An image file: which part and class its folder says."""

    part: str
    label: str
    path: Path


@dataclass
class Listing:
    """The image files of a folder, and what else was seen.

    Attributes:
        root: the folder.
        found: the image files, sorted.
        labels: every class, those without images too.
        others: files that are no images by their name.
        notes: sentences on what was left out.
    """

    root: Path
    found: list[Found] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)
    others: int = 0
    notes: list[str] = field(default_factory=list)


def list_images(root: Path) -> Listing:
    """The images of root/<class>/ or, if a training folder has folders, root/<part>/<class>/."""
    listing = Listing(root)
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
    known = set(Image.registered_extensions())
    for part, folder in parts.items():
        for label in _folders(folder):
            listing.labels.add(label.name)
            for path in sorted(label.rglob("*")):
                if not path.is_file() or _is_hidden(path, label):
                    continue
                if path.suffix.lower() in known:
                    listing.found.append(Found(part, label.name, path))
                else:
                    listing.others += 1
    if not any(found.part == "train" for found in listing.found):
        raise LabError(
            f"There are no images to train on in {root}: it needs a folder for each class with "
            "image files in it, or train/, val/ and test/ with such folders."
        )
    loose = sum(p.suffix.lower() in known for p in root.iterdir() if p.is_file())
    if loose:
        listing.notes.append(f"{loose} images lie in no class's folder, and are left out.")
    return listing


def _parts(folders: list[Path]) -> dict[str, Path]:
    """The folders of parts: those with a part's name that have folders themselves."""
    parts: dict[str, Path] = {}
    for part, names in PARTS.items():
        for name in names:
            for folder in folders:
                if folder.name.lower() == name and _folders(folder):
                    parts.setdefault(part, folder)
    return parts


def _is_hidden(path: Path, below: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(below).parts)


def _folders(root: Path) -> list[Path]:
    return sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))


def default_size(listing: Listing) -> int:
    """32 pixels for small images, 64 for larger ones."""
    step = max(1, len(listing.found) // _SAMPLE)
    sides = []
    for found in listing.found[::step]:
        try:
            with Image.open(found.path) as image:
                sides.append(min(image.size))
        except Exception:
            continue  # decoding will name it
    return _SIZES[0] if not sides or np.median(sides) <= _SMALL else _SIZES[1]


def read(root: Path, size: int | None, progress: Progress) -> Collection:
    """The images of a folder; from the cache if no file has changed since they were decoded."""
    listing = list_images(root)
    size = default_size(listing) if size is None else size
    if size < 8:
        raise LabError(f"--image-size must be at least 8 pixels; got {size}.")
    entry = cache.Entry(_key(listing, size))
    facts = entry.facts()
    if facts is None:
        facts = _decode_all(listing, size, entry, progress)
    good = [k for k, problem in enumerate(facts["problems"]) if problem is None]
    if not good:
        raise LabError(
            f"None of the {len(listing.found)} images in {root} can be read; the first: "
            f"{listing.found[0].path} ({facts['problems'][0]})."
        )
    return _collection(listing, size, entry.array(), facts, good)


def _key(listing: Listing, size: int) -> str:
    stamps = []
    for found in listing.found:
        status = found.path.stat()
        name = str(found.path.relative_to(listing.root))
        stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
        stamps.append([found.part, found.label, name, *stamp])
    root = str(listing.root.resolve())
    text = files.dumps({"root": root, "files": stamps, "size": size, "reader": 1})
    return "images-" + hashlib.sha256(text.encode()).hexdigest()[:24]


class Decoded(NamedTuple):
    """What is known of some files after decoding, a value each."""

    problems: list[str | None]
    greys: list[bool]
    sizes: list[tuple[int, int]]


def _decode_all(
    listing: Listing, size: int, entry: cache.Entry, progress: Progress
) -> dict[str, Any]:
    """Decode every file into the cache, with all cores if there are many."""
    paths = [found.path for found in listing.found]
    n = len(paths)
    starts = range(0, n, _CHUNK)
    with entry.writing((n, 3, size, size)) as place:
        jobs = [(place, paths[start : start + _CHUNK], start, size) for start in starts]
        chunks = []
        with _workers(n) as run:
            for done in run(_decode_some, jobs):
                chunks.append(done)
                progress(min(_CHUNK * len(chunks), n), n)
    facts = {
        "problems": [problem for chunk in chunks for problem in chunk.problems],
        "grey": all(grey for chunk in chunks for grey in chunk.greys),
        "sizes": [pair for chunk in chunks for pair in chunk.sizes],
    }
    return entry.finish(facts)


@contextmanager
def _workers(n: int) -> Iterator[Callable[..., Iterable[Decoded]]]:
    """A map over processes for many files: Pillow holds the interpreter most of the time.

    Where the system can, workers are forked: they start at once and touch nothing of torch.
    """
    if n < _MANY or environment.cores() == 1:
        yield map
        return
    kind = "fork" if sys.platform == "linux" else "spawn"
    context = multiprocessing.get_context(kind)
    try:
        with ProcessPoolExecutor(environment.cores(), mp_context=context) as pool:
            yield pool.map
    except BrokenProcessPool as error:
        raise LabError(
            "A process that decodes images was killed: by lack of memory, or by a file that makes "
            "a decoder crash."
        ) from error


def _decode_some(job: tuple[Path, list[Path], int, int]) -> Decoded:
    """Decode some files into their rows of the array."""
    place, paths, start, size = job
    array = np.load(place, mmap_mode="r+")
    problems: list[str | None] = [None] * len(paths)
    greys, sizes = [True] * len(paths), [(0, 0)] * len(paths)
    for k, path in enumerate(paths):
        try:
            content = path.read_bytes()
            if not content:
                raise ValueError("the file is empty")
            array[start + k], greys[k], sizes[k] = decode(content, size)
        except Exception as error:  # Pillow's plugins raise all kinds
            problems[k] = reason(error)
    return Decoded(problems, greys, sizes)


def _collection(
    listing: Listing, size: int, array: Array, facts: dict[str, Any], good: list[int]
) -> Collection:
    """The readable images by part, grey ones with one channel."""
    classes = tuple(sorted({listing.found[k].label for k in good}))
    place = {label: k for k, label in enumerate(classes)}
    channels = slice(0, 1) if facts["grey"] else slice(0, 3)
    parts: dict[str, Examples] = {}
    for part in dict.fromkeys(found.part for found in listing.found):
        rows = [k for k in good if listing.found[k].part == part]
        labels = [place[listing.found[k].label] for k in rows]
        inputs = torch.from_numpy(_rows(array, rows, channels))
        parts[part] = Examples(inputs, torch.tensor(labels, dtype=torch.int64))
    known = [facts["sizes"][k] for k in good]
    sides = np.array([min(pair) for pair in known])
    return Collection(
        classes=classes,
        facts={
            "source": "a folder of images",
            "image_size": size,
            "content": facts["sha256"],
            "sides": f"{sides.min()} to {sides.max()} pixels, median {int(np.median(sides))}",
        },
        notes=tuple(_notes(listing, facts["problems"], classes)),
        **parts,  # type: ignore[arg-type]
    )


def _rows(array: Array, rows: list[int], channels: slice) -> Array:
    """Some rows of the cached array: the array itself if it is all of it, else one copy."""
    if len(rows) == len(array) and channels.stop == array.shape[1]:
        return array
    picked = np.empty((len(rows), channels.stop, *array.shape[2:]), array.dtype)
    for start in range(0, len(rows), _CHUNK):
        picked[start : start + _CHUNK] = array[rows[start : start + _CHUNK], channels]
    return picked


def _notes(listing: Listing, problems: list[str | None], classes: tuple[str, ...]) -> Iterator[str]:
    yield from listing.notes
    bad = [
        f"{found.path.relative_to(listing.root)} ({problem})"
        for found, problem in zip(listing.found, problems, strict=True)
        if problem is not None
    ]
    if bad:
        more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        files_are = "file is" if len(bad) == 1 else "files are"
        yield f"{len(bad)} {files_are} left out: {', '.join(bad[:_NAMED])}{more}."
    empty = sorted(listing.labels - set(classes))
    if empty:
        yield f"Without a readable image, and left out: the class {', '.join(empty)}."
    if listing.others:
        yield f"{listing.others} files are no images by their names, and left out."
