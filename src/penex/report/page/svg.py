"""Drawings as SVG text: they take the page's colours, light or dark, and scale with it."""

import functools
import hashlib
import html
import json
import math
import textwrap
from collections.abc import Sequence

from penex import registry
from penex.report.drawing import PLAIN, Bar, Dot, Line, Mark, Panel, Point, Whisker, untoned

_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 16.0, 10.0, 34.0
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_ROW, _LETTER = 34.0, 7.2  # the height of a row, and the width of a letter
_LONGEST = 19  # letters of a row's name in a line: the rest goes below


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


def colour(ink: str) -> str:
    """What the page's style calls the colour of a loss, or of something else.

    >>> colour("penex"), colour("shade"), colour("someone:Else")
    ('var(--loss-penex)', 'var(--shade)', '#C77B3B')
    >>> colour("penex~1")
    'color-mix(in srgb, var(--loss-penex) 60%, var(--ink))'
    """
    name, share = untoned(ink)
    if share < 1:
        return f"color-mix(in srgb, {colour(name)} {share:.0%}, var(--ink))"
    if name in PLAIN:
        return f"var(--{name})"
    loss = name.partition(":")[0]
    known = loss in registry.LOSSES
    return f"var(--loss-{loss.replace('_', '-')})" if known else registry.colour(name)


def key(ink: str, dash: int) -> str:
    """A short line, for legends and tables: the colour and the dashes of a loss."""
    dashes = f' stroke-dasharray="{_DASHES[dash]}"' if dash else ""
    return (
        '<svg class="key" viewBox="0 0 26 10" aria-hidden="true">'
        f'<path style="stroke:{colour(ink)}"{dashes} d="M1 5H25"/></svg>'
    )


def svg(panel: Panel) -> str:
    """A panel as the text of an SVG element."""
    return _Canvas(panel).render()


class _Canvas:
    """Where the points of a panel lie in its drawing."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.width, self.height = (260.0, 240.0) if panel.small else (420.0, 260.0)
        self.y_ticks = () if panel.y_names else nice_ticks(*panel.y)
        # Long numbers and names need more room beside the axis.
        longest = max((len(text) for text in tick_labels(self.y_ticks)), default=0)
        self.left, self.right = max(_LEFT, 26.0 + 6.5 * longest), self.width - _RIGHT
        if panel.y_names:
            self.width, self.height = 400.0, _ROW * len(panel.y_names) + _TOP + _BOTTOM
            lines = [line for name in panel.y_names for line in _in_lines(name)]
            self.left = 12.0 + _LETTER * max(map(len, lines))
            self.right = (
                self.width
                - _RIGHT
                - _LETTER * max((len(note) for note in panel.y_notes), default=0)
            )
        self.bottom = self.height - _BOTTOM

    def place(self, point: Point) -> Point:
        """Where a point of the data lies in the drawing."""
        (x0, x1), (y0, y1) = self.panel.x, self.panel.y
        x = point[0]
        if self.panel.log_x:
            x, x0, x1 = math.log(x), math.log(x0), math.log(x1)
        across = (x - x0) / ((x1 - x0) or 1.0)
        up = (point[1] - y0) / ((y1 - y0) or 1.0)
        return (
            self.left + across * (self.right - self.left),
            self.bottom - up * (self.bottom - _TOP),
        )

    def render(self) -> str:
        """The whole drawing."""
        panel = self.panel
        area = (
            f'<rect x="{self.left:g}" y="{_TOP:g}" width="{self.right - self.left:g}" '
            f'height="{self.bottom - _TOP:g}"/>'
        )
        # Lines end at the axes; a dot on an axis is whole.
        lines = [mark for mark in panel.marks if not isinstance(mark, Dot)]
        dots = [mark for mark in panel.marks if isinstance(mark, Dot) and panel.holds(mark.point)]
        marks, above = ("".join(map(self.mark, some)) for some in (lines, dots))
        # A name by what it clips: a page must be the same whatever this process drew before.
        clip = f"clip-{hashlib.sha256((area + panel.title + marks).encode()).hexdigest()[:12]}"
        return (
            f'<svg class="chart{" rows" if panel.y_names else ""}" role="img" '
            f'viewBox="0 0 {self.width:g} {self.height:g}" '
            f'aria-label="{html.escape(panel.title)}"{self.hover()}>'
            f'<clipPath id="{clip}">{area}</clipPath>{self.axes()}'
            f'<g clip-path="url(#{clip})">{marks}</g>{above}</svg>'
        )

    def hover(self) -> str:
        """The values of the named lines and where the axes lie, for the page's script."""
        if not self.panel.hover:
            return ""
        lines = [mark for mark in self.panel.marks if isinstance(mark, Line) and mark.name]
        content = {
            "what": self.panel.hover,
            "x": self.panel.x,
            "left": self.left,
            "right": self.right,
            "top": _TOP,
            "bottom": self.bottom,
            "series": [
                {
                    "name": line.name,
                    "x": [x for x, _ in line.points],
                    "y": [float(f"{y:.5g}") if math.isfinite(y) else None for _, y in line.points],
                }
                for line in lines
            ],
        }
        text = json.dumps(content, separators=(",", ":"))
        return f' data-hover="{html.escape(text)}"'

    @functools.singledispatchmethod
    def mark(self, mark: Mark) -> str:
        """A mark of the panel."""
        raise TypeError(mark)

    @mark.register
    def _(self, mark: Line) -> str:
        runs: list[list[str]] = [[]]
        for point in mark.points:
            if math.isfinite(point[0]) and math.isfinite(point[1]):
                x, y = self.place(point)
                runs[-1].append(f"{x:.1f},{y:.1f}")
            elif runs[-1]:
                runs.append([])
        dashes = f' stroke-dasharray="{_DASHES[mark.dash]}"' if mark.dash else ""
        return "".join(
            f'<polyline class="{mark.kind}" style="stroke:{colour(mark.ink)}"{dashes} '
            f'points="{" ".join(run)}"/>'
            for run in runs
            if run
        )

    @mark.register
    def _(self, mark: Dot) -> str:
        x, y = self.place(mark.point)
        return (
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{mark.size:.3g}" '
            f'style="fill:{colour(mark.ink)}">{_title(mark.text)}</circle>'
        )

    @mark.register
    def _(self, mark: Bar) -> str:
        (x0, y0), (x1, y1) = self.place(mark.low), self.place(mark.high)
        return (
            f'<rect class="bar" x="{min(x0, x1):.1f}" y="{min(y0, y1):.1f}" '
            f'width="{abs(x1 - x0):.1f}" height="{abs(y1 - y0):.1f}" '
            f'style="fill:{colour(mark.ink)}">{_title(mark.text)}</rect>'
        )

    @mark.register
    def _(self, mark: Whisker) -> str:
        (x, y0), (_, y1) = self.place((mark.x, mark.low)), self.place((mark.x, mark.high))
        return (
            f'<path class="whisker" style="stroke:{colour(mark.ink)}" '
            f'd="M{x:.1f} {y0:.1f}V{y1:.1f}M{x - 3:.1f} {y0:.1f}h6M{x - 3:.1f} {y1:.1f}h6"/>'
        )

    def axes(self) -> str:
        """Lines, numbers and words around the drawing."""
        panel, bottom, right = self.panel, self.bottom, self.right
        parts = []
        for k, name in enumerate(panel.x_names):
            x, _ = self.place((k, panel.y[0]))
            for line, word in enumerate(name.rsplit(" ", 1)):
                parts.append(
                    f'<text x="{x:.1f}" y="{bottom + 14 + 13 * line}" text-anchor="middle">'
                    f"{html.escape(word)}</text>"
                )
        few = 3 if panel.y_names else 5  # names leave little room
        x_ticks = () if panel.x_names else panel.x_ticks or nice_ticks(*panel.x, few)
        for value, text in zip(x_ticks, tick_labels(x_ticks), strict=True):
            x, _ = self.place((value, panel.y[0]))
            parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{text}</text>')
        parts += [self.row(k, name) for k, name in enumerate(panel.y_names)]
        for value, text in zip(self.y_ticks, tick_labels(self.y_ticks), strict=True):
            _, y = self.place((panel.x[0], value))
            parts.append(f'<path class="grid" d="M{self.left} {y:.1f}H{right}"/>')
            parts.append(
                f'<text x="{self.left - 5}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
            )
        parts.append(f'<path class="axis" d="M{self.left} {_TOP}V{bottom}H{right}"/>')
        middle = (self.left + right) / 2
        parts.append(
            f'<text class="label" x="{middle:.0f}" y="{self.height - 4}" text-anchor="middle">'
            f"{html.escape(panel.x_label)}</text>"
        )
        across = (_TOP + bottom) / 2
        parts.append(
            f'<text class="label" transform="translate(11 {across:.0f}) rotate(-90)" '
            f'text-anchor="middle">{html.escape(panel.y_label)}</text>'
        )
        return "".join(parts)

    def row(self, place: int, name: str) -> str:
        """The words at both ends of a row, and the thread between them."""
        _, y = self.place((self.panel.x[0], place))
        lines = _in_lines(name)
        first = y + 4 - 6.5 * (len(lines) - 1)
        names = "".join(
            f'<text x="{self.left - 7:.1f}" y="{first + 13 * k:.1f}" text-anchor="end">'
            f"{html.escape(line)}</text>"
            for k, line in enumerate(lines)
        )
        note = self.panel.y_notes[place] if self.panel.y_notes else ""
        return (
            f'<path class="grid" d="M{self.left} {y:.1f}H{self.right}"/>{names}'
            f'<text x="{self.width - 8:g}" y="{y + 4:.1f}" text-anchor="end">'
            f"{html.escape(note)}</text>"
        )


def _in_lines(name: str) -> list[str]:
    """A name in two lines, if it is too long for one."""
    first, *rest = textwrap.wrap(name, _LONGEST, break_on_hyphens=False) or [""]
    second = " ".join(rest)
    second = second if len(second) <= _LONGEST else f"{second[: _LONGEST - 1]}…"
    return [first, second] if second else [first]


def _title(text: str) -> str:
    return f"<title>{html.escape(text)}</title>" if text else ""
