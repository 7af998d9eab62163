"""Drawings as data: what stands where. A page and a figure show the same ones."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

Point = tuple[float, float]

_POINTS = 200  # of a curve: more than a screen shows


PLAIN = ("ink", "muted", "shade")  # what has a colour and is no loss
TONES = (1.0, 0.6, 0.3)  # how much of a loss's colour its variants keep; the rest is ink
DASHES = 4
_THIN = 3  # lines of single seeds for each loss: more cannot be told apart


def toned(loss: str, variant: int) -> str:
    """The ink of a loss with other arguments: its colour, nearer to that of the text.

    Three tones and four dashes tell twelve variants of a loss apart.

    >>> toned("penex", 0), toned("penex", 1), toned("penex", 4)
    ('penex', 'penex~1', 'penex~1')
    """
    tone = variant % len(TONES)
    return f"{loss}~{tone}" if tone else loss


def untoned(ink: str) -> tuple[str, float]:
    """What an ink is a tone of, and how much of that is in it.

    >>> untoned("penex~1"), untoned("muted")
    (('penex', 0.6), ('muted', 1.0))
    """
    loss, _, tone = ink.partition("~")
    return loss, TONES[int(tone or 0)]


class Line(NamedTuple):
    """A line through points; it breaks where a value is not finite.

    Attributes:
        points: from left to right.
        ink: the name of a loss or what `toned` makes of it, one of `PLAIN`, or for figures a colour
            as #RRGGBB.
        kind: ``mean``, ``seed``, ``guide``, ``bound`` or ``interval``, or for figures ``subject``:
            how strong it is.
        dash: 0 is solid; up to 3 tell lines of one ink apart.
        name: what it shows, for legends and pointers; empty for lines that need no name.
    """

    points: Sequence[Point]
    ink: str
    kind: str = "mean"
    dash: int = 0
    name: str = ""


class Dot(NamedTuple):
    """A dot of some radius, with a text for those who point at it."""

    point: Point
    ink: str
    text: str = ""
    size: float = 3.0


class Bar(NamedTuple):
    """A filled rectangle between two corners, with a text for those who point at it."""

    low: Point
    high: Point
    ink: str
    text: str = ""


class Whisker(NamedTuple):
    """A vertical bar of uncertainty."""

    x: float
    low: float
    high: float
    ink: str


Mark = Line | Dot | Bar | Whisker


@dataclass
class Panel:
    """A drawing with two axes.

    Attributes:
        title: what it shows, in a sentence for those who cannot see it.
        x: the lowest and highest value of the horizontal axis.
        y: those of the vertical axis.
        x_label: under the horizontal axis.
        y_label: beside the vertical axis.
        small: whether many of its kind stand side by side.
        log_x: True for a logarithmic horizontal axis.
        x_ticks: values to mark, instead of round ones.
        x_names: words under the horizontal axis at 0, 1, 2, ..., instead of numbers.
        y_names: words beside the vertical axis, likewise: the panel is a list of rows.
        y_notes: words at the other end of each of these rows.
        hover: what the horizontal axis counts, if a pointer shows the values of the named lines.
        marks: what is drawn, in order.
    """

    title: str
    x: Point
    y: Point
    x_label: str = ""
    y_label: str = ""
    small: bool = False
    log_x: bool = False
    x_ticks: Sequence[float] = ()
    x_names: Sequence[str] = ()
    y_names: Sequence[str] = ()
    y_notes: Sequence[str] = ()
    hover: str = ""
    marks: list[Mark] = field(default_factory=list)

    def holds(self, point: Point) -> bool:
        """Whether a point lies within the axes or on one of them."""
        edges = zip(point, (self.x, self.y), strict=True)
        return all(min(ends) <= value <= max(ends) for value, ends in edges)


def limits(values: Iterable[float], room: float = 0.06) -> Point:
    """An axis on which all values lie with some room around them.

    >>> limits([1.0, 2.0, math.nan])
    (0.94, 2.06)
    """
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    extra = room * (high - low) or abs(high) * 0.05 or 0.05
    return low - extra, high + extra


def most(values: Sequence[float], *, higher: bool = False) -> Point:
    """An axis from the best value to what most reach: one gone astray must not squeeze the rest."""
    sign = -1 if higher else 1
    signed = [sign * value for value in values]
    return limits((sign * min(signed), sign * float(np.quantile(signed, 0.9))), room=0.08)


def with_few_seeds(panel: Panel) -> Panel:
    """A panel with at most three thin lines for each ink: they end lowest, midway and highest."""
    of_ink: dict[str, list[Line]] = {}
    for mark in panel.marks:
        if isinstance(mark, Line) and mark.kind == "seed":
            of_ink.setdefault(mark.ink, []).append(mark)
    left_out = set()
    for lines in of_ink.values():
        if len(lines) > _THIN:
            ranked = sorted(lines, key=lambda line: line.points[-1][::-1])
            shown = {id(ranked[k * (len(ranked) - 1) // (_THIN - 1)]) for k in range(_THIN)}
            left_out |= {id(line) for line in lines} - shown
    return replace(panel, marks=[mark for mark in panel.marks if id(mark) not in left_out])


def thinned(points: Sequence[Point]) -> list[Point]:
    """All of the points, or evenly spread ones with the last."""
    n = len(points)
    if n <= _POINTS:
        return list(points)
    return [points[k] for k in sorted({round(i * (n - 1) / (_POINTS - 1)) for i in range(_POINTS)})]
