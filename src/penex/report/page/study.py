"""The charts of a study."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penex.lab.ground.errors import RecordError
from penex.metrics import Metric
from penex.report.drawing import Bar, Dot, Line, Panel, most
from penex.report.finished import read
from penex.report.page.svg import svg

if TYPE_CHECKING:
    from penex.report.studies import Study, Trial


def _inside(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])


def _words(trial: "Trial") -> str:
    values = ", ".join(f"{name} {value:.4g}" for name, value in trial.params.items())
    return f"trial {trial.number}: {values}, validation cross-entropy {trial.value:.4f}"


def history(study: "Study") -> str:
    """The objective of each trial, and the best so far as a line; "" without a result."""
    done = [trial for trial in study.completed if math.isfinite(trial.value)]
    if not done:
        return ""
    y = most([trial.value for trial in done])
    panel = Panel(
        f"Validation cross-entropy of each trial of {study.title}, lower is better",
        (-0.5, max(len(study.trials) - 0.5, 0.5)),
        y,
        "trial",
        "cross-entropy, lower is better",
    )
    best, line = done[0].value, [(float(done[0].number), done[0].value)]
    for trial in done[1:]:
        line.append((float(trial.number), best))
        best = min(best, trial.value)
        line.append((float(trial.number), best))
    panel.marks += [
        Line(line, study.ink),
        *(Dot((t.number, _inside(t.value, y)), study.ink, _words(t)) for t in done),
        *(Dot((t.number, y[1]), "", f"trial {t.number} failed: {t.reason}") for t in study.failed),
    ]
    return svg(panel)


def against(study: "Study", name: str, metric: Metric) -> str:
    """A validation metric over a parameter, a dot for each trial; "" without a result."""
    low, high = study.search[name]
    of = math.log10 if name in study.log else float
    points = [
        (of(trial.params[name]), float(value), trial)
        for trial in study.completed
        if (value := trial.validation.get(metric.name)) is not None
    ]
    if not points:
        return ""
    values = [value for _, value, _ in points]
    y = most(values, higher=metric.higher)
    panel = Panel(
        f"{metric.title} on the validation set over {name}, {metric.direction}",
        (of(low), of(high)),
        y,
        f"log10 of {name}" if of is math.log10 else name,
        f"{metric.title}, {metric.direction}",
    )
    panel.marks += [Dot((x, _inside(v, y)), study.ink, _words(t)) for x, v, t in points]
    if study.best is not None:
        x = of(study.best.params[name])
        panel.marks.append(Line([(x, y[0]), (x, y[1])], study.ink, dash=1))
    return svg(panel)


def curves(study: "Study") -> str:
    """The objective over the epochs, of the best trial and of the worst; "" without both."""
    done = sorted(study.completed, key=lambda trial: trial.value)
    ends = {"best": done[0], "worst": done[-1]} if len(done) > 1 else {}
    try:
        histories = {word: read(trial.record).history for word, trial in ends.items()}
    except RecordError:  # a curve is not worth the page, which says that it is not there
        return ""
    lines = {
        word: [
            (float(line["epoch"]), float(value))
            for line in history
            if (value := line["validation"].get("cross_entropy")) is not None
        ]
        for word, history in histories.items()
    }
    values = [value for line in lines.values() for _, value in line[len(line) // 5 :]]
    if not values:
        return ""
    longest = max(line[-1][0] for line in lines.values() if line)
    panel = Panel(
        f"Validation cross-entropy of {study.title} over the epochs: the best trial is the solid "
        "line, the worst the broken one",
        (1, max(longest, 2)),
        most(values),
        "epoch",
        "cross-entropy",
    )
    panel.marks += [Line(line, study.ink, dash=word != "best") for word, line in lines.items()]
    return svg(panel)


def sensitivity(studies: Sequence["Study"], metric: Metric, close: float) -> str:
    """The share of each range that does as well as its best, as bars; "" for fewer than two."""
    found = [(study, study.share_close(metric.name, close)) for study in studies]
    shares = [(study, share) for study, share in found if share is not None]
    if len(shares) < 2:  # one bar has nothing to be compared with; a sentence says its height
        return ""
    panel = Panel(
        f"Share of the search range within {close} of the best validation {metric.title}: "
        + ", ".join(f"{study.title} {share:.0%}" for study, share in shares),
        (-0.5, len(shares) - 0.5),
        (0, 1),
        "",
        "share of the range",
        x_names=[study.title for study, _ in shares],
    )
    panel.marks += [
        Bar((k - 0.35, 0), (k + 0.35, share), study.ink, f"{study.title}: {share:.0%}")
        for k, (study, share) in enumerate(shares)
    ]
    return svg(panel)
