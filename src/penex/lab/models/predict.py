"""Predictions of a trained model for new files, prepared as the training data were."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from penex.lab.ground.batches import Batches
from penex.lab.models.exported import Exported, Prediction
from penex.lab.models.raw import Item

_BATCH = 256

Predicted = tuple[Item, Prediction]


def predict(
    model: Exported,
    found: Iterable[Item],
    device: torch.device,
    skipped: Callable[[Item], None] = lambda item: None,
) -> Iterator[Predicted]:
    """Predictions, batch by batch, in order; an item without an answer is told to `skipped`."""
    model = model.to(device)
    batches = Batches(device, _BATCH)
    waiting: list[Item] = []
    for item in found:
        if isinstance(item.value, str):
            skipped(item)
            continue
        waiting.append(item)
        if len(waiting) == _BATCH:
            yield from _predicted(model, waiting, batches, skipped)
            waiting = []
    if waiting:
        yield from _predicted(model, waiting, batches, skipped)


def _predicted(
    model: Exported, items: list[Item], batches: Batches, skipped: Callable[[Item], None]
) -> Iterator[Predicted]:
    inputs = torch.stack([item.value for item in items if isinstance(item.value, Tensor)])
    with torch.no_grad():
        found = batches(lambda start, stop: model.unchecked(inputs[start:stop]), len(items)).cpu()
    for item, row in zip(items, found, strict=True):
        if bool(row.isfinite().all()):
            yield item, model.prediction(row)
        else:
            skipped(item._replace(value="the model's answer is not finite"))


def as_csv(predictions: Iterable[Predicted], classes: Iterable[str]) -> Iterator[str]:
    """Predictions as lines of CSV, the header first."""
    names = list(classes)
    yield _csv_line(["file", "row", "class", "confidence", *(f"p:{name}" for name in names)])
    for item, said in predictions:
        row = "" if item.row is None else item.row
        values = [said.probabilities[name] for name in names]
        yield _csv_line([item.file, row, said.label, said.confidence, *values])


def _csv_line(values: list[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow(values)
    return _text(buffer.getvalue())


def as_jsonl(predictions: Iterable[Predicted]) -> Iterator[str]:
    """Predictions as JSON, a line each, with the numbers that `as_csv` writes."""
    for item, said in predictions:
        row = {} if item.row is None else {"row": item.row}
        line = {
            "file": item.file,
            **row,
            "class": said.label,
            "confidence": said.confidence,
            "probabilities": said.probabilities,
        }
        yield _text(json.dumps(line, ensure_ascii=False, allow_nan=False))


def _text(line: str) -> str:
    """A line as text: what a file name holds that is none is shown by its number, as in JSON."""
    return line.encode(errors="backslashreplace").decode()
