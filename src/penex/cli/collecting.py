"""penex data, and reading a user's data with a progress bar."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from penex.cli.options import DataOptions, hinted, words_of
from penex.lab.ground.errors import LabError, writes
from penex.lab.ground.sentences import count, visible

if TYPE_CHECKING:
    from penex.lab.data import Collection
    from penex.lab.data.read import FoundTexts
    from penex.lab.tasks import Task

_MANY = 30


def data(
    what: Annotated[Literal["list", "get", "check"], tyro.conf.Positional],
    target: Annotated[str | None, tyro.conf.Positional, hinted("[NAME | PATH]")] = None,
    /,
    root: Path = Path("data"),
    image_size: Annotated[int | None, hinted("PIXELS")] = None,
    label_column: Annotated[str | None, hinted("NAME")] = None,
    text_column: Annotated[str | None, hinted("NAME")] = None,
    encoder: Annotated[str | None, hinted("NAME | FOLDER", "(default: all-MiniLM-L6-v2)")] = None,
    allow_large: bool = False,
) -> None:
    """List the official data sets, get one, or say what is seen in a folder or file.

    Args:
        what: list the sets that can be got; get one; check a path before anyone trains.
        target: the name of a set to get, or the path to check.
        root: where `get` puts it.
        image_size: the side of the square that images are brought to.
        label_column: the column of a .csv that holds the class.
        text_column: the column of a .csv that holds texts, if it does.
        encoder: whose tokens texts are counted in: its name, or its folder.
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
        options = DataOptions(
            data=Path(target),
            image_size=image_size,
            label_column=label_column,
            text_column=text_column,
            encoder=encoder,
            allow_large=allow_large,
        )
        _check(Path(target), options)


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


def _check(path: Path, options: DataOptions) -> None:
    from penex.lab.data import bbc, people
    from penex.lab.data.read import read_texts

    if path.is_file() and people.is_people(path):
        _check_people(path)
        return
    folder = path / "bbc" if bbc.is_bbc(path / "bbc") else path
    if path.is_dir() or options.text_column is not None:
        words = read_texts(folder, options.text_column, options.label_column)
        if words is not None:
            _check_texts(folder, words, options)
            return
    task, collection = _own(options)
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
    plan = _would(collection, options, task.train_size, f"train {task.model}")
    by = "the training part" if collection.mean is None else "fixed numbers"
    print(f"{plan}, and inputs are normalised by {by}.")


def _would(collection: "Collection", options: DataOptions, size: int, verb: str) -> str:
    """What a comparison of these data would do, as the start of a sentence."""
    from penex.lab.data.split import split

    made = split(collection, 0, size)
    shares = [
        f"{verb} on {len(part)} ({'as it came' if name in collection.parts else 'by seed'})"
        for verb, name, part in (("validate", "val", made.val), ("test", "test", made.test))
    ]
    command = shlex.join(["penex", "compare", *words_of(options)])
    return (
        f"{command} would {verb} on {len(made.train)} examples, {' and '.join(shares)}; what is "
        "split off is stratified"
    )


def _check_texts(path: Path, found: "FoundTexts", options: DataOptions) -> None:
    """Classes and their numbers, lengths, what is left out, and what would be done."""
    from penex.lab.data.observed import observations
    from penex.lab.data.read import read
    from penex.lab.models.encoder import SMALL, Encoder
    from penex.lab.tasks.own import train_size

    texts = [one for part in found.parts.values() for one in part.kept]
    labels = sorted({one.label for one in texts})
    kinds = count(len(labels), "class", "classes")
    print(f"{visible(str(path))}: {found.source}, {kinds}, {count(len(texts), 'different text')}")
    for label in labels[:_MANY]:
        numbers = (
            f"{name} {sum(one.label == label for one in part.kept)}"
            for name, part in found.parts.items()
        )
        print(f"  {visible(label):30} {'  '.join(numbers)}")
    if len(labels) > _MANY:
        print(f"  and {len(labels) - _MANY} classes more")
    for sentence in (*found.notes, *(note for part in found.parts.values() for note in part.notes)):
        print(f"- {visible(sentence)}")
    encoder = Encoder(options.encoder or SMALL)
    words = [one.text for one in texts]
    try:
        tokenizer = encoder.tokenizer
        lengths, most = sorted(tokenizer.lengths(words)), tokenizer.length
    except LabError as error:
        if options.encoder is not None:
            raise
        lengths = sorted(map(len, words))
        print(f"{_spread(lengths)} characters a text. Tokens are not counted: {error}")
        return
    cut = sum(length > most for length in lengths) / max(1, len(lengths))
    print(
        f"{_spread(lengths)} tokens a text; {cut:.1%} are cut at {most}, the most of {encoder.name}"
    )
    collection = read(  # what cannot be trained on is said as by a comparison
        path,
        label_column=options.label_column,
        text_column=options.text_column,
        tokenizer=lambda: tokenizer,
    )
    for sentence in observations(collection):
        print(f"- {visible(sentence)}")
    print(f"{_would(collection, options, train_size(collection), f'fine-tune {encoder.name}')}.")
    print(
        "With --frozen it would leave the encoder as it is and train a small network on what that "
        "says of each text: minutes instead of hours on a CPU."
    )


def _spread(lengths: list[int]) -> str:
    """From the shortest to the longest.

    >>> _spread([1, 2, 5])
    '1 to 5 (median 2)'
    """
    if not lengths:
        return "no"
    return f"{lengths[0]} to {lengths[-1]} (median {lengths[len(lengths) // 2]})"


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


def own_task(options: DataOptions, out: Path) -> "Task":
    """The task of --data; what is odd about the data is said on standard error."""
    from penex.lab.tasks.own import placed

    assert options.data is not None
    task, collection = _own(options)
    if writes():
        for note in collection.notes:
            print(visible(note), file=sys.stderr)
    return placed(task, options.data, out)


def frozen(task: "Task", device: str) -> "Task":
    """A task of texts with what its encoder, which stays as it is, says of them."""
    from penex.lab.tasks.frozen import frozen as read_once

    with _progress("reading", "texts", 1) as tick:

        def told(done: int, total: int) -> None:
            if not done and task.encoder is not None:
                print(
                    f"{task.encoder.name} reads {total} texts, once: what it says is kept.",
                    file=sys.stderr,
                )
            tick(done, total)

        return read_once(task, told, device)


def _own(options: DataOptions) -> "tuple[Task, Collection]":
    from penex.lab.tasks.own import own

    assert options.data is not None
    with _progress("decoding", "images", 1) as tick:
        return own(
            options.data,
            image_size=options.image_size,
            label_column=options.label_column,
            text_column=options.text_column,
            encoder=options.encoder,
            model=None if options.frozen else options.model,  # which then is not the encoder
            allow_large=options.allow_large,
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
