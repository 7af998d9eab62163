"""Parts of the page that are no charts: two comparisons, examples, how it was made."""

import base64
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from penex.lab.data import arrays
from penex.lab.ground.errors import LabError
from penex.lab.ground.sentences import count, visible
from penex.lab.records import OBJECTIVE, home_of
from penex.lab.records.examples import NAME as EXAMPLES
from penex.metrics import METRICS, Metric
from penex.report import home
from penex.report.plain import place
from penex.report.results import Results
from penex.report.statistics import paired_difference
from penex.report.words import with_interval


def named(text: str, result: Results, several: bool) -> str:
    """A text with the name of its comparison, if there are several."""
    return f"{result.folder.name}: {text}" if several else text


def difference(first: Results, second: Results, columns: Sequence[Metric]) -> dict[str, Any] | None:
    """Second minus first for every loss that both have; None if there is none."""
    rows = []
    for row in first.rows:
        twin = next(
            (r for r in second.rows if (r.label, r.train_size) == (row.label, row.train_size)),
            None,
        ) or next((r for r in second.rows if r.label == row.label), None)
        if twin is None:
            continue
        cells = [
            with_interval(paired_difference(twin.values(m.name), row.values(m.name)), m)
            for m in columns
        ]
        rows.append({"name": row.title, "cells": cells})
    if not rows:
        return None
    return {
        "rows": rows,
        "words": f"First: {first.folder.name}. Second: {second.folder.name}. Seeds that both have "
        "are paired; that is fair only where a seed means the same in both.",
    }


def examples(results: Results) -> dict[str, Any] | None:
    """The images that the losses disagree on, if they were kept; None otherwise."""
    path = results.folder / EXAMPLES
    if not path.exists():
        return None
    try:
        kept = arrays.load(path, lambda names: names)
    except LabError:
        return None  # the page has better things to show
    try:
        return _examples(results, kept)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        return None  # a file of another kind


def _examples(results: Results, kept: dict[str, Any]) -> dict[str, Any] | None:
    if not len(kept["rows"]):
        return None
    classes = [visible(str(name)) for name in kept["classes"]]
    titles = {row.label: row.title for row in results.rows}
    labels = [str(label) for label in kept["labels"]]
    if not set(labels) <= titles.keys():
        return None  # they belong to another comparison
    pictures = []
    for k, row in enumerate(kept["rows"].tolist()):
        target = int(kept["target"][k])
        answers = [
            {
                "title": titles[label],
                "said": classes[int(kept["predictions"][j, k])],
                "right": int(kept["predictions"][j, k]) == target,
                "confidence": f"{kept['confidences'][j, k]:.2f}",
            }
            for j, label in enumerate(labels)
        ]
        pictures.append(
            {
                "row": row,
                "target": classes[target],
                "source": png(kept["images"][k]),
                "answers": answers,
            }
        )
    return {
        "seed": int(kept["seed"]),
        "size": count(int(kept["train_size"]), "training example"),
        "pictures": pictures,
    }


def at_work(results: Results, several: bool, folder: Path | None) -> Iterator[dict[str, Any]]:
    """How to use the best run of a comparison, if its model is there."""
    view = results.view
    run = home.best(results.records(), view)
    if run is None:
        return
    where = home_of(results.folder)
    row = next(row for row in results.rows if run in row.records.values())
    entropy = METRICS[OBJECTIVE].text(view.of(run.done)["validation"][OBJECTIVE])
    first = home.is_best(run, results.records(), view)
    which = "The run" if first else "Of the runs whose model is there, the run"
    words = f"{which} with the lowest validation cross-entropy, {entropy}, is {row.title} with seed"
    when = f", {view.words}" if view.identity else ""
    words = named(f"{words} {run.config['seed']}{when}.", results, several)
    if not home.is_named(run.record.folder):
        words += f" In the folder of the records, {results.folder.name}:"
    link = _link(run.record.folder, folder) if _is_beside(results, folder) else ""
    yield {"words": words, "link": link, **home.at_work(run, where, view)._asdict()}


def before(results: Results, folder: Path | None) -> list[dict[str, str]]:
    """The other comparisons of the task; with links, if this page lies beside its records."""
    beside_it = _is_beside(results, folder)
    found = [one._asdict() for one in home.before(results)]
    return [{**one, "page": quote(one["page"]) if beside_it else ""} for one in found]


def beside(results: Results, folder: Path | None, name: str) -> str:
    """The name of another page in the same folder, if it is there."""
    found = _is_beside(results, folder) and (results.folder / name).is_file()
    return name if found else ""


def _is_beside(results: Results, folder: Path | None) -> bool:
    return folder is not None and folder.resolve() == results.folder.resolve()


def _link(target: Path, folder: Path | None) -> str:
    return quote(os.path.relpath(target.resolve(), (folder or Path()).resolve())) + "/"


def png(image: np.ndarray[Any, Any]) -> str:
    """An image of bytes, (C, H, W), as an address that holds all of it."""
    from PIL import Image

    array = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def own_recipes(results: Results) -> list[str]:
    """The fields of the recipe in which the runs of a comparison differ."""
    recipes = [run.config["recipe"] for run in results.records()]
    names = dict.fromkeys(name for recipe in recipes for name in recipe)
    return [name for name in names if len({repr(recipe.get(name)) for recipe in recipes}) > 1]


def setup(results: Results, several: bool) -> Iterator[dict[str, Any]]:
    """Recipe, machine and data of a comparison, as they stand in its first record.

    Of the recipe, what all runs have; the rest is said to be the losses' own.
    """
    run = next(results.records(), None)
    if run is None:
        return
    config, environment = run.config, dict(run.environment)
    environment.pop("resumed_in", None)
    data = environment.pop("data", {})
    data = dict(data) if isinstance(data, dict) else {}
    data.pop("notes", None)  # they stand among the caveats
    if "labels_changed" in data:  # every seed and size has its own
        which = f"labels changed with seed {config['seed']} and "
        which += count(config["train_size"], "example")
        data[which] = data.pop("labels_changed")
    recipe = {k: v for k, v in config["recipe"].items() if v not in (None, 0, 0.0, False)}
    recipe |= dict.fromkeys(own_recipes(results), "each loss its own")
    treatment = {k: config.get(k) for k in ("label_noise", "class_weights") if config.get(k)}
    for title, facts in (
        ("Recipe", {"network": config["model"], **recipe, **treatment}),
        ("Machine", {k: v for k, v in environment.items() if v is not None}),
        ("Data", data),
    ):
        yield {
            "title": named(title, results, several),
            "facts": [(visible(k.replace("_", " ")), _text(v)) for k, v in facts.items()],
        }


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_text(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return visible(place(str(value)))
