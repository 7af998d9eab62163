"""A task made of the user's own data."""

import hashlib
import os
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from penex.lab import models
from penex.lab.data import Collection
from penex.lab.data.decoding import Progress
from penex.lab.data.observed import observations
from penex.lab.data.read import quiet, read
from penex.lab.engine.recipe import Recipe
from penex.lab.ground import files, locks
from penex.lab.ground.errors import LabError
from penex.lab.models.encoder import SMALL, Encoder
from penex.lab.tasks import NAMES, Task

_VAL = _TEST = 0.2  # the paper's share for validation; the same again for testing

OWNER = "data.json"  # in a task's folder: which data it belongs to

RECIPE = Recipe(epochs=60, lr=1e-3, clip=5.0)  # that of digits
TEXTS = Recipe(  # of what is trained already, so a tenth of the rate and a sixth of the epochs
    epochs=10,
    lr=1e-4,
    optimizer="adamw",
    weight_decay=0.01,
    batch_size=16,
    schedule="linear",
    clip=5.0,
    matmul_precision="high",
)


def task_name(path: Path) -> str:
    """The name of a task, from the name of its data: letters and digits of any script.

    >>> task_name(Path("My Flowers.npz")), task_name(Path("Ärzte/花 12.zip"))
    ('my_flowers', '花_12')
    """
    stem = unicodedata.normalize("NFC", path.resolve().name.partition(".")[0].lower())
    kept = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in stem)
    name = "_".join(kept.split()).encode()[:200].decode(errors="ignore") or "data"
    return f"{name}_data" if name in NAMES else name


def placed(task: Task, path: Path, out: Path) -> Task:
    """The task of a user's data under a name that no other data have in a folder of tasks.

    The folder of the task remembers where its data are. Others of the same name get a name with a
    hash of where they are.

    Args:
        task: of the data.
        path: of the data.
        out: the folder of all tasks.
    """
    ours = {"path": str(path.resolve()), "sha256": task.identity["sha256"]}
    out.mkdir(parents=True, exist_ok=True)
    with locks.held(out / ".names.lock", wait=True):
        name, owner = task.name, _owner(out / task.name)
        others = any(owner.values()) and not any(ours[key] in owner[key] for key in owner)
        if others or path.resolve().is_relative_to((out / name).resolve()):  # or the data are there
            name += f"-{hashlib.sha256(os.fsencode(ours['path'])).hexdigest()[:8]}"
            owner = _owner(out / name)
        if not owner["path"] or ours["path"] in owner["path"]:
            (out / name).mkdir(exist_ok=True)
            if owner != {key: [value] for key, value in ours.items()}:
                files.write_json(out / name / OWNER, ours)
    return replace(task, name=name)


def _owner(folder: Path) -> dict[str, list[str]]:
    """Where the data of a task's folder are, and their checksums; empty if it has none yet."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = files.loads((folder / OWNER).read_bytes())
        return {key: [str(known[key])] for key in ("path", "sha256")}
    # Of a version that did not write it down, or damaged: the runs know their data.
    return {"path": [], "sha256": list(_checksums(folder))}


def _checksums(folder: Path) -> Iterator[str]:
    for path in folder.glob("*/*/seed-*/config.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            config: dict[str, Any] = files.loads(path.read_bytes())
            yield str(config["data"]["sha256"])


def own(
    path: Path,
    *,
    image_size: int | None = None,
    label_column: str | None = None,
    text_column: str | None = None,
    encoder: str | None = None,
    model: str | None = None,
    allow_large: bool = False,
    progress: Progress = quiet,
) -> tuple[Task, Collection]:
    """The task of a user's data, and the data, with all that is to be said of them in their notes.

    Args:
        path: a folder of images or texts, an .npz, a .csv, an archive or official files.
        image_size: the side of the square that images are brought to.
        label_column: of a .csv file.
        text_column: of a .csv file that holds texts.
        encoder: of texts, by its name or its folder; the small one unless given.
        model: the name of a network or module:factory; by the shape of the data unless given.
        allow_large: take a compressed file though it becomes much larger.
        progress: (done, total) while images are decoded.
    """
    reader = Encoder(encoder or SMALL)
    collection = read(
        path,
        image_size=image_size,
        label_column=label_column,
        text_column=text_column,
        tokenizer=lambda: reader.tokenizer,
        allow_large=allow_large,
        progress=progress,
    )
    notes = (*collection.notes, *observations(collection))
    facts = {**collection.facts, **({"notes": list(notes)} if notes else {})}
    collection = replace(collection, notes=notes, facts=facts)
    shape = tuple(collection.train.inputs.shape[1:])
    words = "length" in facts
    identity = {"sha256": collection.facts["sha256"]}
    if words:
        if model is not None:
            raise LabError(f"Texts are read by an --encoder, not by a --model; got {model}.")
        chosen = "encoder"
        build: models.Build = reader.build
        facts |= {"encoder": reader.name, **reader.identity}
    else:
        if encoder is not None:
            raise LabError(f"--encoder reads texts; {path} holds none.")
        chosen = model or models.default(shape)
        build = models.find(chosen)
        own_source = models.source(chosen)
        if own_source:
            identity["model_source"] = own_source
    build(shape, len(collection.classes))  # a model that does not fit is told now
    return Task(
        name=task_name(path),
        title=f"{collection.facts['source']}: {path.name}",
        collect=lambda: collection,
        train_size=train_size(collection),
        model=chosen,
        build=build,
        recipe=TEXTS if words else RECIPE,
        encoder=reader if words else None,
        val=_VAL,
        test=_TEST,
        identity=identity,
        preprocessing=_preprocessing(collection, text_column),
    ), collection


def train_size(collection: Collection) -> int:
    """How many examples are trained on unless the user says otherwise."""
    n = len(collection.train.targets)
    n -= 0 if collection.test else round(_TEST * n)
    return n - (0 if collection.val else round(_VAL * n))


def _preprocessing(collection: Collection, text_column: str | None) -> dict[str, object]:
    """How a new file becomes an input, for `penex predict`."""
    facts = collection.facts
    if "length" in facts:
        return {"kind": "texts", "text_column": text_column or "text"}
    if "image_size" in facts:
        short = {"short_side": facts["short_side"]} if "short_side" in facts else {}
        return {"kind": "images", "image_size": facts["image_size"], **short}
    if "columns" in facts:
        words = {"words": facts["words"]} if "words" in facts else {}
        return {"kind": "table", "columns": facts["columns"], **words}
    shape = collection.train.inputs.shape
    images_like = len(shape) == 4 and shape[1] in (1, 3) and shape[2] == shape[3]
    if images_like and str(collection.train.inputs.dtype) == "torch.uint8":
        return {"kind": "images", "image_size": shape[2]}
    return {"kind": "arrays"}
