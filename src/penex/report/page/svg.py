"""Small charts as SVG text: they take the page's colours, light or dark, and scale with it."""

import functools
import html
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

Point = tuple[float, float]

# Names of clipping areas: unique within a process, and so within a page.
_numbers = itertools.count()

_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 16.0, 10.0, 34.0


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two values, about `count` of them.

    >>> nice_ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.7)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return [round(k * step, digits) + 0.0 for k in range(first, last + 1)]


def number(value: float) -> str:
    """A short form of a number for an axis or a tooltip.

    >>> number(0.12345), number(1500.0), number(0.00002)
    ('0.1235', '1500', '2e-05')
    """
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e5):
        return f"{value:.2g}"
    return f"{value:.4f}".rstrip("0").rstrip(".")


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """The short forms of an axis' numbers, with as many digits as it takes to tell them apart.

    >>> tick_labels([2.3, 2.35]), tick_labels([2.30372, 2.30374]), tick_labels([0.0, 1e-5])
    (['2.3', '2.35'], ['2.30372', '2.30374'], ['0', '1e-05'])
    """
    labels = [number(value) for value in ticks]
    digits = 5
    while len(set(labels)) < len(set(ticks)) and digits < 16:
        labels = [f"{value:.{digits}f}".rstrip("0").rstrip(".") for value in ticks]
        digits += 1
    return labels


@dataclass
class Chart:
    """A chart with two axes that draws in the order in which it is asked.

    Attributes:
        title: what a screen reader says.
        x: the lowest and highest value of the horizontal axis.
        y: those of the vertical axis.
        x_label: under the horizontal axis.
        y_label: beside the vertical axis.
        width: in units of the drawing.
        height: likewise.
        log_x: True for a logarithmic horizontal axis.
        x_ticks: values to mark, instead of round ones.
        x_names: words under the horizontal axis at 0, 1, 2, ..., instead of numbers.
        hover: JSON for the script that shows values under the pointer; empty for none.
    """

    title: str
    x: Point
    y: Point
    x_label: str = ""
    y_label: str = ""
    width: float = 420.0
    height: float = 260.0
    log_x: bool = False
    x_ticks: Sequence[float] = ()
    x_names: Sequence[str] = ()
    hover: str = ""
    _parts: list[str] = field(default_factory=list)

    @functools.cached_property
    def _left(self) -> float:
        """Where the vertical axis stands: long numbers need more room beside it."""
        longest = max(len(text) for text in tick_labels(nice_ticks(*self.y)))
        return max(_LEFT, 26.0 + 6.5 * longest)

    def place(self, point: Point) -> Point:
        """Where a point of the data lies in the drawing."""
        (x0, x1), (y0, y1) = self.x, self.y
        px, lo, hi = point[0], x0, x1
        if self.log_x:
            px, lo, hi = math.log(px), math.log(lo), math.log(hi)
        across = (px - lo) / ((hi - lo) or 1.0)
        up = (point[1] - y0) / ((y1 - y0) or 1.0)
        return (
            self._left + across * (self.width - self._left - _RIGHT),
            self.height - _BOTTOM - up * (self.height - _TOP - _BOTTOM),
        )

    def line(
        self, points: Sequence[Point], colour: str, *, kind: str = "mean", dash: str = ""
    ) -> None:
        """A line through points; it breaks where a value is not finite."""
        runs: list[list[str]] = [[]]
        for point in points:
            if math.isfinite(point[0]) and math.isfinite(point[1]):
                x, y = self.place(point)
                runs[-1].append(f"{x:.1f},{y:.1f}")
            elif runs[-1]:
                runs.append([])
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        for run in runs:
            if run:
                self._parts.append(
                    f'<polyline class="{kind}" style="stroke:{colour}"{dashes} '
                    f'points="{" ".join(run)}"/>'
                )

    def dot(self, point: Point, colour: str, text: str = "") -> None:
        """A dot, with a text for those who point at it."""
        x, y = self.place(point)
        said = f"<title>{html.escape(text)}</title>" if text else ""
        self._parts.append(
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3" style="fill:{colour}">'
            f"{said}</circle>"
        )

    def bar(self, low: Point, high: Point, colour: str, text: str = "", kind: str = "bar") -> None:
        """A filled rectangle between two corners."""
        (x0, y0), (x1, y1) = self.place(low), self.place(high)
        said = f"<title>{html.escape(text)}</title>" if text else ""
        self._parts.append(
            f'<rect class="{kind}" x="{min(x0, x1):.1f}" y="{min(y0, y1):.1f}" '
            f'width="{abs(x1 - x0):.1f}" height="{abs(y1 - y0):.1f}" style="fill:{colour}">'
            f"{said}</rect>"
        )

    def whisker(self, x: float, low: float, high: float, colour: str) -> None:
        """A vertical bar of uncertainty."""
        (x0, y0), (_, y1) = self.place((x, low)), self.place((x, high))
        self._parts.append(
            f'<path class="whisker" style="stroke:{colour}" '
            f'd="M{x0:.1f} {y0:.1f}V{y1:.1f}M{x0 - 3:.1f} {y0:.1f}h6M{x0 - 3:.1f} {y1:.1f}h6"/>'
        )

    def render(self) -> str:
        """The whole drawing."""
        clip = f"clip-{next(_numbers)}"
        area = (
            f'<clipPath id="{clip}"><rect x="{self._left}" y="{_TOP - 4}" '
            f'width="{self.width - self._left - _RIGHT}" '
            f'height="{self.height - _TOP - _BOTTOM + 8}"/></clipPath>'
        )
        hover = f' data-hover="{html.escape(self.hover)}"' if self.hover else ""
        return (
            f'<svg class="chart" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{html.escape(self.title)}"{hover}>'
            f'{area}{self._axes()}<g clip-path="url(#{clip})">{"".join(self._parts)}</g></svg>'
        )

    def _axes(self) -> str:
        bottom, right = self.height - _BOTTOM, self.width - _RIGHT
        parts = []
        for k, name in enumerate(self.x_names):
            x, _ = self.place((k, self.y[0]))
            for line, word in enumerate(name.rsplit(" ", 1)):
                parts.append(
                    f'<text x="{x:.1f}" y="{bottom + 14 + 13 * line}" text-anchor="middle">'
                    f"{html.escape(word)}</text>"
                )
        x_ticks = () if self.x_names else self.x_ticks or nice_ticks(*self.x)
        for value, text in zip(x_ticks, tick_labels(x_ticks), strict=True):
            x, _ = self.place((value, self.y[0]))
            parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{text}</text>')
        y_ticks = nice_ticks(*self.y)
        for value, text in zip(y_ticks, tick_labels(y_ticks), strict=True):
            _, y = self.place((self.x[0], value))
            parts.append(f'<path class="grid" d="M{self._left} {y:.1f}H{right}"/>')
            parts.append(
                f'<text x="{self._left - 5}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
            )
        parts.append(f'<path class="axis" d="M{self._left} {_TOP}V{bottom}H{right}"/>')
        middle = (self._left + right) / 2
        parts.append(
            f'<text class="label" x="{middle:.0f}" y="{self.height - 4}" text-anchor="middle">'
            f"{html.escape(self.x_label)}</text>"
        )
        across = (_TOP + bottom) / 2
        parts.append(
            f'<text class="label" transform="translate(11 {across:.0f}) rotate(-90)" '
            f'text-anchor="middle">{html.escape(self.y_label)}</text>'
        )
        return "".join(parts)
