"""How well wrong labels are found, by loss: flipped on purpose, or wrong by people.

    python -m benchmarks.suspects [--seeds 3] [--rates 0.1 0.3] [--losses ...]        # digits
    python -m benchmarks.suspects --people worse random1 --data FOLDER --examples 6000

With --people the first examples of CIFAR-10 have the labels that people gave (CIFAR-10N), and those
that are not the official ones are to be found; --epochs 20 at --lr 1e-3 unless said. Average
precision of orders of the examples: by chance, by the probability that a model which trained on a
label gives it (seen), by that of a model which did not (held out: what penex suspects does), by
the latter less the best other one (margin), and by cleanlab's scores of the same held-out
probabilities, if cleanlab is installed. Then the share of wrong labels: as
penex suggest says it, by confident learning, and among the examples that models are surest of.
"""

import argparse
import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks._main import positive, run
from penex import noise
from penex.lab import tasks
from penex.lab.data.noise import LabelNoise
from penex.lab.ground import environment
from penex.lab.ground.errors import LabError
from penex.lab.models import exported
from penex.lab.records.folds import HeldOut, average_precision
from penex.lab.tasks.runs import Run, Treatment
from penex.lab.training import Place, folds

try:
    from cleanlab.count import estimate_joint
    from cleanlab.rank import get_label_quality_scores
except ImportError:
    estimate_joint = get_label_quality_scores = None

LOSSES = ("ce", "gce", "penex", "penex_negative:alpha=-0.5")


def margin(found: HeldOut) -> torch.Tensor:
    """p_y - max_{j != y} p_j of each example."""
    others = found.probabilities.scatter(1, found.given.unsqueeze(1), -torch.inf)
    return found.score - others.amax(dim=1)


def seen(runs: list[Run], place: Place, found: HeldOut) -> float:
    """The average precision among the examples that a model trained on, by what that model says."""
    precisions = []
    for one in runs:
        part = place.data(one).train
        model = exported.load(place.record(one).folder)
        score = noise.self_confidence(model(part.inputs[part.index]).detach(), part.targets)
        precisions.append(average_precision(score, (found.given != found.before)[part.index]))
    return sum(precisions) / len(precisions)


def cleanlab(found: HeldOut) -> dict[str, float]:
    """What cleanlab makes of the same probabilities."""
    if get_label_quality_scores is None:
        return {}
    labels, p = found.given.numpy(), found.probabilities.numpy()
    wrong = found.given != found.before
    rows = {
        f"cleanlab, {method.replace('_', ' ')}": average_precision(
            torch.from_numpy(get_label_quality_scores(labels, p, method=method)), wrong
        )
        for method in ("normalized_margin", "self_confidence")
    }
    return {**rows, "share, cleanlab": 1 - float(estimate_joint(labels, p).trace())}


@dataclass(frozen=True)
class Setting:
    """Labels of which some are wrong.

    Attributes:
        title: in words.
        task: the data.
        changes: in its recipe.
        noise: labels that are made wrong on purpose.
        clean: the right labels; None for those that were read.
    """

    title: str
    task: tasks.Task
    changes: dict[str, Any] = field(default_factory=dict)
    noise: LabelNoise | None = None
    clean: torch.Tensor | None = None


def by_people(kind: str, root: Path, examples: int, changes: dict[str, Any]) -> Setting:
    """The first examples of CIFAR-10 with people's labels."""
    whole = tasks.find(f"cifar10n_{kind}").collect(root)
    right = tasks.find("cifar10").collect(root).train.targets[:examples]
    first = whole.train._replace(
        inputs=whole.train.inputs[:examples], targets=whole.train.targets[:examples]
    )
    some = replace(whole, train=first, test=None)
    task = replace(
        tasks.find(f"cifar10n_{kind}"), name=f"cifar10n_{kind}_{examples}", collect=lambda: some
    )
    return Setting(f"CIFAR-10N {kind}, {examples:,}", task, changes, clean=right)


def measured(what: Setting, loss: str, seed: int, place: Place) -> dict[str, float]:
    """The numbers of a loss and a seed."""
    runs = folds.planned(
        what.task, loss, seed=seed, changes=what.changes, treatment=Treatment(what.noise)
    )
    found = folds.carry_out(runs, place)
    assert found is not None  # there is one process
    if what.clean is not None:
        found = replace(found, before=what.clean)
    wrong = found.given != found.before
    share = float(wrong.double().mean())
    return {
        "chance": share,
        "seen": seen(runs, place, found),
        "held out": average_precision(found.score, wrong),
        "margin": average_precision(margin(found), wrong),
        "wrong": share,
        "share": found.wrong_share.share,
        "confident share": noise.wrong_share(found.probabilities, found.given),
        "sure share": noise.sure_share(found.probabilities, found.given)[0],
        "disagreement": found.disagreement,
        **cleanlab(found),
    }


def text(values: list[float]) -> str:
    """A mean and its standard deviation over seeds."""
    every = torch.tensor(values, dtype=torch.float64)
    spread = f" ± {every.std():.3f}" if len(values) > 1 else ""
    return f"{every.mean():.3f}{spread}"


def settings(options: Any) -> list[Setting]:
    """What was asked for."""
    if not options.people:
        digits = tasks.find("digits")
        return [Setting(f"{r:.0%} flipped", digits, noise=LabelNoise(r)) for r in options.rates]
    if options.data is None:
        raise LabError("--people needs --data: the folder with CIFAR-10 and people's labels.")
    changes = {"epochs": options.epochs, "lr": options.lr}
    return [by_people(kind, options.data, options.examples, changes) for kind in options.people]


def main() -> None:
    """Print a table of Markdown for each setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.3])
    parser.add_argument("--losses", nargs="+", default=list(LOSSES))
    parser.add_argument("--people", nargs="+", choices=("aggre", "random1", "worse"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--examples", type=positive, default=6000)
    parser.add_argument("--epochs", type=positive, default=20)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--out", type=Path, help="where to keep the runs")
    parser.add_argument("--write", type=Path, help="where to keep the numbers, as JSON")
    options: Any = parser.parse_args()
    kept: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        place = Place(options.out or Path(temporary))
        for what in settings(options):
            head = False
            for loss in options.losses:
                rows = [measured(what, loss, seed, place) for seed in range(options.seeds)]
                kept += [{"labels": what.title, "loss": loss, "seed": k, **r}
                         for k, r in enumerate(rows)]  # fmt: skip
                if not head:
                    print(f"\n| {what.title} | {' | '.join(rows[0])} |")
                    print("|---" * (len(rows[0]) + 1) + "|")
                head = True
                cells = [text([row[name] for row in rows]) for name in rows[0]]
                print(f"| {loss} | {' | '.join(cells)} |", flush=True)
    if options.write:
        record = {"format": 1, "environment": environment.describe(place.device), "rows": kept}
        options.write.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
