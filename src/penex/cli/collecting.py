"""penex data, and reading a user's data with a progress bar."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from penex.cli.options import hinted
from penex.lab.ground.errors import LabError, writes
from penex.lab.ground.sentences import count, visible

if TYPE_CHECKING:
    from penex.cli.options import DataOptions
    from penex.lab.data import Collection
    from penex.lab.tasks import Task

_MANY = 30


def data(
    what: Annotated[Literal["list", "get", "check"], tyro.conf.Positional],
    target: Annotated[str | None, tyro.conf.Positional, hinted("[NAME | PATH]")] = None,
    /,
    root: Path = Path("data"),
    image_size: Annotated[int | None, hinted("PIXELS")] = None,
    label_column: Annotated[str | None, hinted("NAME")] = None,
    allow_large: bool = False,
) -> None:
    """List the official data sets, get one, or say what is seen in a folder or file.

    Args:
        what: list the sets that can be got; get one; check a path before anyone trains.
        target: the name of a set to get, or the path to check.
        root: where `get` puts it.
        image_size: the side of the square that images are brought to.
        label_column: the column of a .csv that holds the class.
        allow_large: take a compressed file though it becomes much larger.
    """
    if what == "list":
        _list()
    elif target is None:
        raise LabError(
            f"penex data {what} needs the {'name of a set' if what == 'get' else 'path'}."
        )
    elif what == "get":
        _get(target, root)
    else:
        _check(Path(target), image_size, label_column, allow_large)


def _list() -> None:
    from penex.lab.data.catalogue import official

    for entry in official().values():
        size = f", {entry.size / 2**20:.0f} MiB" if entry.size else ""
        print(f"{entry.name:20} {entry.title}{size}; licence: {entry.licence}")
    print(
        "\npenex data get NAME loads one into ./data; penex data check PATH looks at what is there."
    )


def _get(name: str, root: Path) -> None:
    from penex.lab.data import catalogue, download

    entry = catalogue.find(name)
    print(f"{entry.title}\nfrom {entry.url}\nLicence: {entry.licence}")
    with _progress("loading", "MiB", 2**20) as tick:
        place, notes = download.get(entry, root, tick)
    for note in notes:
        print(note)
    print(f"It is in {place}. To look at it: penex data check {place}")


def _check(path: Path, image_size: int | None, label_column: str | None, allow_large: bool) -> None:
    from penex.lab.data import bbc, people
    from penex.lab.data.split import split

    if path.is_file() and people.is_people(path):
        _check_people(path)
        return
    folder = path / "bbc" if bbc.is_bbc(path / "bbc") else path
    if folder.is_dir() and bbc.is_bbc(folder):
        _check_texts(folder)
        return
    task, collection = _own(path, image_size, label_column, None, allow_large)
    shape = tuple(collection.train.inputs.shape[1:])
    kind = str(collection.train.inputs.dtype).removeprefix("torch.")
    classes = count(len(collection.classes), "class", "classes")
    print(f"{visible(str(path))}: {collection.facts['source']}, {classes}")
    print(f"inputs of shape {shape}, {kind}", end="")
    print(
        f"; shorter sides of the files {collection.facts['sides']}"
        if "sides" in collection.facts
        else ""
    )
    _print_counts(collection)
    for sentence in collection.notes:
        print(f"- {visible(sentence)}")
    made = split(collection, 0, task.train_size, val=task.val, test=task.test)
    shares = [
        f"{verb} on {len(part)} ({'as it came' if name in collection.parts else 'by seed'})"
        for verb, name, part in (("validate", "val", made.val), ("test", "test", made.test))
    ]
    words = ["penex", "compare", "--data", str(path)]
    words += ["--label-column", label_column] if label_column is not None else []
    words += ["--image-size", str(image_size)] if image_size is not None else []
    words += ["--allow-large"] if allow_large else []
    print(
        f"{shlex.join(words)} would train {task.model} on {len(made.train)} examples, "
        f"{' and '.join(shares)}; what is split off is stratified, and inputs are normalised by "
        "the training part."
    )


def _check_texts(folder: Path) -> None:
    from penex.lab.data import bbc

    found = bbc.read(folder)
    print(
        f"{folder}: texts, {len(set(found.labels))} classes, {len(found.texts)} different articles"
    )
    for label in sorted(set(found.labels)):
        print(f"  {visible(label):30} {found.labels.count(label)}")
    if found.copies:
        print(f"- {found.copies} articles are exact copies of others, and left out.")


def _check_people(path: Path) -> None:
    from penex.lab.data import people

    if people.has_votes(path):
        counts = people.read_votes(path)
        votes = counts.sum(axis=1)
        images, classes = counts.shape
        print(
            f"{visible(str(path))}: {votes.min():g} to {votes.max():g} votes for each of "
            f"{images:,} test images, {classes} classes"
        )
        return
    found = people.read(path)
    if people.CLEAN not in found:
        raise LabError(f"{path} has no {people.CLEAN}; it has {', '.join(found) or 'no labels'}.")
    print(f"{visible(str(path))}: labels of {len(found[people.CLEAN]):,} training images")
    for name, labels in found.items():
        clean = found.get("clean_coarse_label" if "coarse" in name else people.CLEAN)
        alike = clean is not None and len(labels) == len(clean)
        wrong = f"{(labels != clean).mean():.1%} wrong" if alike else f"{len(labels):,} labels"
        print(f"  {visible(name):30} {wrong}")


def _print_counts(collection: "Collection") -> None:
    import torch

    parts = collection.parts
    counts = {
        name: torch.bincount(part.targets, minlength=len(collection.classes)).tolist()
        for name, part in parts.items()
    }
    totals = "  ".join(f"{name} {sum(count)}" for name, count in counts.items())
    print(f"  {'(all)':30} {totals}")
    for k, label in enumerate(collection.classes[:_MANY]):
        print(f"  {visible(label):30} " + "  ".join(f"{name} {c[k]}" for name, c in counts.items()))
    if len(collection.classes) > _MANY:
        print(f"  and {len(collection.classes) - _MANY} classes more")


def own_task(options: "DataOptions", out: Path) -> "Task":
    """The task of --data; what is odd about the data is said on standard error."""
    from penex.lab.tasks.own import placed

    assert options.data is not None
    task, collection = _own(
        options.data, options.image_size, options.label_column, options.model, options.allow_large
    )
    if writes():
        for note in collection.notes:
            print(visible(note), file=sys.stderr)
    return placed(task, options.data, out)


def _own(
    path: Path,
    image_size: int | None,
    label_column: str | None,
    model: str | None,
    allow_large: bool,
) -> "tuple[Task, Collection]":
    from penex.lab.tasks.own import own

    with _progress("decoding", "images", 1) as tick:
        return own(
            path,
            image_size=image_size,
            label_column=label_column,
            model=model,
            allow_large=allow_large,
            progress=tick,
        )


@contextmanager
def _progress(verb: str, unit: str, scale: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; at the end, a line with the rate if there was anything to do."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    began = time.monotonic()
    reached = 0
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(verb, total=None, visible=False)

        def tick(done: int, total: int) -> None:
            nonlocal reached
            reached = done
            bar.update(task, completed=done, total=total or None, visible=True)

        yield tick
    if reached:
        seconds = max(time.monotonic() - began, 1e-9)
        amount = reached / scale
        console.print(
            f"{verb}: {amount:.0f} {unit} in {seconds:.1f} s, {amount / seconds:.0f} a second",
            highlight=False,
        )
