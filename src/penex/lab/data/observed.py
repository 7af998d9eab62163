"""What someone should know of data before training: uneven classes, copies."""

import hashlib
import re
from collections.abc import Iterator
from fractions import Fraction

import torch

from penex.lab.data import Collection, Examples

_UNEVEN = 5.0


def observations(collection: Collection) -> Iterator[str]:
    """Sentences on what is odd about data that can be used, besides the collection's own notes."""
    counts = torch.bincount(collection.train.targets, minlength=len(collection.classes))
    high, low = int(counts.argmax()), int(counts.argmin())
    names = collection.classes
    if counts[high] > _UNEVEN * counts[low]:
        yield (
            f"The classes are uneven: {names[high]} has {int(counts[high])} examples, {names[low]} "
            f"{int(counts[low])}. --class-weights balanced makes them count alike."
        )
    yield from _alike(names)
    yield from _copies({name: _digests(part) for name, part in collection.parts.items()})


def _alike(names: tuple[str, ...]) -> Iterator[str]:
    """Classes whose names a reader may take for one: Yes and yes, 1 and 1.0."""
    known: dict[Fraction | str, str] = {}
    for name in names:
        number = re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?", name)
        form = Fraction(name) if number else " ".join(name.split()).casefold()
        other = known.setdefault(form, name)
        if other != name:
            yield f"{other!r} and {name!r} are two classes: their names are nearly alike."


Labelled = dict[bytes, list[int]]


def _copies(seen: dict[str, Labelled]) -> Iterator[str]:
    """Examples that are there again, in the same part or another, and under another class."""
    for name, found in seen.items():
        copies = sum(len(labels) - 1 for labels in found.values())
        if copies:
            extra = " A random split may put copies on both sides." if len(seen) == 1 else ""
            yield f"{copies} examples of {name} are exact copies of others there.{extra}"
    parts = list(seen)
    for k, first in enumerate(parts):
        for second in parts[k + 1 :]:
            shared = sum(len(labels) for one, labels in seen[second].items() if one in seen[first])
            if shared:
                yield f"{shared} examples of {second} are in {first} too, exactly."
    classes: dict[bytes, set[int]] = {}
    for found in seen.values():
        for one, labels in found.items():
            classes.setdefault(one, set()).update(labels)
    torn = sum(len(labels) > 1 for labels in classes.values())
    if torn:
        yield f"{torn} examples are there under several classes: no model can have them right."


def _digests(part: Examples) -> Labelled:
    """The labels of every different input, by its digest; none of inputs that are not in memory."""
    found: Labelled = {}
    if part.stream is not None:
        return found
    for row, label in zip(part.inputs.flatten(1).numpy(), part.targets.tolist(), strict=True):
        digest = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
        found.setdefault(digest, []).append(label)
    return found
