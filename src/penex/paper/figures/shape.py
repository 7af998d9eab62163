"""Loss and gradient against the true logit for two classes (the paper's fig:penex_deriv).

f_2 = 0, y = 1. The paper gives neither alpha nor rho; rho is alpha / 2 here, which is rho* where
both logits are 0: there the gradient of PENEX is alpha times that of cross-entropy.
"""

import math
from typing import Any, NamedTuple

import torch

from penex import functional as F
from penex.paper.figures.picture import Picture, Point, Shown, Source
from penex.report.drawing import Line, Panel
from penex.report.figures import grid

ALPHAS = (1.0, 0.1)
_LOW, _HIGH = -4.0, 4.0


class Curve(NamedTuple):
    """A loss along f_1, and its derivative."""

    f: list[float]
    value: list[float]
    gradient: list[float]


def curve(alpha: float | None, low: float = _LOW, high: float = _HIGH, count: int = 161) -> Curve:
    """The loss of one example with logits (f, 0) and target 1; alpha None is cross-entropy.

    >>> [round(number, 3) for number in curve(None, 0.0, 1.0, 2).gradient]
    [-0.5, -0.269]
    """
    f = torch.linspace(low, high, count, dtype=torch.float64, requires_grad=True)
    logits = torch.stack([f, torch.zeros_like(f)], dim=1)
    target = torch.zeros(count, dtype=torch.int64)
    if alpha is None:
        values = torch.nn.functional.cross_entropy(logits, target, reduction="none")
    else:
        values = F.penex(logits, target, alpha, alpha / 2, reduction="none")
    (gradient,) = torch.autograd.grad(values.sum(), f)
    return Curve(f.tolist(), values.tolist(), gradient.tolist())


def steeper_below(alpha: float) -> float:
    """The f below which the gradient of PENEX is steeper than that of cross-entropy.

    >>> round(steeper_below(1.0), 2), round(steeper_below(0.1), 1)
    (0.0, -23.0)
    """
    low, high = -80.0, 0.0  # of -alpha e^(-alpha f) + rho e^f + 1 / (1 + e^f), falling to the left

    def less(f: float) -> float:
        return -alpha * math.exp(-alpha * f) + alpha / 2 * math.exp(f) + 1 / (1 + math.exp(f))

    if less(high) <= 0:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if less(middle) < 0 else (low, middle)
    return high


def draw() -> Any:
    """Values on the left, gradients on the right."""
    found = [("ce", "CE", 0, curve(None))]
    found += [
        ("penex", f"PENEX (alpha={alpha:g}, rho={alpha / 2:g})", k, curve(alpha))
        for k, alpha in enumerate(ALPHAS)
    ]
    panels = []
    for title, column, edges in (("loss", 1, (0.0, 8.0)), ("gradient", 2, (-6.0, 2.0))):
        marks = [
            Line(list(zip(one.f, one[column], strict=True)), ink, dash=dash, name=name)
            for ink, name, dash, one in found
        ]
        zero = Line([(_LOW, 0.0), (_HIGH, 0.0)], "muted", "guide")
        x = "logit of the true class, the other is 0"
        panels.append((title, Panel(title, (_LOW, _HIGH), edges, x, title, marks=[zero, *marks])))
    return grid([panels], 3.0, 2.5)


def points() -> list[Point]:
    """The caption, and what the text reads off the figure."""
    far = {alpha: curve(alpha, -40.0, -1.0, 40).gradient for alpha in (None, *ALPHAS)}
    falls = all(a < b for alpha in ALPHAS for a, b in zip(far[alpha], far[alpha][1:], strict=False))
    levels = abs(far[None][0] + 1) < 1e-9
    at = {alpha: steeper_below(alpha) for alpha in ALPHAS}
    said = ", ".join(f"f < {place:.1f} at alpha {alpha:g}" for alpha, place in at.items())
    return [
        Point(
            "PENEX penalises errors more than cross-entropy",
            "holds" if all(place > -5 for place in at.values()) else "unclear",
            f"Its gradient is the steeper one for {said}: as drawn for an alpha near 1, but at the "
            "default alpha only for logits that hardly occur; there it is alpha times cross-"
            "entropy's at f = 0.",
        ),
        Point(
            "As f goes to minus infinity PENEX's gradient falls on, cross-entropy's ends at -1",
            "holds" if falls and levels else "does not hold",
            f"At f = -40 they are {far[1.0][0]:.3g} (alpha 1), {far[0.1][0]:.3g} (alpha 0.1) and "
            f"{far[None][0]:.3g} (CE).",
        ),
    ]


def _make(source: Source) -> Shown:
    return Shown(draw, points(), "A formula: nothing is trained.")


PICTURE = Picture(
    "shape",
    "CE against PENEX for two classes",
    "Two classes, the second logit 0, one example of the first class: PENEX penalises errors more "
    "than cross-entropy does.",
    _make,
)
