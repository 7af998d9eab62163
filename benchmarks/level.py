"""What a low rho does: the level of the logits, and what dropout has to do with it (a figure).

    python -m benchmarks.level --write results/level-cpu.json        # some 15 minutes on a core
    python -m benchmarks.level --read results/level-cpu.json --plot docs/images/level.png

A rho below its optimum asks for logits that are higher than they start. All of them can rise
together by the last layer's bias, or by features that every example has in common. Here a small
network learns digits, a fifth of whose training labels are wrong, with and without dropout, with
its bias started where a low rho wants it, and with dropout's noise taken out of one part of the
logits: of their level (the mean over classes), or of what tells the classes apart. Nothing is
chosen: test numbers after the last epoch, mean and standard deviation over seeds.
"""

import argparse
import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from benchmarks._main import positive, run
from benchmarks._trained import judged, trained
from penex.lab import tasks
from penex.lab.data import Data
from penex.lab.data.noise import LabelNoise
from penex.lab.engine.learner import Learner
from penex.lab.ground import environment
from penex.lab.models.layers import Dropout
from penex.lab.tasks import runs
from penex.lab.training.place import Place
from penex.report.statistics import mean_and_spread

ALPHA = 0.1
LOW, HIGH = 1e-6, 1e-2
MOST = 0.8  # dropout, where something is taken away: there the effect is largest
HIDDEN, TRAINED, WRONG, EPOCHS = 256, 600, 0.2, 400
APART = math.log(HIGH / LOW) / (1 + ALPHA)  # how much lower the logits want to be at HIGH

Record = dict[str, Any]
Part = Literal["", "level", "classes"]


class Parted(nn.Module):
    """Two hidden layers; the logits as a level and what tells classes apart, each with its noise.

    Args:
        shape: of an input.
        classes: the number of logits.
        dropout: the probability before the last layer.
        calm: the part of the logits that dropout is kept out of.
        bias: what the last layer's bias starts higher by.
    """

    def __init__(
        self, shape: Sequence[int], classes: int, dropout: float, calm: Part, bias: float
    ) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(shape), HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
        )
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(HIDDEN, classes)
        self.calm = calm
        with torch.no_grad():
            self.head.bias.add_(bias)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        features = self.body(x)
        noisy: Tensor = self.head(self.dropout(features))
        if not self.training or not self.calm:
            return noisy
        calm: Tensor = self.head(features)
        level, classes = (calm, noisy) if self.calm == "level" else (noisy, calm)
        return classes - classes.mean(1, keepdim=True) + level.mean(1, keepdim=True)


@dataclass(frozen=True)
class Way:
    """A network and a loss.

    Attributes:
        dropout: the probability.
        loss: as on the command line.
        calm: see `Parted`.
        bias: see `Parted`.
    """

    dropout: float
    loss: str
    calm: Part = ""
    bias: float = 0.0


def penex(rho: float | None = None) -> str:
    """The loss with rho held fixed, or estimated."""
    return f"penex:alpha={ALPHA},scale=paper" + (f",rho={rho:g}" if rho else "")


WAYS = {
    **{f"CE, dropout {p:g}": Way(p, "ce") for p in (0.0, 0.5, MOST)},
    **{f"rho estimated, dropout {p:g}": Way(p, penex()) for p in (0.0, 0.5, MOST)},
    **{f"rho 1e-6, dropout {p:g}": Way(p, penex(LOW)) for p in (0.0, 0.5, MOST)},
    "rho 1e-2, dropout 0.8": Way(MOST, penex(HIGH)),
    "rho 1e-2, bias started low": Way(MOST, penex(HIGH), bias=-APART),
    "rho 1e-6, bias started high": Way(MOST, penex(LOW), bias=APART),
    "rho 1e-6, no noise on the level": Way(MOST, penex(LOW), calm="level"),
    "rho 1e-6, no noise on the classes": Way(MOST, penex(LOW), calm="classes"),
    "rho estimated, no noise on the level": Way(MOST, penex(), calm="level"),
    "rho estimated, no noise on the classes": Way(MOST, penex(), calm="classes"),
}
SHOWN = {
    "accuracy": "accuracy",
    "cross_entropy": "cross-entropy",
    "level": "level of the logits",
    "classes": "size of what tells classes apart",
    "noise": "its noise, as a share",
    "common": "features in common",
}


def looked_at(learner: Learner, data: Data, dropout: float) -> dict[str, float]:
    """What became of the features and the logits, on the test set, without dropout.

    A logit sum_i w_i h_i has variance p / (1 - p) sum_i (w_i h_i)^2 over the masks.
    """
    network = learner.module
    assert isinstance(network, Parted)
    learner.train(False)
    with torch.no_grad():
        inputs = torch.cat([*data.test.batches(512)])
        features = network.body(data.normalise(inputs, learner.dtype))
        weight = network.head.weight
        logits = network.head(features)
        level = logits.mean(1)
        classes = (logits - level.unsqueeze(1)).norm(dim=1).mean()
        parts = (weight - weight.mean(0)).square().sum(0) * features.square()
        noise = math.sqrt(dropout / (1 - dropout)) * parts.sum(1).sqrt().mean()
        common = features.mean(0).norm() / features.norm(dim=1).mean()
    return {
        "level": float(level.mean()),
        "classes": float(classes),
        "noise": float(noise / classes),
        "common": float(common),
    }


def measured(seeds: int, epochs: int, out: Path) -> Record:
    """The numbers of every run."""
    digits = tasks.find("digits")
    place = Place(out)
    rows = []
    for name, way in WAYS.items():
        build = functools.partial(Parted, dropout=way.dropout, calm=way.calm, bias=way.bias)
        task = replace(digits, name=f"digits, {name}", build=build)
        for seed in range(seeds):
            treatment = runs.Treatment(LabelNoise(WRONG))
            loss = runs.LossSpec.parse(way.loss)
            one = runs.plan(task, loss, seed, TRAINED, {"epochs": epochs}, treatment)
            learner, data = trained(one, place)
            numbers = judged(learner, data) | looked_at(learner, data, way.dropout)
            rows.append({"way": name, "seed": seed, **numbers})
        print(name, flush=True)
    return {"format": 1, "environment": environment.describe(place.device), "rows": rows}


def values(record: Record, way: str, metric: str) -> list[float]:
    """A metric over the seeds."""
    return [row[metric] for row in record["rows"] if row["way"] == way]


def cell(record: Record, way: str, metric: str) -> str:
    """Mean and standard deviation; the mean alone for what is not a result."""
    mean, spread = mean_and_spread(values(record, way, metric))
    is_result = metric in ("accuracy", "cross_entropy")
    return f"{mean:.3f} ± {spread:.3f}" if is_result else f"{mean:.2f}"


def table(record: Record) -> str:
    """Every way, in Markdown."""
    known = dict.fromkeys(row["way"] for row in record["rows"])
    lines = ["| | " + " | ".join(SHOWN.values()) + " |", "|---" * (len(SHOWN) + 1) + "|"]
    lines += [
        f"| {way} | " + " | ".join(cell(record, way, metric) for metric in SHOWN) + " |"
        for way in known
    ]
    return "\n".join(lines)


def plot(record: Record, path: Path) -> None:
    """Accuracy against dropout, and with noise or distance taken away."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    import scienceplots  # noqa: F401  (registers the style)

    colours = {"CE": "#000000", "rho estimated": "#0072B2", "rho 1e-6": "#D55E00"}
    with plt.style.context(["science", "no-latex"]):
        plt.rcParams.update({"font.size": 11})
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(10.5, 3.8), layout="constrained", width_ratios=[1, 1.3]
        )
        for title, colour in colours.items():
            ways = {
                way.dropout: name for name, way in WAYS.items() if name.startswith(f"{title}, d")
            }
            found = [mean_and_spread(values(record, name, "accuracy")) for name in ways.values()]
            means, spreads = zip(*found, strict=True)
            left.errorbar(
                [*ways],
                means,
                spreads,
                color=colour,
                marker="o",
                capsize=3,
                label=title.replace("rho", "ρ"),
            )
        left.set(xlabel="dropout", ylabel="accuracy", title="A low ρ needs dropout")
        left.legend()
        names = [name for name, way in WAYS.items() if way.dropout == MOST and way.loss != "ce"]
        for k, name in enumerate(reversed(names)):
            mean, spread = mean_and_spread(values(record, name, "accuracy"))
            colour = colours.get(name.partition(",")[0], "0.4")
            right.errorbar([mean], [k], xerr=[spread], color=colour, marker="o", capsize=3)
        right.set_yticks(range(len(names)), [name.replace("rho", "ρ") for name in reversed(names)])
        right.set(xlabel="accuracy", title="Dropout 0.8: what is taken away")
        figure.savefig(path, dpi=140)


def main() -> None:
    """Measure and print, or draw what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=positive, default=8)
    parser.add_argument("--epochs", type=positive, default=EPOCHS)
    parser.add_argument("--out", type=Path, default=Path("runs/level"))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--read", type=Path, help="a record to draw, instead of measuring")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.read:
        record = json.loads(options.read.read_text())
    else:
        record = measured(options.seeds, options.epochs, options.out)
    print(table(record))
    if options.write:
        options.write.write_text(json.dumps(record, indent=1) + "\n")
    if options.plot:
        plot(record, options.plot)


if __name__ == "__main__":
    run(main)
