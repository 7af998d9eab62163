"""Predictions of a trained model for new files, prepared as the training data were."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from penex.lab.errors import LabError
from penex.lab.models.exported import Exported

_BATCH = 256
_INPUTS = ("x", "x_test", "test_images")  # of an .npz file, the first that is there


class Item(NamedTuple):
    """Something to predict.

    Attributes:
        file: where it came from.
        row: which of several in that file, from 0; None for a file of one.
        value: the raw input, or a sentence why there is none.
    """

    file: str
    row: int | None
    value: Tensor | str


class Prediction(NamedTuple):
    """What the model says of an item."""

    file: str
    row: int | None
    label: str
    probabilities: dict[str, float]


def items(model: Exported, paths: Iterable[Path]) -> Iterator[Item]:
    """The raw inputs in some files; a folder stands for the files in it."""
    kind = model.card["preprocessing"]["kind"]
    readers = {"images": _images, "table": _table, "arrays": _arrays}
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in inside:
            if file is path or not file.name.startswith("."):
                arrays = file.suffix.lower() in (".npy", ".npz")
                yield from (_arrays if arrays else readers[kind])(model, file)


def _images(model: Exported, path: Path) -> Iterator[Item]:
    from penex.lab.data import pixels

    channels = model.card["shape"][0]
    try:
        content = path.read_bytes()
        if not content:
            raise ValueError("the file is empty")
        array, grey, _ = pixels.decode(content, model.card["preprocessing"]["image_size"])
    except FileNotFoundError:
        yield Item(str(path), None, "there is no such file")
    except Exception as error:  # Pillow's plugins raise all kinds
        yield Item(str(path), None, pixels.reason(error))
    else:
        yield Item(str(path), None, torch.from_numpy(pixels.with_channels(array, channels, grey)))


def _table(model: Exported, path: Path) -> Iterator[Item]:
    from penex.lab.data import table

    columns = model.card["preprocessing"]["columns"]
    try:
        content = table.read_table(path)
        known = set(content.header)
        missing = [name for name in columns if name not in known]
        if missing:
            raise LabError(f"the column {missing[0]!r} is missing")
        values = table.numbers(path, content, columns)
    except (LabError, OSError) as error:
        yield Item(str(path), None, str(error))
    else:
        yield from (Item(str(path), k, value) for k, value in enumerate(values))


def _arrays(model: Exported, path: Path) -> Iterator[Item]:
    from penex.lab.data import arrays

    shape = tuple(model.card["shape"])
    try:
        if path.suffix.lower() == ".npy":
            found = np.load(path, allow_pickle=False)
            if not isinstance(found, np.ndarray):
                raise LabError("it holds several arrays: name it .npz")
        else:
            content = arrays.load(path, lambda names: [n for n in _INPUTS if n in names][:1])
            if not content:
                raise LabError(f"it has none of the arrays {', '.join(_INPUTS)}")
            (found,) = content.values()
        values = arrays.as_inputs(found, path, "x")
        if tuple(values.shape[1:]) != shape:
            raise LabError(f"its inputs have the shape {tuple(values.shape[1:])}, not {shape}")
    except (LabError, OSError, ValueError, EOFError) as error:
        yield Item(str(path), None, str(error))
    else:
        yield from (Item(str(path), k, value) for k, value in enumerate(values))


def predict(
    model: Exported,
    found: Iterable[Item],
    device: torch.device,
    skipped: Callable[[Item], None] = lambda item: None,
) -> Iterator[Prediction]:
    """Predictions, batch by batch; an item without an input is told to `skipped`."""
    model = model.to(device)
    batch: list[Item] = []
    for item in found:
        if isinstance(item.value, str):
            skipped(item)
            continue
        batch.append(item)
        if len(batch) == _BATCH:
            yield from _predicted(model, batch, device)
            batch = []
    if batch:
        yield from _predicted(model, batch, device)


def _predicted(model: Exported, batch: list[Item], device: torch.device) -> Iterator[Prediction]:
    inputs = torch.stack([item.value for item in batch if isinstance(item.value, Tensor)])
    with torch.no_grad():
        probabilities = model(inputs.to(device)).cpu()
    for item, row in zip(batch, probabilities, strict=True):
        named = dict(zip(model.classes, row.tolist(), strict=True))
        yield Prediction(item.file, item.row, model.classes[int(row.argmax())], named)


def as_csv(predictions: Iterable[Prediction], classes: Iterable[str]) -> Iterator[str]:
    """Predictions as lines of CSV, the header first."""
    names = list(classes)
    yield _csv_line(["file", "row", "class", "confidence", *(f"p:{name}" for name in names)])
    for p in predictions:
        row = "" if p.row is None else p.row
        values = [p.probabilities[name] for name in names]
        yield _csv_line([p.file, row, p.label, max(values), *values])


def _csv_line(values: list[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow(values)
    return buffer.getvalue()


def as_jsonl(predictions: Iterable[Prediction]) -> Iterator[str]:
    """Predictions as JSON, a line each."""
    for p in predictions:
        row = {} if p.row is None else {"row": p.row}
        yield json.dumps(
            {"file": p.file, **row, "class": p.label, "probabilities": p.probabilities},
            ensure_ascii=False,
        )
