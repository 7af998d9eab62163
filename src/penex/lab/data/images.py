"""A folder of images, decoded once into a cache."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penex.lab.data import Collection, Examples, cache, sizes
from penex.lab.data.decoding import Progress, decode_files
from penex.lab.data.folders import Kind, Listing, list_files, some
from penex.lab.data.pixels import size_of, suffixes
from penex.lab.data.trees import streamed
from penex.lab.ground import environment, files
from penex.lab.ground.errors import LabError

_SIZES = (32, 64)
_SMALL = 48  # a median shorter side up to this is trained at 32 pixels
_SAMPLE = 200
_CHUNK = 256  # rows copied at once
_READER = 2  # another number where the same files are decoded to other pixels
_ARRAY = "array.npy"

Array = np.ndarray[Any, Any]


def default_size(listing: Listing) -> int:
    """32 pixels for small images, 64 for larger ones."""
    step = max(1, len(listing.found) // _SAMPLE)
    sides = []
    for found in listing.found[::step]:
        try:
            sides.append(min(size_of(found.path)))
        except Exception:
            continue  # decoding will name it
    return _SIZES[0] if not sides or np.median(sides) <= _SMALL else _SIZES[1]


def read(root: Path, size: int | None, progress: Progress) -> Collection:
    """The images of a folder; from the cache if their files have the same content as once."""
    listing = list_files(root, Kind("images", "image files", suffixes()))
    size = default_size(listing) if size is None else size
    if size < 8:
        raise LabError(f"--image-size must be at least 8 pixels; got {size}.")
    needed, free = len(listing.found) * 3 * size * size, environment.free_memory()
    if needed > free:
        return _streamed(listing, size, needed, free)
    array, facts = _cached(listing, size) or _decode_all(listing, size, progress)
    good = [k for k, problem in enumerate(facts["problems"]) if problem is None]
    if not good:
        raise LabError(
            f"None of the {len(listing.found)} images in {root} can be read; the first: "
            f"{listing.found[0].path} ({facts['problems'][0]})."
        )
    return _collection(listing, size, array, facts, good)


def _streamed(listing: Listing, size: int, needed: int, free: int) -> Collection:
    """The images of a listing that memory does not do for, decoded while they are trained on."""
    notes = (
        f"The images would take {sizes.shown(needed)} of memory, and {sizes.shown(free)} are free: "
        "they stay in their files, and are decoded as they are trained on, as random crops.",
        *_notes(listing, [None] * len(listing.found), tuple({one.label for one in listing.found})),
    )
    return streamed(listing, size, "a folder of images", notes)


def _start(listing: Listing, size: int) -> str:
    """How the name of a cache entry starts: stands for all but the content of the files."""
    names = [[one.part, one.label, listing.name(one.path), one.size] for one in listing.found]
    return f"images-{_digest({'files': names, 'size': size, 'reader': _READER})}-"


def _stamp(listing: Listing) -> str:
    """What changes whenever a file is written to."""
    return _digest([one.changed for one in listing.found])


def _digest(value: Any) -> str:
    return hashlib.sha256(files.dumps(value).encode()).hexdigest()[:16]


def _cached(listing: Listing, size: int) -> tuple[Array, dict[str, Any]] | None:
    """The decoded images and what is known of them, if they are in the cache.

    A folder whose files were not written to since is known at once. One that was moved, copied or
    touched is known by the content of its files, which is read only if names and sizes are alike.
    """
    source, stamp = str(listing.root.resolve()), _stamp(listing)
    start = _start(listing, size)
    known = [entry for entry in cache.entries(start) if entry.facts is not None]
    same = [e for e in known if e.facts and e.facts["sources"].get(source) == stamp]
    if known and not same:
        content = _content(listing)
        same = [entry for entry in known if entry.name == f"{start}{content}"]
    for entry in same:
        if entry.facts is not None and entry.is_as_written():
            if entry.facts["sources"].get(source) != stamp:
                entry.add_source(source, stamp)
            entry.touch()
            return _array(entry.path), entry.facts
    return None


def _content(listing: Listing) -> str | None:
    """A checksum of what all files hold; None if one cannot be read."""
    digests = []
    for one in listing.found:
        try:
            with one.path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        except OSError:
            return None
    return _digest(digests)


def _array(folder: Path) -> Array:
    """The array, read as it is needed; who writes to it writes to memory of its own."""
    array: Array = np.load(folder / _ARRAY, mmap_mode="c", allow_pickle=False)
    return array


def _decode_all(listing: Listing, size: int, progress: Progress) -> tuple[Array, dict[str, Any]]:
    """Decode every file into the cache; nothing is kept if one could not be read: that may pass."""
    paths = [found.path for found in listing.found]
    with cache.making() as folder:
        decoded = decode_files(paths, size, folder / _ARRAY, progress)
        with (folder / _ARRAY).open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        facts = {
            "kind": f"{len(paths)} images, {size} pixels",
            "problems": decoded.problems,
            "grey": all(decoded.greys),
            "sizes": decoded.sizes,
            "sha256": content,
            "sources": {str(listing.root.resolve()): _stamp(listing)},
        }
        if None not in decoded.digests:
            name = _start(listing, size) + _digest(decoded.digests)
            folder = cache.keep(folder, name, facts).path
        return _array(folder), facts


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
        names = tuple(listing.name(listing.found[k].path) for k in rows)
        targets = torch.tensor(labels, dtype=torch.int64)
        parts[part] = Examples(inputs, targets, names=names)
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
        f"{listing.name(found.path)} ({problem})"
        for found, problem in zip(listing.found, problems, strict=True)
        if problem is not None
    ]
    if bad:
        files_are = "file is" if len(bad) == 1 else "files are"
        yield f"{len(bad)} {files_are} left out: {some(bad)}."
    empty = sorted(listing.labels - set(classes))
    if empty:
        yield f"Without a readable image, and left out: the class {', '.join(empty)}."
    if listing.others:
        count = len(listing.others)
        yield f"{count} files are no images by their names, and left out: {some(listing.others)}."
