"""Studies: what was tried, what came out, and how much the parameter matters."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penex import registry
from penex.lab.ground.sentences import count
from penex.lab.records import ATTRIBUTE, OBJECTIVE, Json, Record
from penex.metrics import METRICS
from penex.report.drawing import toned

# What is as good as the best: about what seeds make of it, and for the objective also more.
CLOSE = (("accuracy", 0.01), ("cross_entropy", 0.01), ("cross_entropy", 0.05))


@dataclass(frozen=True)
class Trial:
    """A trial as a report shows it.

    Attributes:
        number: from 0.
        params: what was tried.
        validation: the metrics; empty if it failed or still runs.
        test: likewise.
        reason: why it failed; empty if it did not.
        record: its folder.
        state: ``complete``, ``fail`` or ``running``.
    """

    number: int
    params: dict[str, float]
    validation: Json
    test: Json
    reason: str
    record: Record
    state: str

    @property
    def value(self) -> float:
        """The objective; NaN if there is none."""
        found = self.validation.get(OBJECTIVE)
        return math.nan if found is None else float(found)


@dataclass
class Study:
    """The trials of a loss.

    Attributes:
        loss: its name.
        search: the edges of each parameter.
        log: which of them are searched by their logarithm.
        identity: what the study was made with.
        trials: in order.
        authors: the values of those who published the task, if there are such.
        variant: which of the studies of its loss that are shown together it is.
    """

    loss: str
    search: dict[str, tuple[float, float]]
    log: set[str]
    identity: Json
    trials: list[Trial] = field(default_factory=list)
    authors: Mapping[str, float] = field(default_factory=dict)
    variant: int = 0

    @property
    def base(self) -> str:
        """The name of the loss, without what was held."""
        name = self.loss.partition(":")[0]
        return name if name in registry.LOSSES else self.loss

    @property
    def ink(self) -> str:
        """Its colour on the page."""
        return toned(self.base, self.variant)

    @property
    def title(self) -> str:
        """The loss's name in tables."""
        return registry.title_of(self.loss)

    @property
    def completed(self) -> list[Trial]:
        """Trials with a result."""
        return [trial for trial in self.trials if trial.state == "complete"]

    @property
    def failed(self) -> list[Trial]:
        """Trials that diverged."""
        return [trial for trial in self.trials if trial.state == "fail"]

    @property
    def best(self) -> Trial | None:
        """The trial with the lowest objective, the first of equals."""
        return min(self.completed, key=lambda trial: trial.value, default=None)

    def share_close(self, name: str, close: float) -> float | None:
        """The share of the range that is within some distance of the best in a validation metric.

        Between trials the metric is taken to be a line, and flat beyond the outermost ones. None
        for several parameters, for one that is searched by its logarithm, or without two results.

        Args:
            name: of the metric.
            close: the distance.
        """
        if len(self.search) != 1 or len(self.completed) < 2:
            return None
        ((parameter, (low, high)),) = self.search.items()
        if parameter in self.log:
            return None
        sign = 1 if METRICS[name].higher else -1
        points = sorted((t.params[parameter], sign * t.validation[name]) for t in self.completed)
        points = [(low, points[0][1]), *points, (high, points[-1][1])]
        enough = max(y for _, y in points) - close
        good = sum(
            _part_above(y0, y1, enough) * (x1 - x0)
            for (x0, y0), (x1, y1) in itertools.pairwise(points)
        )
        return good / (high - low)


def _part_above(y0: float, y1: float, level: float) -> float:
    """The part of a line from y0 to y1 that is not below a level.

    >>> _part_above(0.0, 1.0, 0.25)
    0.75
    """
    if y0 == y1:
        return float(y0 >= level)
    crossing = min(max((level - y0) / (y1 - y0), 0.0), 1.0)
    return 1 - crossing if y1 > y0 else crossing


def load(study: Any, loss: str, out: Path, authors: Mapping[str, float] = {}) -> Study:
    """Read a study of Optuna's."""
    identity = study.user_attrs[ATTRIBUTE]
    search = {name: (edges[0], edges[1]) for name, edges in identity["search"].items()}
    trials = study.get_trials(deepcopy=False)
    log = {name for trial in trials for name, kind in trial.distributions.items() if kind.log}
    found = Study(loss, search, log, identity, authors=authors)
    for trial in trials:
        known = trial.user_attrs
        found.trials.append(
            Trial(
                trial.number,
                dict(trial.params),
                known.get("validation", {}),
                known.get("test", {}),
                known.get("reason", ""),
                Record(out / known.get("record", "")),
                trial.state.name.lower(),
            )
        )
    return found


def text(studies: list[Study]) -> str:
    """The result of each study, in a sentence."""
    return "\n".join(sentence(study) for study in studies)


def sentence(study: Study) -> str:
    """What came out of a study."""
    best = study.best
    trials = count(len(study.completed), "trial")
    failed = f", {len(study.failed)} failed" if study.failed else ""
    if best is None:
        return f"{study.title}: no trial has a result ({trials}{failed})."
    values = ", ".join(f"{name} {value:.4g}" for name, value in best.params.items())
    theirs = ", ".join(f"{value:.4g}" for value in study.authors.values())
    said = (
        f"{study.title}: best {values} (trial {best.number}"
        f"{f'; the authors have {theirs}' if theirs else ''}), validation cross-entropy "
        f"{best.value:.4f}, accuracy {best.validation['accuracy']:.4f}; {trials}{failed}."
    )
    shares = [
        f"{share:.0%} within {close} of the best {METRICS[name].title}"
        for name, close in CLOSE
        if (share := study.share_close(name, close)) is not None
    ]
    if shares:
        said += f" Of the range, {', '.join(shares[:-1])} and {shares[-1]}."
    return said
