"""Each loss, and its pull on the label's logit, against the margin: a picture a loss.

One example of ten classes: the label's logit is m above the others, which are alike. A softmax
loss sees nothing else. PENEX also sees the level of the logits: they are shifted so that
sum_j exp f_j = 1, where a model with rho = |alpha| comes to rest, and loss and pull are divided by
|alpha|, so that every line is on cross-entropy's scale (PENEX is then (p^-alpha - 1) / alpha, and
its pull p^-alpha - p). Early learning is drawn where its memory says what the model says.

    python examples/loss_shapes.py [--out docs/images/losses]
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import scienceplots  # noqa: F401  (registers the style)
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from penex import registry
from penex.rivals import EarlyLearning

CLASSES, POINTS = 10, 241
# Which values of its parameter a loss is drawn with: the first is the default, the thick line.
DRAWN: dict[str, tuple[str, tuple[float, ...]]] = {
    "penex": ("alpha", (0.1, 0.3, 0.03)),
    "penex_negative": ("alpha", (-0.3, -0.6, -0.1)),
    "label_smoothing": ("epsilon", (0.1, 0.3, 0.03)),
    "confidence_penalty": ("lambda_", (0.1, 0.4, 1.0)),
    "focal": ("gamma", (2.0, 5.0, 0.5)),
    "gce": ("q", (0.7, 0.95, 0.3)),
    "brier": ("", (0.0,)),
    "nce_rce": ("a", (1.0, 10.0)),
    "elr": ("lambda_", (3.0, 7.0, 1.0)),
}
GREEK = {"alpha": "α", "epsilon": "ε", "lambda_": "λ", "gamma": "γ"}
FIRST = ("ce", "penex", "penex_negative")
MAIN = (*FIRST, "label_smoothing", "focal", "gce", "brier")


def shape(name: str, **arguments: float) -> tuple[Tensor, Tensor, Tensor]:
    """The margins, the loss at each of them, and its pull: minus its slope in the label's logit.

    >>> m, value, pull = shape("ce")
    >>> middle = len(m) // 2
    >>> m[middle].item(), round(value[middle].exp().item(), 3), round(pull[middle].item(), 3)
    (0.0, 10.0, 0.9)
    """
    margins = torch.linspace(-8, 8, POINTS, dtype=torch.float64)
    raised = torch.zeros(POINTS, CLASSES, dtype=torch.float64)
    raised[:, 0] = margins
    logits = torch.log_softmax(raised, 1).requires_grad_()
    labels = torch.zeros(POINTS, dtype=torch.int64)
    size = 1.0
    if name.startswith("penex"):
        size = abs(arguments["alpha"])
        loss = registry.make(name, **arguments, rho=size, scale="paper", reduction="none")
        value = loss(logits, labels) / size - 1 - 1 / arguments["alpha"]  # 0 for certain and right
    elif name == "elr":
        loss = registry.make(name, **arguments, reduction="none")
        assert isinstance(loss, EarlyLearning)
        loss.remember(examples=POINTS, classes=CLASSES)
        for _ in range(60):  # until the memory is what the model says
            value = loss(logits, labels, index=torch.arange(POINTS))
    else:
        value = registry.make(name, **arguments, reduction="none")(logits, labels)
    (slope,) = torch.autograd.grad(value.sum(), logits)
    return margins, value.detach(), -slope[:, 0]


def labelled(name: str, parameter: str, value: float) -> str:
    """The words beside a line."""
    if not parameter:
        return registry.find(name).title
    return f"{GREEK.get(parameter, parameter)} = {value:g}".replace("-", "−")


def canvas() -> tuple[Figure, Axes, Axes]:
    """Two empty panels, with the line between wrong and right."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.3), layout="constrained")
    for axes in (left, right):
        axes.axvline(0, color="0.75", linewidth=0.8)
        axes.set(xlabel="margin: the label's logit above the others", xlim=(-8, 8))
    left.set(title="Loss", ylim=(-1.2, 9))
    right.set(title="Pull on the label's logit", ylim=(-0.45, 2.1))
    right.axhline(0, color="0.75", linewidth=0.8)
    return figure, left, right


def draw(name: str, path: Path) -> None:
    """A picture of one loss at several values, with cross-entropy behind it."""
    figure, left, right = canvas()
    grey: dict[str, Any] = {
        "color": "0.55",
        "linestyle": "--",
        "linewidth": 1.2,
        "label": "cross-entropy",
    }
    margins, value, pull = shape("ce")
    left.plot(margins, value, **grey)
    right.plot(margins, pull, **grey)
    parameter, values = DRAWN[name]
    for k, number in enumerate(values):
        margins, value, pull = shape(name, **({parameter: number} if parameter else {}))
        style: dict[str, Any] = {
            "color": registry.colour(name),
            "linewidth": (2.2, 1.4, 1.4)[k],
            "linestyle": ("-", "-.", ":")[k],
            "label": labelled(name, parameter, number),
        }
        left.plot(margins, value, **style)
        right.plot(margins, pull, **style)
        if not k:  # what lies on the right side of -1 is to be seen whole
            right.set_ylim(top=max(2.1, 1.1 * pull[margins > -1].max().item()))
    left.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_all(names: tuple[str, ...], path: Path) -> None:
    """A picture of several losses at their defaults."""
    figure, left, right = canvas()
    for name in names:
        parameter, values = DRAWN.get(name, ("", (0.0,)))
        margins, value, pull = shape(name, **({parameter: values[0]} if parameter else {}))
        title = registry.find(name).title if name != "ce" else "cross-entropy"
        if "penex" in name:
            title = f"PENEX, {labelled(name, parameter, values[0])}"
        style: dict[str, Any] = {
            "color": registry.colour(name),
            "linewidth": 2.2 if "penex" in name else 1.4,
        }
        left.plot(margins, value, label=title, **style)
        right.plot(margins, pull, **style)
    left.legend(fontsize=9)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Draw every loss into a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs/images/losses"))
    arguments = parser.parse_args()
    if not arguments.out.is_dir():
        parser.error(f"the folder {arguments.out} does not exist")
    with plt.style.context(["science", "no-latex"]):
        plt.rcParams.update({"font.size": 11})
        for name in DRAWN:
            draw(name, arguments.out / f"{name}.png")
        draw_all(FIRST, arguments.out / "first.png")
        draw_all(MAIN, arguments.out / "all.png")
    print(f"drew {len(DRAWN) + 2} pictures into {arguments.out}")


if __name__ == "__main__":
    main()
