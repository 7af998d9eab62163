"""Losses against the share of wrong labels, and the alpha that suits each share (a figure).

    python -m benchmarks.noise                                     # digits, on the CPU
    python -m benchmarks.noise --task cifar10 --data FOLDER --write results/noise-cifar10.json
    python -m benchmarks.noise --task wine --rates 0 0.1 0.2 0.4   # or breast_cancer: small tables
    python -m benchmarks.noise --task bbc_news --data FOLDER       # texts, by a frozen encoder
    python -m benchmarks.noise --read results/noise-digits.json --plot docs/images/noise.png

Labels of the training set are flipped to another class; validation and test labels are right.
Cross-entropies are at a temperature that is fitted to the validation set, for every loss alike; the
best alpha is that with the lowest validation cross-entropy. The default parameters of each loss.
"""

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks._main import positive, run
from penex import registry
from penex.lab import tasks
from penex.lab.data.noise import LabelNoise
from penex.lab.ground import environment
from penex.lab.tasks.frozen import frozen
from penex.lab.tasks.runs import Contender, Treatment
from penex.lab.training import compare as compared
from penex.lab.training.place import Place
from penex.report import results

RATES = (0.0, 0.1, 0.2, 0.4, 0.6)
LOSSES = ("ce", "label_smoothing", "gce", "elr", "penex", "penex_negative")
LOW = ("penex:rho=1e-06", "penex_negative:rho=1e-06")  # the best alpha is not chosen from these
ALPHAS = (1.0, 0.3, 0.1, -0.1, -0.3, -0.5)

Record = dict[str, Any]


def alpha_of(label: str) -> float | None:
    """The alpha of a PENEX whose rho is estimated, None for other losses.

    >>> alpha_of("penex_negative"), alpha_of("penex:alpha=0.3"), alpha_of("ce"), alpha_of(LOW[0])
    (-0.3, 0.3, None, None)
    """
    loss = Contender.parse(label).loss
    estimated = loss.name.startswith("penex") and loss.resolved["rho"] is None
    return float(str(loss.resolved["alpha"])) if estimated else None


def contenders() -> tuple[str, ...]:
    """The losses, and PENEX with every alpha that is not among them."""
    known = {alpha_of(label) for label in LOSSES}
    more = [
        f"{'penex' if alpha > 0 else 'penex_negative'}:alpha={alpha:g}"
        for alpha in ALPHAS
        if alpha not in known
    ]
    return (*LOSSES, *more, *LOW)


def measured(task: tasks.Task, seeds: int, rates: tuple[float, ...], place: Place) -> Record:
    """Train what is missing; the numbers of every run."""
    rows = []
    for rate in rates:
        noise = LabelNoise(rate) if rate else None
        what = compared.Comparison(task, contenders(), seeds, treatment=Treatment(noise))
        compared.compare(what, place, command="python -m benchmarks.noise")
        for row in results.load(place.out / task.name).rows:
            for seed, one in row.records.items():
                done = one.done
                rows.append(
                    {
                        "loss": row.label,
                        "rate": rate,
                        "seed": seed,
                        "accuracy": done["test"]["accuracy"],
                        "cross_entropy": done["calibrated"]["test"]["cross_entropy"],
                        "validation": done["calibrated"]["validation"]["cross_entropy"],
                        "best_accuracy": done["best"]["test"]["accuracy"],
                        "best_cross_entropy": done["best"]["calibrated"]["test"]["cross_entropy"],
                    }
                )
    made = environment.describe(environment.device_of("auto"))
    return {"format": 1, "task": task.name, "environment": made, "rows": rows}


def numbers(record: Record, loss: str, rate: float, metric: str) -> list[float]:
    """A metric over the seeds."""
    return [r[metric] for r in record["rows"] if (r["loss"], r["rate"]) == (loss, rate)]


def rates_of(record: Record) -> list[float]:
    """The shares of wrong labels in a record."""
    return sorted({row["rate"] for row in record["rows"]})


def best_alpha(record: Record, rate: float) -> float:
    """The alpha with the lowest mean validation cross-entropy."""
    known = dict.fromkeys(row["loss"] for row in record["rows"])
    found = {alpha_of(label): label for label in known if alpha_of(label) is not None}
    means = {a: statistics.fmean(numbers(record, f, rate, "validation")) for a, f in found.items()}
    best = min(means, key=lambda a: means[a])
    assert best is not None
    return best


def table(record: Record, best: str = "") -> str:
    """Accuracy and cross-entropy by loss and share of wrong labels, in Markdown.

    Args:
        record: what was measured.
        best: ``best_`` for the epoch with the lowest validation cross-entropy; else the last.
    """
    rates = rates_of(record)
    when = "best epoch" if best else "last epoch"
    lines = [
        f"| {when}: accuracy / cross-entropy | " + " | ".join(f"{r:.0%}" for r in rates) + " |"
    ]
    lines.append("|---" * (len(rates) + 1) + "|")
    for loss in dict.fromkeys(row["loss"] for row in record["rows"]):
        cells = [
            " / ".join(
                f"{statistics.fmean(numbers(record, loss, rate, best + metric)):.3f}"
                for metric in ("accuracy", "cross_entropy")
            )
            for rate in rates
        ]
        lines.append(f"| {title(loss)} | " + " | ".join(cells) + " |")
    if not best:
        alphas = [f"{best_alpha(record, rate):g}" for rate in rates]
        lines.append("| *best α, by validation* | " + " | ".join(alphas) + " |")
    return "\n".join(lines)


def title(label: str) -> str:
    """A loss in words: PENEX by its alpha."""
    if label in LOW:
        return f"{title(label.partition(':')[0])}, ρ = 1e-6"
    alpha = alpha_of(label)
    return registry.title_of(label) if alpha is None else f"PENEX, α = {alpha:g}"


def plot(record: Record, path: Path) -> None:
    """Accuracy, cross-entropy and the best alpha against the share of wrong labels."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    import scienceplots  # noqa: F401  (registers the style)
    from scipy import stats

    rates = rates_of(record)
    # On digits a low rho has not got going when training ends: it would flatten the picture.
    low = () if record["task"] == "digits" else LOW
    known = {row["loss"] for row in record["rows"]}
    shown = [loss for loss in (*LOSSES, "penex_negative:alpha=-0.5", *low) if loss in known]
    with plt.style.context(["science", "no-latex"]):
        plt.rcParams.update({"font.size": 11})
        figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.8), layout="constrained")
        for axis, metric in zip(axes, ("accuracy", "cross_entropy"), strict=False):
            for k, loss in enumerate(shown):
                seen = [numbers(record, loss, rate, metric) for rate in rates]
                means = [statistics.fmean(values) for values in seen]
                halves = [
                    float(stats.t.ppf(0.975, len(v) - 1)) * statistics.stdev(v) / math.sqrt(len(v))
                    if len(v) > 1
                    else 0.0
                    for v in seen
                ]
                beside = [rate + 0.005 * (k - len(shown) / 2) for rate in rates]
                axis.errorbar(
                    beside,
                    means,
                    halves,
                    color=registry.colour(loss),
                    linestyle="-" if loss in LOSSES else ":" if loss in LOW else "--",
                    capsize=2,
                    label=title(loss),
                )
            axis.set(xlabel="share of wrong training labels", ylabel=metric.replace("_", "-"))
        axes[0].set_title("Accuracy")
        axes[1].set_title("Cross-entropy, fitted temperature")
        axes[2].plot(rates, [best_alpha(record, rate) for rate in rates], "o-", color="#D55E00")
        axes[2].axhline(0, color="0.6", linewidth=0.8)
        axes[2].set(
            xlabel="share of wrong training labels", ylabel="α", title="The best α by validation"
        )
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        figure.savefig(path, dpi=140)


def main() -> None:
    """Measure and print, or draw what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", default="digits")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--out", type=Path, default=Path("runs/noise"))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--read", type=Path, help="a record to draw, instead of measuring")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.read:
        record = json.loads(options.read.read_text())
    else:
        if options.task in tables.NAMES:
            task = tables.task(options.task, options.out)
        else:
            task = tasks.find(options.task)
        task = task if options.data is None else tasks.placed(task, options.data)
        if task.encoder is not None:  # to fine-tune it hundreds of times would take weeks on a CPU
            task = frozen(task)
        record = measured(task, options.seeds, tuple(options.rates), Place(options.out))
    print(table(record), table(record, "best_"), sep="\n\n")
    if options.write:
        options.write.write_text(json.dumps(record, indent=1) + "\n")
    if options.plot:
        plot(record, options.plot)


if __name__ == "__main__":
    run(main)
