"""How well wrong labels are found on digits whose labels are flipped on purpose, by loss.

Run it with `python -m benchmarks.suspects [--seeds 3] [--rates 0.1 0.3] [--losses ...]`. Average
precision of orders of the examples: by chance, by the probability that a model which trained on a
label gives it (seen), by that of a model which did not (held out: what penex suspects does), by
the latter less the best other one (margin), and by cleanlab's scores of the same held-out
probabilities, if cleanlab is installed. Then the estimated share of wrong labels.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks._main import positive, run
from penex import noise
from penex.lab import tasks
from penex.lab.data.noise import LabelNoise
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


def measured(loss: str, rate: float, seed: int, place: Place) -> dict[str, float]:
    """The numbers of a loss, a rate of flips and a seed."""
    treatment = Treatment(LabelNoise(rate))
    runs = folds.planned(tasks.find("digits"), loss, seed=seed, treatment=treatment)
    found = folds.carry_out(runs, place)
    assert found is not None  # there is one process
    wrong = found.given != found.before
    flips = float(wrong.double().mean())
    return {
        "chance": flips,
        "seen": seen(runs, place, found),
        "held out": average_precision(found.score, wrong),
        "margin": average_precision(margin(found), wrong),
        "flipped": flips,
        "share": found.wrong_share,
        "its error": found.wrong_share_error,
        "disagreement": found.disagreement,
        **cleanlab(found),
    }


def text(values: list[float]) -> str:
    """A mean and its standard deviation over seeds."""
    every = torch.tensor(values, dtype=torch.float64)
    spread = f" ± {every.std():.3f}" if len(values) > 1 else ""
    return f"{every.mean():.3f}{spread}"


def main() -> None:
    """Print a table of Markdown for each rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.3])
    parser.add_argument("--losses", nargs="+", default=list(LOSSES))
    parser.add_argument("--out", type=Path, help="where to keep the runs")
    options: Any = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Place(options.out or Path(temporary))
        for rate in options.rates:
            head = False
            for loss in options.losses:
                rows = [measured(loss, rate, seed, place) for seed in range(options.seeds)]
                if not head:
                    print(f"\n| {rate:.0%} flipped | {' | '.join(rows[0])} |")
                    print("|---" * (len(rows[0]) + 1) + "|")
                head = True
                cells = [text([row[name] for row in rows]) for name in rows[0]]
                print(f"| {loss} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    run(main)
