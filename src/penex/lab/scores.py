"""What a run said of each test example: from its logits, or from the small form without them."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penex import metrics
from penex.lab import files
from penex.lab.records import Record

Array = np.ndarray[Any, Any]

SCORES = "scores.npz"
_KEPT = ("config.json", "environment.json", "metrics.jsonl")


def scores_of(record: Record) -> dict[str, Array] | None:
    """Prediction, target, nll, confidence and brier of each test example; None if unknown."""
    if record.has("predictions.npz"):
        arrays = record.predictions()
        logits = torch.from_numpy(arrays["test_logits"])
        targets = torch.from_numpy(arrays["test_targets"])
        found = metrics.scores(logits, targets, temperature=float(arrays["temperature"]))
        return {
            "prediction": logits.argmax(dim=1).numpy(),
            "target": arrays["test_targets"],
            "nll": found.nll.numpy(),
            "confidence": found.confidence.numpy(),
            "brier": found.brier.numpy(),
        }
    return record.arrays(SCORES) if record.has(SCORES) else None


def slim(record: Record, target: Path) -> Record:
    """A copy of a run without checkpoint, model and logits, for keeping many: about 1 % of it.

    The scores of each test example stay, in half precision where that is enough.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name in _KEPT:
        files.write(target / name, (record.folder / name).read_bytes())
    found = scores_of(record)
    if found is not None:
        classes = int(max(found["prediction"].max(), found["target"].max())) + 1
        whole = np.uint8 if classes <= 256 else np.int32
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            allow_pickle=False,
            prediction=found["prediction"].astype(whole),
            target=found["target"].astype(whole),
            nll=found["nll"].astype(np.float32),
            confidence=found["confidence"].astype(np.float32),
            brier=found["brier"].astype(np.float16),
        )
        files.write(target / SCORES, buffer.getvalue())
    done = json.loads((record.folder / "done.json").read_bytes())
    copy = Record(target)
    copy.finish({**done, "slim": True})
    return copy
