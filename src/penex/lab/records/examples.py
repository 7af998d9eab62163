"""The test examples that losses disagree on, kept so that a report can show them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penex.lab.data import Data
from penex.lab.ground import files
from penex.lab.records import Record
from penex.lab.records.scores import scores_of

NAME = "examples.npz"
_MOST = 12
_SIDE = 96

Array = np.ndarray[Any, Any]


def disagreement(predictions: Array, target: Array, most: int = _MOST) -> Array:
    """The rows of (losses, examples) predictions on which opinions differ most.

    First those whose right answer about half of the losses found.

    >>> disagreement(np.array([[0, 1, 1], [0, 1, 0]]), np.array([0, 1, 1])).tolist()
    [2]
    """
    right = (predictions == target).mean(axis=0)
    kinds = np.array([len(set(column)) for column in predictions.T])
    order = np.lexsort((np.abs(right - 0.5), -kinds))
    return order[kinds[order] > 1][:most]


def keep(folder: Path, data: Data, runs: dict[str, Record], seed: int, train_size: int) -> None:
    """Write the images that a seed's runs disagree on, with what each loss said."""
    path = folder / NAME
    found = {label: scores_of(record) for label, record in runs.items()}
    known = {label: scores for label, scores in found.items() if scores is not None}
    if len(known) < 2 or not are_pictures(data.test.inputs):
        path.unlink(missing_ok=True)
        return
    labels = list(known)
    predictions = np.stack([known[label]["prediction"] for label in labels])
    target = known[labels[0]]["target"]
    rows = disagreement(predictions, target)
    if not len(rows):
        path.unlink(missing_ok=True)
        return
    chosen = data.test.some(torch.from_numpy(rows.copy()))
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        images=thumbnails(chosen.cpu()),
        rows=rows,
        target=target[rows],
        predictions=predictions[:, rows],
        confidences=np.stack([known[label]["confidence"][rows] for label in labels]),
        labels=np.array(labels),
        classes=np.array(data.classes),
        seed=np.int64(seed),
        train_size=np.int64(train_size),
    )
    files.write(path, buffer.getvalue())


def are_pictures(inputs: torch.Tensor) -> bool:
    """Whether inputs can be shown as images."""
    return inputs.dim() == 4 and inputs.shape[1] in (1, 3) and max(inputs.shape[2:]) <= 512


def thumbnails(images: torch.Tensor) -> Array:
    """Images from 0 to 255, whatever their range, and no larger than a thumbnail."""
    wide = images.float()
    if images.dtype != torch.uint8 or int(images.max()) < 64:  # digits go from 0 to 16
        low, high = wide.amin(), wide.amax()
        wide = (wide - low) / (high - low).clamp(min=1e-9) * 255
    if max(wide.shape[2:]) > _SIDE:
        wide = torch.nn.functional.interpolate(wide, size=(_SIDE, _SIDE), mode="area")
    return wide.round().clamp(0, 255).byte().numpy()
