"""The page of studies: the best value and what was tried."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penex
from penex.lab.ground import files
from penex.lab.ground.errors import RecordError
from penex.lab.ground.sentences import count
from penex.lab.records import OBJECTIVE
from penex.lab.records.best import network_of
from penex.lab.records.views import View
from penex.metrics import METRICS, Metric
from penex.report import home
from penex.report.finished import read
from penex.report.page import NAME as COMPARISON
from penex.report.page import STUDIES, render, safe
from penex.report.page import study as charts
from penex.report.studies import CLOSE, Study, Trial, sentence

_HISTORY = "Trials in their order; the line is the best so far"


def write(folder: Path, task: str, studies: list[Study], command: str) -> Path:
    """Build the page of some studies and write it."""
    path = folder / STUDIES
    folder.mkdir(parents=True, exist_ok=True)
    files.write_text(path, build(task, studies, command, folder))
    return path


def build(task: str, studies: list[Study], command: str, folder: Path | None = None) -> str:
    """The page as text; every figure is in it.

    Args:
        task: the name of the task.
        studies: what is shown.
        command: how it was asked for.
        folder: where the page will lie, if it may have links.
    """
    for k, study in enumerate(studies):
        study.variant = [other.base for other in studies[:k]].count(study.base)
    ways = {_way(study) for study in studies}
    way = min(ways) if len(ways) == 1 else "each study in its own way"
    return render(
        "study.html",
        {
            "version": penex.__version__,
            "title": f"Which value is best on {task}?",
            "headline": headline(studies),
            "figures": _picture(studies),
            "reading": (
                "A dot is a trial, trained with one seed; the dashed line is the best one. Lower "
                "is better; what is far worse stands at the edge."
            ),
            "asked": (
                f"Optuna's TPE, {way}. A trial is judged by the cross-entropy of the validation "
                "set after its last epoch."
            ),
            "said": [sentence(study) for study in studies],
            "sensitivity": list(_sensitivity(studies)),
            "studies": [
                _block(study, several=len(ways) > 1, lone=len(studies) == 1) for study in studies
            ],
            "alike": len(ways) == 1,
            "metrics": METRICS.values(),
            "command": command,
            "home": list(_at_work(task, studies)),
            "compared": bool(folder and (folder / COMPARISON).is_file()),
        },
    )


def headline(studies: list[Study]) -> str:
    """The best value of each study, in one sentence."""
    found = [(study, study.best) for study in studies]
    known = [(study, best) for study, best in found if best is not None]
    if not known:
        return "No trial has a result yet."
    if len(studies) > 1:
        values = "; ".join(f"{study.title} {_values(best)}" for study, best in known)
        return f"The best values by validation cross-entropy: {values}."
    ((study, best),) = known
    return (
        f"{study.title} does best with {_values(best)}: its validation cross-entropy is "
        f"{best.value:.4f}, the lowest of {count(len(study.completed), 'trial')}."
    )


def _picture(studies: list[Study]) -> list[dict[str, str]]:
    """The objective over the first parameter of each study; a lone one's history beside it."""
    drawn = []
    for study in studies:
        name = next(iter(study.search), "")
        drawing = charts.against(study, name, METRICS[OBJECTIVE]) if name else ""
        drawn += [(f"{study.title}: validation cross-entropy over {name}", drawing)]
    if len(studies) == 1:
        drawn += [(_HISTORY, charts.history(study))]
    return [{"title": title, "svg": safe(drawing)} for title, drawing in drawn if drawing]


def _at_work(task: str, studies: list[Study]) -> Iterator[dict[str, str]]:
    """How to use the model of each study's best trial, where it is there."""
    for study in studies:
        if study.best is None:
            continue
        view = View(**study.identity.get("judged", {}))
        try:
            run = read(study.best.record)
            network = network_of(run.record, view)
        except RecordError:
            continue
        if network is None:
            continue
        where = run.record.folder.parents[2]
        words = f"The best trial of {study.title}, {_values(study.best)}."
        if not home.is_named(run.record.folder):
            words += f" In the folder of the records, {task}:"
        yield {"words": words, "link": "", **home.at_work(run, where, view)._asdict()}


def _sensitivity(studies: list[Study]) -> Iterator[dict[str, str]]:
    for name, close in CLOSE:
        drawing = charts.sensitivity(studies, METRICS[name], close)
        if drawing:
            title = f"{METRICS[name].title} within {close} of the best"
            yield {"title": title, "svg": safe(drawing)}


def _way(study: Study) -> str:
    """How a study was made, in words."""
    known, run = study.identity, study.identity["run"]
    return (
        f"seed {known['seed']}, in batches of {known['batch']}; each trial trains "
        f"{count(run['recipe']['epochs'], 'epoch')} on {count(run['train_size'], 'example')}"
    )


def _block(study: Study, *, several: bool, lone: bool) -> dict[str, Any]:
    best = study.best
    return {
        "way": f"Made with {_way(study)}." if several else "",
        "id": study.loss,
        "title": study.title,
        "parameters": list(study.search),
        "figures": list(_figures(study, lone=lone)),
        "curves": bool(charts.curves(study)),
        "failed": [
            {"number": t.number, "values": _values(t), "reason": t.reason} for t in study.failed
        ],
        "trials": [
            {
                "number": trial.number,
                "values": [f"{trial.params.get(name, math.nan):.5g}" for name in study.search],
                "metrics": [_number(trial.validation.get(name), m) for name, m in METRICS.items()],
                "state": "best" if trial is best else trial.state,
            }
            for trial in study.trials
        ],
    }


def _figures(study: Study, *, lone: bool) -> Iterator[dict[str, str]]:
    """The charts of a study; of a lone one without those that the page opens with."""
    drawn = {"The best trial (solid) and the worst (broken) over the epochs": charts.curves(study)}
    if not lone:
        drawn = {_HISTORY: charts.history(study), **drawn}
    yield from ({"title": title, "svg": safe(one)} for title, one in drawn.items() if one)
    for name in study.search:
        for metric in (m for m in METRICS.values() if m.drawn):
            shown = lone and name == next(iter(study.search)) and metric.name == OBJECTIVE
            drawing = charts.against(study, name, metric)
            if drawing and not shown:
                yield {"title": f"{metric.title} over {name}", "svg": safe(drawing)}


def _values(trial: Trial) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in trial.params.items())


def _number(value: float | None, metric: Metric) -> str:
    return "–" if value is None else metric.text(value)
