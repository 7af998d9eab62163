"""What a run said of each test example, from its logits or from the small form without them.

The small form is what is kept of many runs, one archive a task.
"""

import io
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from penex import metrics
from penex.lab.ground import files
from penex.lab.records import LISTING, Json, Record, archived

Array = np.ndarray[Any, Any]

SCORES = "scores.npz"
_KEPT = ("config.json", "environment.json")
_RUN = "*/*/seed-*/done.json"
_FIRST = 10  # epochs, of which every one is kept: that is where curves fall


def scores_of(record: Record) -> dict[str, Array] | None:
    """Prediction, target, nll, confidence and brier of each test example; None if unknown."""
    if record.has("predictions.npz"):
        return scored(record.predictions())
    return record.arrays(SCORES) if record.has(SCORES) else None


def scored(arrays: dict[str, Array]) -> dict[str, Array]:
    """The scores of each test example from the arrays of predictions.npz."""
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


def slim(record: Record, target: Path, *, scores: bool = True, lines: int = 50) -> Record:
    """A copy of a run without checkpoint, model and logits, for keeping many: about 1 % of it.

    done.json keeps the metrics in full, and says under `thinned` which files are less than they
    were: curves of some epochs, or no scores of single examples.

    Args:
        record: of a finished run.
        target: the folder of the copy.
        scores: whether to keep the scores of each test example, in half precision.
        lines: at how many epochs to keep the curves, at most, with four digits.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name in _KEPT:
        files.write(target / name, record.content(name))
    kept = _kept(record.metrics(), lines)
    text = "".join(files.dumps(_short(line)) + "\n" for line in kept)
    files.write(target / "metrics.jsonl", text.encode())
    found = scores_of(record) if scores else None
    if found is not None:
        classes = int(max(found["prediction"].max(), found["target"].max())) + 1
        small = np.uint8 if classes <= 256 else np.int32
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            allow_pickle=False,
            prediction=found["prediction"].astype(small),
            target=found["target"].astype(small),
            nll=found["nll"].astype(np.float16),
            confidence=found["confidence"].astype(np.float16),
            brier=found["brier"].astype(np.float16),
        )
        files.write(target / SCORES, buffer.getvalue())
    else:
        (target / SCORES).unlink(missing_ok=True)
    done = record.done()
    if found is not None:
        done.setdefault("classes", classes)
    left_out = {
        "metrics.jsonl": bool(kept) and kept[-1]["epoch"] > len(kept),
        SCORES: found is None,
    }
    done["thinned"] = [name for name, is_less in left_out.items() if is_less]
    copy = Record(target)
    copy.finish({**done, "slim": True})
    return copy


def pack(folder: Path) -> Path:
    """Make one archive of the small form of a task's runs, its lists and its studies; the archive.

    What the archive has already stays in it; what the folder has takes the place of its namesake.
    The scores of single examples are kept for the first seed of the losses in comparison.json.
    """
    known = {PurePosixPath(name) for name in archived.names(folder)}
    known |= {PurePosixPath(path.relative_to(folder)) for path in folder.rglob("*")}
    content = {
        str(name): archived.read(folder / name)
        for name in known
        if len(name.parts) == 1 and name.suffix in (".json", ".journal")
    }
    runs = files.loads(content[LISTING])["runs"] if LISTING in content else []
    first = min((run["seed"] for run in runs), default=0)
    headlines = {run["folder"] for run in runs if run["seed"] == first}
    with tempfile.TemporaryDirectory() as place:
        for run in sorted(str(name.parent) for name in known if name.match(_RUN)):
            small = slim(Record(folder / run), Path(place, run), scores=run in headlines)
            for file in small.folder.iterdir():
                content[f"{run}/{file.name}"] = file.read_bytes()
    return archived.pack(content, folder)


def _kept(whole: list[Json], lines: int) -> list[Json]:
    """The lines of so many epochs, at most: the first ten, every so many, and the last.

    >>> [line["epoch"] for line in _kept([{"epoch": k} for k in range(1, 41)], 16)]
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 21, 28, 35, 40]
    >>> len(_kept([{"epoch": k} for k in range(1, 201)], 50))
    48
    """
    if len(whole) <= lines:
        return whole
    every = -(-len(whole) // (lines - _FIRST))
    return [
        line
        for line in whole
        if line["epoch"] <= _FIRST or line["epoch"] % every == 0 or line is whole[-1]
    ]


def _short(value: Any) -> Any:
    """Numbers with four digits.

    >>> _short({"a": 0.123456789, "b": [1, None]})
    {'a': 0.1235, 'b': [1, None]}
    """
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, list) else value
