"""The page in a real browser: it shows the records, works, is accessible, and never breaks."""

import html
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penex import cli
from penex.lab import records
from penex.lab.records import Record
from penex.lab.records.best import best_run
from penex.lab.records.scores import scores_of, slim
from penex.metrics import METRICS
from penex.report import figures, leads, page, results, series, standing, tables, ways
from penex.report.drawing import Dot, Line, Mark, Panel, with_few_seeds
from penex.report.page import tuning
from penex.report.page.svg import nice_ticks, svg
from penex.report.studies import Study, Trial, sentence

import made_rows

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
browser_test = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt install chromium)")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real comparison: two sizes, a loss that diverges, one with arguments."""
    out = tmp_path_factory.mktemp("page")
    cli.main(
        ["compare", "--losses", "ce", "penex", "penex:alpha=0.3", "ex:alpha=1000", "--seeds", "3",
         "--epochs", "4", "--train-size", "40", "120", "--out", str(out)]
    )  # fmt: skip
    return out / "digits"


@pytest.fixture
def copied(compared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compared, tmp_path / "digits"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def opened(browser: Any, path: Path, **options: Any) -> tuple[Any, list[str]]:
    """The page, and everything that went to the console or was asked of a network."""
    view = browser.new_page(**options)
    said: list[str] = []
    view.on("console", lambda message: said.append(message.text))
    view.on("pageerror", lambda error: said.append(str(error)))
    view.on("request", lambda r: said.append(r.url) if r.url.startswith("http") else None)
    view.goto(path.as_uri())
    return view, said


# In the browser.


@browser_test
def test_every_section_is_there_and_nothing_complains(browser: Any, compared: Path) -> None:
    view, said = opened(browser, compared / "page.html")
    ids = view.eval_on_selector_all("main section", "all => all.map(s => s.id)")
    assert ids == [
        "result", "table", "sizes", "curves", "calibration", "margins", "rho", "examples", "leads",
        "ways", "setup", "home",
    ]  # fmt: skip
    links = view.eval_on_selector_all("nav a", "all => all.map(a => a.getAttribute('href'))")
    assert links == [f"#{name}" for name in ids]
    assert said == []
    assert view.title() == "Which loss wins on digits?"
    view.close()


@browser_test
def test_sorting_works_with_mouse_and_keyboard(browser: Any, compared: Path) -> None:
    view, _ = opened(browser, compared / "page.html")
    table = view.locator("table.sortable").first
    names = "rows => rows.map(r => r.cells[0].innerText.trim())"

    def order() -> list[str]:
        found: list[str] = table.locator("tbody tr").evaluate_all(names)
        return found

    values = "rows => rows.map(r => parseFloat(r.cells[2].dataset.value))"
    before = order()
    table.locator("thead button").nth(2).click()
    up = [v for v in table.locator("tbody tr").evaluate_all(values) if v is not None]
    assert up == sorted(up)
    assert order()[-1].startswith("EX")  # what has no number comes last
    assert table.locator("thead th").nth(2).get_attribute("aria-sort") == "ascending"
    table.locator("thead button").nth(2).focus()
    view.keyboard.press("Enter")
    assert table.locator("thead th").nth(2).get_attribute("aria-sort") == "descending"
    down = [v for v in table.locator("tbody tr").evaluate_all(values) if v is not None]
    assert down == sorted(down, reverse=True)
    table.locator("thead button").nth(0).click()
    assert order() == before
    view.close()


@browser_test
def test_switching_metrics_and_sizes_works(browser: Any, compared: Path) -> None:
    view, _ = opened(browser, compared / "page.html")

    def shown() -> list[list[str]]:
        found: list[list[str]] = view.eval_on_selector_all(
            ".switched",
            "all => all.filter(f => !f.hidden).map(f => [f.dataset.metric, f.dataset.size])",
        )
        return found

    assert shown() == [["accuracy", "120"]]
    view.get_by_role("radio", name="Brier").check()
    assert shown() == [["brier", "120"]]
    view.get_by_role("radio", name="40", exact=True).check()
    assert shown() == [["brier", "40"]]
    view.close()


@browser_test
def test_pointing_at_a_curve_shows_the_records_values(browser: Any, compared: Path) -> None:
    view, _ = opened(browser, compared / "page.html")
    chart = view.locator('.switched[data-metric="accuracy"][data-size="120"] svg')
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    view.mouse.move(box["x"] + box["width"] - 15, box["y"] + box["height"] / 2)
    tip = view.locator("#tip")
    assert tip.is_visible()
    lines = tip.inner_text().splitlines()
    assert lines[0] == "epoch 4"
    row = next(r for r in results.load(compared).at(120) if r.label == "ce")
    last = [run.history[-1]["validation"]["accuracy"] for run in row.records.values()]
    assert lines[1].split()[0] == "CE"
    assert float(lines[1].split()[1]) == pytest.approx(np.mean(last), rel=1e-4)
    view.mouse.move(5, 5)
    assert not tip.is_visible()
    view.close()


@browser_test
@pytest.mark.parametrize("width", [390, 1280])
def test_the_pointer_shows_what_is_drawn_under_it(browser: Any, tmp_path: Path, width: int) -> None:
    """At every epoch of a long curve, on an axis whose long numbers take more room than usual."""
    epochs = range(1, 101)
    lines = [
        Line([(k, 2 + k / 1000) for k in epochs], "penex", name="PENEX"),
        Line([(k, 1 + k / 1000) for k in epochs if k < 40], "ex", name="EX"),  # it diverged
    ]
    panel = Panel("x", (1, 100), (2.3037, 2.30374), hover="epoch", marks=list(lines))
    context = {"version": "", "title": "", "asked": "", "command": "", "heads": [], "blocks": []}
    text = page.render("frame.html", context).replace('<main id="main">', svg(panel))
    (tmp_path / "page.html").write_text(text)
    view, said = opened(browser, tmp_path / "page.html", viewport={"width": width, "height": 900})
    chart, tip = view.locator("svg"), view.locator("#tip")
    box = chart.bounding_box()
    scale = box["width"] / 420
    points = chart.locator("polyline").first.get_attribute("points").split()
    for epoch in (1, 2, 3, 50, 98, 99, 100):
        x = float(points[epoch - 1].split(",")[0])
        view.mouse.move(box["x"] + x * scale, box["y"] + box["height"] / 2)
        head, *values = tip.inner_text().splitlines()
        assert head == f"epoch {epoch}"
        other = f"{1 + epoch / 1000:g}" if epoch < 40 else "–"
        assert values == [f"PENEX  {2 + epoch / 1000:g}", f"EX  {other}"]
        cursor = chart.locator(".cursor").get_attribute("d")
        assert float(re.split("[M ]", cursor)[1]) == pytest.approx(x, abs=0.06)
    assert said == []
    view.close()


def serious(view: Any) -> list[str]:
    """What axe-core finds that is serious, contrast included."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(view, options={"resultTypes": ["violations"]}).response["violations"]
    return [v["id"] for v in found if v["impact"] in ("serious", "critical")]


# Rows of panels with an empty end, and tables whose last columns are cut without a word.
ROWS = """() => [...document.querySelectorAll(".charts")].flatMap(box => {
    const rows = new Map();
    [...box.children].forEach(one => {
        const place = one.getBoundingClientRect();
        const top = Math.round(place.top);
        rows.set(top, Math.max(rows.get(top) || 0, place.right));
    });
    const end = box.getBoundingClientRect().right;
    return [...rows.values()].filter(right => right < end - 2);
})"""
CUT = """() => [...document.querySelectorAll(".scroll")]
    .map(box => [box.scrollWidth > box.clientWidth + 1, box.previousElementSibling.hidden])
    .filter(([wide, silent]) => wide === silent)"""


@browser_test
@pytest.mark.parametrize(
    ("width", "scheme"), [(390, "light"), (390, "dark"), (820, "light"), (1280, "dark")]
)
def test_it_fits_and_is_accessible(browser: Any, compared: Path, width: int, scheme: str) -> None:
    """No horizontal scroll, no half-empty row, no column that is cut in silence, at any width."""
    size = {"width": width, "height": 844}
    view, said = opened(browser, compared / "page.html", viewport=size, color_scheme=scheme)
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert view.evaluate(ROWS) == []
    assert view.evaluate(CUT) == []
    first = view.locator("#table .scroll").first
    assert first.evaluate("box => box.scrollWidth <= box.clientWidth + 1") or width < 400
    assert (serious(view), said) == ([], [])
    view.close()


@browser_test
@pytest.mark.parametrize("width", [390, 1280])
def test_the_answer_is_the_first_thing_on_the_screen(
    browser: Any, compared: Path, width: int
) -> None:
    """One sentence and one picture before everything else, the same on a phone."""
    size = {"width": width, "height": 900}
    view, _ = opened(browser, compared / "page.html", viewport=size)
    found = results.load(compared)
    assert view.locator(".headline").inner_text() == standing.headline(found)
    assert view.locator(".picture svg.rows").count() == len(standing.METRICS_FIRST)
    assert view.locator(".picture svg").first.bounding_box()["y"] < 450
    names = view.locator(".picture svg").first.locator("text").all_text_contents()
    assert {"CE", "PENEX", "PENEX (alpha=0.3)"} <= set(names)
    view.close()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two studies."""
    out = tmp_path_factory.mktemp("study")
    cli.main(
        ["tune", "--loss", "penex", "label_smoothing", "--trials", "6", "--batch", "6", "--epochs",
         "3", "--train-size", "40", "--out", str(out)]
    )  # fmt: skip
    return out / "digits" / "tuning.html"


@browser_test
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_the_page_of_a_study(browser: Any, study: Path, width: int, scheme: str) -> None:
    size = {"width": width, "height": 844}
    view, said = opened(browser, study, viewport=size, color_scheme=scheme)
    assert said == []
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert (view.evaluate(ROWS), view.evaluate(CUT), serious(view)) == ([], [], [])
    assert view.locator(".picture svg.chart").count() == 2
    assert view.locator("main svg.chart").count() == 3 + 2 * 6
    rows = view.locator("#penex tbody tr")
    assert rows.count() == 6
    view.locator("#penex th button", has_text="cross-entropy").click()
    column = [float(c.split("\t")[3]) for c in rows.all_inner_texts()]
    assert column == sorted(column) or column == sorted(column, reverse=True)
    view.close()


@browser_test
def test_the_page_of_the_papers_table(browser: Any, tmp_path: Path) -> None:
    from penex.paper import table1

    found = results.load(Path(__file__).parents[1] / "results" / "cifar10")
    table1.write(tmp_path, [found], "penex reproduce table1")
    size = {"width": 390, "height": 844}
    view, said = opened(browser, tmp_path / "table1.html", viewport=size)
    assert said == []
    assert view.evaluate("document.documentElement.scrollWidth") <= 390
    assert view.locator("tbody tr").count() == 7
    assert serious(view) == []
    view.close()


@browser_test
@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_the_page_of_the_whole_paper(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    """Of our records: it fits, is accessible, and has a verdict for every claim."""
    from axe_playwright_python.sync_playwright import Axe

    for name in ("cifar10.zip", "bench-h200.json"):
        shutil.copy(Path(__file__).parents[1] / "results" / name, tmp_path)
    cli.main(["reproduce", "all", "--read-only", "--only", "table1", "rho", "resnet", "costs",
              "--out", str(tmp_path)])  # fmt: skip
    size = {"width": width, "height": 844}
    view, said = opened(browser, tmp_path / "paper.html", viewport=size, color_scheme=scheme)
    assert said == []
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    claims, verdicts = view.locator(".claims > li"), view.locator(".claims .verdict")
    assert claims.count() == verdicts.count() > 20
    tally = view.locator(".tally li").all_inner_texts()
    assert tally[0] == f"{claims.count()} claims:"
    assert sum(int(text.split()[-1]) for text in tally[1:]) == claims.count()
    found_by_axe = Axe().run(view).response["violations"]
    assert [v["id"] for v in found_by_axe if v["impact"] in ("serious", "critical")] == []
    view.close()


@browser_test
def test_it_works_without_scripts(browser: Any, compared: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    view = context.new_page()
    view.goto((compared / "page.html").as_uri())
    assert view.locator(".switched").count() == 2 * len(METRICS)
    assert view.locator(".switched").nth(3).is_visible()
    context.close()


@browser_test
def test_nothing_moves_while_it_loads(browser: Any, compared: Path) -> None:
    view, _ = opened(browser, compared / "page.html")
    shift = view.evaluate(
        """() => new Promise(done => {
            let sum = 0;
            new PerformanceObserver(list => list.getEntries().forEach(e => { sum += e.value; }))
                .observe({type: "layout-shift", buffered: true});
            requestAnimationFrame(() => requestAnimationFrame(() => done(sum)));
        })"""
    )
    assert shift < 0.1
    view.close()


# Without a browser.


def cells(text: str) -> list[list[str]]:
    """The rows of the page's tables as plain text, the spreads left out."""
    rows = re.findall(r"<tr><th scope=\"row\".*?</tr>", text, flags=re.DOTALL)
    found = []
    for row in rows:
        parts = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.DOTALL)
        plain = [re.sub(r"<small>.*?</small>|<[^>]*>", "", part) for part in parts]
        found.append([html.unescape(part).strip() for part in plain])
    return found


def _without_interval(row: list[str]) -> list[str]:
    return [cell for cell in row if not cell.startswith("[")]


def test_the_numbers_are_the_records(compared: Path) -> None:
    """To the printed digit, from done.json itself."""
    table, _, rest = (compared / "page.html").read_text().partition('<section id="leads"')
    rest, _, judged = rest.partition('<section id="ways"')
    listing = json.loads((compared / "comparison.json").read_text())["runs"]
    expected = []
    for size in (40, 120):
        for label in ("ce", "penex", "penex:alpha=0.3", "ex:alpha=1000"):
            runs = [r for r in listing if (r["label"], r["train_size"]) == (label, size)]
            done = [json.loads((compared / r["folder"] / "done.json").read_text()) for r in runs]
            row = []
            for metric in METRICS.values():
                if done[0]["status"] == "diverged":
                    row.append("diverged")
                    continue
                values = [d["test"][metric.name] for d in done]
                row.append(f"{np.mean(values):.4f} ± {np.std(values, ddof=1):.4f}")
            expected.append(row)
    assert [row[1:] for row in cells(table)] == expected
    loaded = results.load(compared)
    against = [line for size in (40, 120) for line in leads.lines(loaded.at(size))]
    assert against
    assert cells(rest) == [line[2:] for line in against]
    every = [line for size in (40, 120) for line in ways.lines(loaded.at(size))]
    assert cells(judged) == [[cell.replace("**", "") for cell in line] for line in every]


def test_what_came_out_is_said_with_its_caveats(compared: Path) -> None:
    text = html.unescape((compared / "page.html").read_text())
    assert "EX (alpha=1000) diverged with all of its seeds: it has no numbers" in text
    assert "3 seeds make wide intervals" in text
    assert "a lone bold number is a hint, no proof" in text
    assert "even a perfect model scores 0.1 or so" in text
    assert "penex compare --losses ce penex" in text


def test_it_needs_nothing_from_elsewhere(compared: Path) -> None:
    text = (compared / "page.html").read_text()
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert text.count("data:image/png;base64,") >= 1
    assert len(text) < 5_000_000


@pytest.mark.slow
def test_building_it_again_gives_the_same_tables(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = cells((copied / "page.html").read_text())
    (copied / "page.html").unlink()
    cli.main(["report", str(copied.parent)])
    assert cells((copied / "page.html").read_text()) == before
    assert "page.html, comparison.md" in capsys.readouterr().out
    cli.main(["report", str(copied), "--to", str(copied / "elsewhere.html")])
    assert (copied / "elsewhere.html").exists()


def test_building_it_again_gives_the_same_page(compared: Path) -> None:
    """Byte for byte, whatever this process has drawn before."""
    assert page.build(results.load(compared)) == page.build(results.load(compared))


def test_records_without_logits_make_a_page(compared: Path, tmp_path: Path) -> None:
    """What cannot be drawn is left out and said; what can be drawn is the same."""
    target = tmp_path / "digits"
    target.mkdir()
    (target / "comparison.json").write_text((compared / "comparison.json").read_text())
    for run in json.loads((compared / "comparison.json").read_text())["runs"]:
        one = Record(compared / run["folder"])
        slim(one, target / run["folder"], scores=run["seed"] == 0)
    text = page.build(results.load(target))
    # All but the interval over test sets: fewer seeds have the scores that make it narrower.
    few, all_ = cells(text), cells((compared / "page.html").read_text())
    assert [_without_interval(row) for row in few] == [_without_interval(row) for row in all_]
    assert "margins cannot be drawn" in text
    assert text.count("accuracy against confidence") == 6
    whole = next(compared.glob("penex/*/seed-0"))
    small = target / whole.relative_to(compared)
    first, second = scores_of(Record(whole)), scores_of(Record(small))
    assert first is not None
    assert second is not None
    for name, array in first.items():
        assert np.allclose(array, second[name], rtol=2e-3, atol=2e-3)
    size = sum(p.stat().st_size for p in small.rglob("*"))
    assert size < 0.1 * sum(p.stat().st_size for p in whole.rglob("*"))
    Record(small).verify()


@pytest.mark.slow
def test_what_was_done_to_the_labels_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "compare --losses ce --seeds 2 --epochs 1 --train-size 50 --label-noise 0.3"
    cli.main([*command.split(), "--class-weights", "balanced", "--out", str(tmp_path)])
    words = "30 % of the training labels were made wrong on purpose. Classes were weighted"
    assert words in capsys.readouterr().out.replace("\n", " ")
    folder = tmp_path / "digits"
    assert words in (folder / "comparison.md").read_text()
    text = (folder / "page.html").read_text()
    assert text.index(words) < text.index("<table")
    assert "labels changed with seed 0 and 50 examples" in text


def test_two_comparisons_on_one_page(
    copied: Path, compared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["report", str(compared), str(copied)])
    text = (compared / "comparison-of-two.html").read_text()
    (compared / "comparison-of-two.html").unlink()
    assert "The two compared" in text
    assert "+0.0000" in text
    with pytest.raises(SystemExit):
        cli.main(["report", str(compared), str(copied), str(copied)])


NASTY = """<script>alert("x")</script> & 'quotes' "and more" </style>"""


def test_names_cannot_break_out(tmp_path: Path) -> None:
    """Class names and labels with HTML in them are text."""
    x = np.random.default_rng(0).integers(0, 255, (60, 9, 9), dtype=np.uint8)
    names = np.array([NASTY, "b</li>"])
    np.savez(tmp_path / "set.npz", x=x, y=np.arange(60) % 2, class_names=names)
    cli.main(
        ["compare", "--data", str(tmp_path / "set.npz"), "--losses", "ce", "penex", "focal",
         "--seeds", "1", "--epochs", "1", "--out", str(tmp_path / "out")]
    )  # fmt: skip
    folder = tmp_path / "out" / "set"
    listing = json.loads((folder / "comparison.json").read_text())
    del listing["seal"]  # it is edited on purpose
    listing["command"] = f"penex {NASTY}"
    for run in listing["runs"]:
        if run["loss"] == "focal":
            run["label"] = f"focal:{NASTY}"
    text = page.build(results.load(folder, listing))
    assert "<script>alert" not in text
    assert "</style> &" not in text
    assert html.escape("<script>alert") in text
    assert text.count("</script>") == 1


@pytest.mark.parametrize("kind", ["incomplete", "one", "nan", "diverged", "empty"])
def test_odd_records_make_a_page(copied: Path, kind: str) -> None:
    listing = json.loads((copied / "comparison.json").read_text())
    del listing["seal"]  # it is edited on purpose
    if kind == "incomplete":
        for run in listing["runs"]:
            if run["seed"] == 2:
                (copied / run["folder"] / "done.json").unlink()
    elif kind == "one":
        listing["runs"] = listing["runs"][:1]
    elif kind == "nan":
        for run in listing["runs"]:
            path = copied / run["folder"] / "done.json"
            done = json.loads(path.read_text())
            if done["status"] == "completed":
                done["test"]["cross_entropy"] = None
                path.write_text(json.dumps({**done, "seal": records.sealing.seal(done)}))
    elif kind == "diverged":
        listing["runs"] = [run for run in listing["runs"] if run["loss"] == "ex"]
    else:
        for run in listing["runs"]:
            shutil.rmtree(copied / run["folder"])
    found = results.load(copied, listing)
    text = page.build(found)
    assert text.rstrip().endswith("</html>")
    known = r"data:image[^\"]*|<script>.*?</script>|gradient norm nan"
    assert "nan" not in re.sub(known, "", text, flags=re.DOTALL)
    words = {
        "incomplete": "8 runs are not done yet",
        "one": "One seed shows no spread",
        "nan": "not finite",
        "diverged": "diverged",
        "empty": "24 runs are not done yet",
    }
    assert words[kind] in text
    assert tables.latex(found).count("\\begin{tabular}") == len(found.train_sizes)


def test_a_damaged_example_file_is_no_reason_to_fail(copied: Path) -> None:
    (copied / "examples.npz").write_bytes(b"x")
    assert 'id="examples"' not in page.build(results.load(copied))


def test_ticks_are_round_and_inside() -> None:
    assert nice_ticks(0.86, 0.981) == [0.86, 0.88, 0.9, 0.92, 0.94, 0.96, 0.98]
    assert nice_ticks(3.0, 3.0) == [3.0]
    assert all(1 <= tick <= 60 for tick in nice_ticks(1, 60))


def test_lines_end_at_the_axes_and_dots_are_whole() -> None:
    """A line that runs out of the panel is cut by the rectangle that the axes span."""
    marks: list[Mark] = [Line([(0, -5), (1, 9)], "ce"), Dot((1, 1), "ce"), Dot((1, 2), "ce")]
    text = svg(Panel("x", (0, 1), (0, 1), marks=marks))
    clip = re.search(r'<rect x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"/></clipPath>', text)
    axis = re.search(r'class="axis" d="M(.*?) (.*?)V(.*?)H(.*?)"', text)
    assert clip is not None
    assert axis is not None
    left, top, wide, high = map(float, clip.groups())
    assert (left, top, top + high, left + wide) == pytest.approx([*map(float, axis.groups())])
    group, _, after = text.partition("</g>")
    assert group.count("<polyline") == 1
    assert after.count("<circle") == 1  # what lies outside is not drawn


def test_no_more_thin_lines_than_can_be_told_apart() -> None:
    """Three a loss: the seeds that end lowest, midway and highest; every mean stays."""
    ends = (5, 1, 4, 2, 3)
    thin = [Line([(0, 0), (1, end)], ink, "seed") for ink in ("ce", "penex~1") for end in ends]
    panel = Panel("x", (0, 1), (0, 5), marks=[*thin, Line([(0, 0), (1, 3)], "ce", name="CE")])
    left = [mark for mark in with_few_seeds(panel).marks if isinstance(mark, Line)]
    shown = [(line.ink, line.points[-1][1]) for line in left if line.kind == "seed"]
    assert shown == [(ink, end) for ink in ("ce", "penex~1") for end in (5, 1, 3)]
    assert sum(line.kind == "mean" for line in left) == 1


def test_a_dot_of_calibration_shows_how_many_examples_it_stands_for() -> None:
    """Its area above that of the smallest dot is their share."""
    confidence = np.repeat([0.3, 0.6, 0.9], [1, 9, 90])
    scores = {"confidence": confidence, "prediction": np.zeros(100), "target": np.zeros(100)}
    panel = series.reliability(made_rows.row("penex", [0.9]), "penex~1", [scores])
    dots = [mark for mark in panel.marks if isinstance(mark, Dot)]
    radii = np.array([dot.size for dot in dots]) - series.SMALLEST
    assert radii**2 / radii.max() ** 2 == pytest.approx([1 / 90, 9 / 90, 1])
    assert [dot.text.split(", ")[-1] for dot in dots] == ["1 example", "9 examples", "90 examples"]
    assert {dot.ink for dot in dots} == {"penex~1"}


def test_the_way_home(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best run's commands, and what was compared before, from wherever the page is built."""
    kept = copied / "comparisons" / "0123abcd"
    kept.mkdir(parents=True)
    listing = json.loads((copied / "comparison.json").read_text())
    del listing["seal"]  # it is edited on purpose
    earlier = {**listing, "runs": listing["runs"][:4], "command": "penex compare --seeds 1"}
    (kept / "comparison.json").write_text(json.dumps(earlier))
    (kept / "page.html").write_text("")
    for name, content in {"same": json.dumps(listing), "damaged": "{"}.items():
        (kept.parent / name).mkdir()
        (kept.parent / name / "comparison.json").write_text(content)
    best = best_run(copied).folder
    cases = [(tmp_path, "digits/", True), (compared_elsewhere(tmp_path), "", False)]
    for folder, prefix, beside in cases:
        monkeypatch.chdir(folder)
        target = copied if beside else folder
        text = html.unescape(page.write(target / "page.html", results.load(copied)).read_text())
        run = f"{prefix}{best.relative_to(copied)}"
        assert f"<code>penex predict {run} FILES</code>" in text
        assert f"<code>penex export {run} --onnx digits.onnx</code>" in text
        assert "<code>penex compare --seeds 1</code>" in text
        assert "<code>penex report digits/comparisons/0123abcd</code>" in text
        assert ('<a href="comparisons/0123abcd/page.html">' in text) is beside
        assert text.count("Compared before") == 1  # neither the same one nor a damaged one
        assert str(tmp_path) not in text
    back = html.unescape(page.build(results.load(kept)))
    assert "<code>penex report digits</code>" in back


def compared_elsewhere(folder: Path) -> Path:
    """A working folder that the records do not lie below."""
    place = folder / "elsewhere"
    place.mkdir()
    return place


def test_a_page_of_one_study_has_no_row_of_lone_bars(tmp_path: Path) -> None:
    """It opens with the best value and where it lies in the range; the rest is not said twice."""
    run = {"recipe": {"epochs": 3}, "train_size": 40}
    trials = [
        Trial(k, {"alpha": x}, dict.fromkeys(METRICS, y), {}, "", Record(tmp_path), "complete")
        for k, (x, y) in enumerate([(0.2, 0.5), (0.4, 0.3), (0.9, 0.6)])
    ]
    one, other = (
        Study(name, {"alpha": (0.0, 1.0)}, set(), {"seed": 0, "batch": 3, "run": run}, trials)
        for name in ("penex", "penex:rho=1e-06")
    )
    text = tuning.build("digits", [one], "penex tune")
    assert tuning.headline([one]).startswith("PENEX does best with alpha 0.4:")
    assert text.index(tuning.headline([one])) < text.index("<svg") < text.index("<main")
    assert 'class="bar"' not in text
    titles = re.findall("<figcaption>(.*?)</figcaption>", text)
    assert len(titles) == len(set(titles)) == 5
    alone = replace(one, trials=trials[:1])
    assert sentence(alone).endswith("; 1 trial.")
    assert tuning.headline([alone]).endswith("the lowest of 1 trial.")
    both = tuning.build("digits", [one, other], "penex tune")
    inks = set(re.findall(r'class="bar"[^>]*style="fill:(.*?)"', both))
    assert len(inks) == 2  # one loss, two studies


def test_a_line_breaks_where_a_value_is_missing() -> None:
    points = [(0, 0.1), (1, float("nan")), (2, 0.2), (3, 0.3)]
    panel = Panel("x", (0, 3), (0, 1), marks=[Line(points, "ce")])
    assert svg(panel).count("<polyline") == 2


def test_every_file_is_read_once(copied: Path) -> None:
    """For the table, the page and the figures together."""
    opened: Counter[str] = Counter()
    listening = True

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if listening and event == "open" and str(arguments[0]).startswith(str(copied)):
            opened[str(arguments[0])] += arguments[1] in ("r", "rb")

    sys.addaudithook(listen)  # it cannot be taken away, only told to be quiet
    try:
        found = results.load(copied)
        page.build(found)
        tables.markdown(found)
        figures.curves(found)
    finally:
        listening = False
    read = {name: count for name, count in opened.items() if count}
    assert sum(name.endswith("metrics.jsonl") for name in read) == 24
    assert sum(name.endswith("predictions.npz") for name in read) == 18
    # An array file is read once more with its done.json, which vouches for it.
    assert {n: c for n, c in read.items() if c > 1 and not n.endswith("done.json")} == {}


def test_a_page_and_a_figure_show_the_same_numbers(compared: Path) -> None:
    found = results.load(compared)
    panel = series.of(found).curves[120, "cross_entropy"]
    expected = [mark.points for mark in panel.marks if isinstance(mark, Line)]
    axis = figures.curves(found).axes[5]  # the second size's second metric
    drawn = [list(zip(*line.get_data(), strict=True)) for line in axis.lines]
    assert np.allclose(np.array(drawn), np.array(expected))
    assert (axis.get_xlim(), axis.get_ylim()) == (panel.x, panel.y)
    assert svg(panel).count("<polyline") == len(expected)
