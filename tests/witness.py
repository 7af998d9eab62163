"""A witness of training that keeps what it is told in memory."""

from collections.abc import Callable
from typing import Any

from penex.lab.data import Data
from penex.lab.engine import loop
from penex.lab.engine.alone import Alone
from penex.lab.engine.learner import Learner


class Notes:
    """What a run told: its lines and its end; whoever wants may save."""

    def __init__(self, lines: list[Any], save: Callable[[loop.Position], None]) -> None:
        self.lines, self._save = lines, save
        self.outcome: loop.Outcome | None = None

    def epoch(self, line: loop.Line) -> None:
        self.lines.append(line)

    def save(self, position: loop.Position, seconds: float) -> None:
        self._save(position)

    def end(self, outcome: loop.Outcome, seconds: float) -> None:
        self.outcome = outcome


def fit_alone(
    learner: Learner,
    data: Data,
    position: loop.Position,
    *,
    lines: list[Any] | None = None,
    save: Callable[[loop.Position], None] = lambda position: None,
    **options: Any,
) -> loop.Outcome | None:
    """Train a learner alone; how it ended, on the process that writes."""
    notes = Notes([] if lines is None else lines, save)
    loop.fit(Alone(loop.Seat(learner, data, 0, position, notes)), **options)
    return notes.outcome
