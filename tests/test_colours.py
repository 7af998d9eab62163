"""A loss has one colour, in the registry, and every figure and page takes it from there."""

import dataclasses
import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from penex import registry
from penex.report import figures, page, series
from penex.report.drawing import Dot, Line, Panel
from penex.report.page.svg import svg

from made_rows import made, row

OWN = "my_losses:MyLoss"


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21, as WCAG defines it."""

    def light(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        red, green, blue = (
            x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dark + 0.05)


def test_every_loss_has_a_colour_of_its_own() -> None:
    own = [entry.colour for entry in registry.LOSSES.values()]
    assert all(own)
    assert len(set(own)) == len(own)


def test_a_users_loss_has_a_stable_colour_that_is_not_taken() -> None:
    taken = {entry.colour for entry in registry.LOSSES.values()}
    names = [f"module_{k}:Loss" for k in range(60)]
    found = {name: registry.colour(name) for name in names}
    assert found == {name: registry.colour(name) for name in reversed(names)}
    spare = set(found.values())
    assert len(spare) > 4
    assert spare.isdisjoint(taken)
    # Its colour has no other for a dark page: it must be seen on both (1.4.11 asks for 3).
    papers = ("#ffffff", "#16181b")
    assert min(contrast(colour, paper) for colour in spare for paper in papers) >= 3


def test_a_users_loss_may_bring_its_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LOSSES", dict(registry.LOSSES))
    entry = dataclasses.replace(registry.find("focal"), name="mine", colour="#123abc")
    registry.register(entry)
    assert registry.colour("mine") == "#123abc"
    with pytest.raises(ValueError, match="#RRGGBB"):
        dataclasses.replace(entry, colour="red;} body {display: none")


@pytest.mark.parametrize("name", ["penex", "ce_zloss", OWN])
def test_figures_and_pages_draw_a_loss_in_its_colour(name: str) -> None:
    panel = Panel("x", (0, 1), (0, 1), marks=[Line([(0, 0), (1, 1)], name), Dot((0, 0), name)])
    axis = Figure().subplots()
    figures.draw(axis, panel)
    assert {line.get_color() for line in axis.lines} == {registry.colour(name)}
    drawn = set(re.findall(r"(?:stroke|fill):([^\"]+)\"", svg(panel)))
    assert len(drawn) == 1
    inside = drawn.pop()
    if variable := re.fullmatch(r"var\((.+)\)", inside):
        style = page.build(made(row(name, [0.9])))
        inside = re.findall(rf"{variable[1]}:(#\w+);", style)[0]
    assert inside == registry.colour(name)


def keys(text: str) -> list[str]:
    """How the lines of a legend or a table look: colour and dashes."""
    return re.findall(r'class="key"[^>]*><path (.*?) d=', text)


def test_variants_of_a_loss_can_be_told_apart_everywhere() -> None:
    """Twelve of them: in the legend, in the table and in figures, by colour and dashes at once."""
    labels = ["penex", *(f"penex:alpha=0.{k}" for k in range(1, 12))]
    rows = [dataclasses.replace(row(name, [0.9, 0.8]), loss="penex") for name in labels]
    found = made(row("ce", [0.9, 0.8]), *rows)
    text = page.build(found)
    table = text[text.index('<section id="table"') : text.index('<section id="calibration"')]
    assert len(set(keys(table))) == len(keys(table)) == 13
    looks = {
        (figures.colour(series.ink_of(found, one)), series.dash_of(found, one))
        for one in found.rows
    }
    assert len(looks) == 13
    # The first three, which most comparisons have at most, differ in colour alone, too.
    assert len({figures.colour(series.ink_of(found, one)) for one in rows[:3]}) == 3


def test_two_comparisons_on_a_page_share_their_colours() -> None:
    plain = dataclasses.replace(row("penex", [0.9, 0.8]), loss="penex")
    other = dataclasses.replace(row("penex:rho=1e-06", [0.9, 0.8]), loss="penex")
    text = page.build(made(plain), made(other))
    assert len(set(keys(text))) == 2


def test_what_is_no_loss_is_grey() -> None:
    axis = Figure().subplots()
    figures.draw(axis, Panel("x", (0, 1), (0, 1), marks=[Line([(0, 0), (1, 1)], "muted")]))
    assert axis.lines[0].get_color() == "#7F7F7F"


def test_the_legend_of_a_page_has_the_colour_of_a_users_loss() -> None:
    text = page.build(made(row(OWN, [0.9, 0.8]), row("ce", [0.8, 0.7])))
    assert text.count(f"stroke:{registry.colour(OWN)}") >= 1


def test_reports_know_no_loss_by_its_name() -> None:
    """A loss that comes later must look like the others everywhere."""
    names = "|".join(name for name in registry.LOSSES if name != "brier")  # a metric, too
    folder = Path(series.__file__).parent
    code = {path: path.read_text() for path in folder.rglob("*.py")}
    found = [
        (path.name, line)
        for path, text in code.items()
        for line in re.sub(r'r?""".*?"""', "", text, flags=re.S).splitlines()
        if re.search(rf"[\"']({names})[\"']", line) and "svg.hashsalt" not in line
    ]
    assert found == []
