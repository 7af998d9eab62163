"""Comparisons without runs: rows whose metrics are given."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penex.metrics import METRICS
from penex.report.results import Results, Row


def row(name: str, accuracies: Sequence[float | None], size: int = 300, **other: Any) -> Row:
    """A loss whose runs had these accuracies; None diverged. Its other metrics follow from them."""
    done: dict[int, Any] = {}
    for seed, accuracy in enumerate(accuracies):
        if accuracy is None:
            done[seed] = {"status": "diverged", "reason": "the loss was inf at step 7"}
            continue
        values = {m.name: accuracy if m.higher else 1 - accuracy for m in METRICS.values()}
        done[seed] = {
            "status": "completed",
            "test": values,
            "validation": values,
            "test_spread": dict.fromkeys(METRICS, 0.01),
            "validation_spread": dict.fromkeys(METRICS, 0.01),
            "classes": 10,
        }
    return Row(name, name.upper(), name, size, done=done, **other)


def made(*rows: Row) -> Results:
    return Results(Path("nowhere"), "digits", "penex compare", list(rows))
