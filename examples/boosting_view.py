"""A gradient step on PENEX as a weak learner, beside a round of AdaBoost (SAMME), as a figure.

Both fit a sum of weak learners to the exponential loss. AdaBoost adds a stump fitted to examples
weighted by how wrong the sum so far is. A small gradient step on a network adds g(x) = J(x) d,
J the network's Jacobian and d the unit step that lowers the same weighted loss most without
raising the sum of exponentials: the negative gradient of PENEX (the paper's prop. A.1).

    python examples/boosting_view.py [--out docs/images/boosting_view.png]
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import scienceplots  # noqa: F401  (registers the style)
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from torch import Tensor, nn

from penex import functional as F
from penex import registry
from penex.boosting import SAMMEClassifier

COLOURS = ["#0072B2", "#E69F00", "#009E73"]  # blue, orange, green: told apart by all eyes
MARKERS = ["o", "s", "^"]
CLASSES, ALPHA = 3, 1 / 2  # alpha = 1 / (K - 1): AdaBoost's own sensitivity, for both rows
ROUNDS, STEPS = 3, 3
EDGE = 2.6


def data(n: int = 150) -> tuple[Tensor, Tensor]:
    """Three classes in bands that bend: no single stump and no line separates them."""
    generator = torch.Generator().manual_seed(3)
    x = (torch.rand(n, 2, generator=generator) * 2 - 1) * 2.2
    height = x[:, 1] + 0.8 * torch.sin(1.6 * x[:, 0])
    y = torch.bucketize(height, torch.tensor([-0.7, 0.7]))
    return x, y


def grid() -> tuple[np.ndarray, Tensor]:
    """The points at which the background is coloured."""
    axis = np.linspace(-EDGE, EDGE, 301)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return axis, torch.tensor(points, dtype=torch.float32)


def network(x: Tensor, y: Tensor) -> nn.Module:
    """A small network, part of the way through its training with PENEX."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, CLASSES))
    loss = registry.make("penex", alpha=ALPHA)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return model


def unit_step(model: nn.Module, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], float]:
    """The unit step -(grad EX + rho grad SE), with the multiplier rho that keeps SE from rising."""
    parameters = dict(model.named_parameters())
    ex = torch.autograd.grad(F.exponential(model(x), y, ALPHA).mean(), list(parameters.values()))
    se = torch.autograd.grad(F.sum_exp(model(x)).mean(), list(parameters.values()))
    inner = sum((a * b).sum() for a, b in zip(ex, se, strict=True))
    square = sum((b * b).sum() for b in se)
    rho = max(0.0, -float(inner / square))
    direction = [-(a + rho * b) for a, b in zip(ex, se, strict=True)]
    norm = float(torch.cat([d.flatten() for d in direction]).norm())
    return {k: d / norm for k, d in zip(parameters, direction, strict=True)}, rho


def panel(
    axes: Axes, title: str, scores: np.ndarray, x: Tensor, y: Tensor, weights: np.ndarray
) -> None:
    """Regions of the largest score, paler where it leads by less; heavier points are larger."""
    axis, _ = grid()
    ordered = np.sort(scores, axis=1)
    lead = ordered[:, -1] - ordered[:, -2]
    lead = np.clip(lead / np.quantile(lead, 0.9), 0, 1).reshape(301, 301)
    named = scores.argmax(axis=1).reshape(301, 301)
    axes.pcolormesh(
        axis, axis, named, cmap=ListedColormap(COLOURS), vmin=0, vmax=2, alpha=0.08 + 0.42 * lead,
        rasterized=True,
    )  # fmt: skip
    axes.contour(axis, axis, named, levels=[0.5, 1.5], colors="0.35", linewidths=0.7)
    size = 4 + 110 * (weights - weights.min()) / (weights.max() - weights.min())
    for k in range(CLASSES):
        own = y.numpy() == k
        axes.scatter(
            x[own, 0], x[own, 1], s=size[own], c=COLOURS[k], marker=MARKERS[k], edgecolors="black",
            linewidths=0.4,
        )  # fmt: skip
    axes.set(
        title=title, xticks=[], yticks=[], xlim=(-EDGE, EDGE), ylim=(-EDGE, EDGE), aspect="equal"
    )


def boosting_row(row: np.ndarray, x: Tensor, y: Tensor, points: Tensor) -> None:
    """AdaBoost: the sum of the first rounds, the next stump, and the sum with it."""
    model = SAMMEClassifier(n_estimators=ROUNDS + 1, random_state=0).fit(x.numpy(), y.numpy())
    weight = np.ones(len(y)) / len(y)
    for eta, g in zip(model.estimator_weights_[:ROUNDS], model.estimators_, strict=False):
        weight = weight * np.exp(eta * (g.predict(x.numpy()) != y.numpy()))
    stages = list(model.staged_decision_function(points.numpy()))
    stump = np.eye(CLASSES)[model.estimators_[ROUNDS].predict(points.numpy())]
    after = weight * np.exp(
        model.estimator_weights_[ROUNDS]
        * (model.estimators_[ROUNDS].predict(x.numpy()) != y.numpy())
    )
    panel(row[0], f"sum of {ROUNDS} stumps", stages[ROUNDS - 1], x, y, weight)
    panel(row[1], "next: a stump for the large points", stump, x, y, weight)
    panel(row[2], f"sum of {ROUNDS + 1} stumps", stages[ROUNDS], x, y, after)
    error = model.estimator_errors_[ROUNDS]
    print(
        f"AdaBoost: weighted error of the next stump {error:.3f} (guessing: {1 - 1 / CLASSES:.3f})"
    )


def gradient_row(row: np.ndarray, x: Tensor, y: Tensor, points: Tensor) -> None:
    """PENEX: the network so far, the step's change of the logits, and the network after it."""
    model = network(x, y)
    step, rho = unit_step(model, x, y)
    start = {name: value.detach() for name, value in model.named_parameters()}

    def logits(parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(model, parameters, (inputs,))
        return out

    def before_and_change(inputs: Tensor) -> tuple[Tensor, Tensor]:
        pair: tuple[Tensor, Tensor]
        pair = torch.func.jvp(lambda p: logits(p, inputs), (start,), (step,))  # type: ignore[assignment]
        return pair

    f, g = before_and_change(points)
    own_f, own_g = before_and_change(x)
    # Like AdaBoost's, the weight of the weak learner is the one that lowers the loss most.
    penalty = max(rho, 1e-6)
    etas = torch.linspace(0, 3, 301).tolist()
    eta = min(etas, key=lambda e: F.penex(own_f + e * own_g, y, ALPHA, penalty).item())
    weight = F.exponential(own_f, y, ALPHA).numpy()
    after = F.exponential(own_f + eta * own_g, y, ALPHA).numpy()
    panel(row[0], f"network after {STEPS} steps", f.numpy(), x, y, weight)
    panel(row[1], "next: a step for the large points", g.numpy(), x, y, weight)
    panel(row[2], "network with the step added", (f + eta * g).numpy(), x, y, after)
    moved = {name: start[name] + eta * step[name] for name in start}
    gap = (logits(moved, x) - own_f - eta * own_g).abs().max() / own_g.abs().max() / eta
    print(
        f"PENEX: multiplier rho = {rho:.4f}, eta = {eta:.2f}; EX {weight.mean():.3f} -> "
        f"{after.mean():.3f}; the true step differs from f + eta g by at most {100 * gap:.0f} % of "
        "the change"
    )


def main() -> None:
    """Draw both rows and save the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs/images/boosting_view.png"))
    out: Path = parser.parse_args().out
    if not out.parent.is_dir():
        parser.error(f"the folder {out.parent} does not exist")
    x, y = data()
    _, points = grid()
    with plt.style.context(["science", "no-latex"]):
        plt.rcParams.update({"font.size": 11, "axes.titlesize": 12})
        figure, axes = plt.subplots(2, 3, figsize=(10.5, 7.4), layout="constrained")
        boosting_row(axes[0], x, y, points)
        gradient_row(axes[1], x, y, points)
        axes[0, 0].set_ylabel("AdaBoost adds stumps", fontsize=14)
        axes[1, 0].set_ylabel("PENEX adds gradient steps", fontsize=14)
        figure.suptitle(
            "Two ways to add a weak learner that helps where the sum so far is wrong", fontsize=15
        )
        figure.supxlabel(
            "The larger a point, the larger its weight exp(−α·logit of its class) in its panel: "
            "large points are wrong, or nearly so.\n"
            "The background has the colour of the class that the function favours, paler where it "
            "hardly does.",
            fontsize=11,
        )
        figure.savefig(out, dpi=130)
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
