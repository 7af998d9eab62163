"""The documentation site: what fills its pages in, a strict build, and a look with a browser."""

import doctest
import importlib.util
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
browser_test = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt install chromium)")
builds = pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None, reason="needs zensical: pip install '.[docs]'"
)


def builder() -> Any:
    """The script of `make docs`, as a module."""
    spec = importlib.util.spec_from_file_location("build", ROOT / "docs" / "theme" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = builder()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one page, and a file above docs/."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: small\nuse_directory_urls: false\nnav: [{Start: index.md}]\n"
    )
    (tmp_path / "TEXT.md").write_text(
        "# All\nfirst\n## One\nin [it](docs/index.md)\n```\n# no heading\n```\n## Two\nlast\n"
    )
    (tmp_path / "docs" / "index.md").write_text("# Hello\n")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    return tmp_path


def test_its_script_does_what_its_examples_say() -> None:
    assert doctest.testmod(build).failed == 0


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("TEXT.md#one", "in [it](../index.md)\n```\n# no heading\n```"),
        ("TEXT.md#two", "last"),
        ("TEXT.md#all", "first"),
    ],
)
def test_a_section_is_shown_without_its_heading(asked: str, shown: str, small: Path) -> None:
    assert build.filled(f"<!-- section: {asked} -->", "docs/a/b.md", small) == shown


def test_every_page_can_be_filled_in(tmp_path: Path) -> None:
    """What it shows of other files is there, and every link leads to a file."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if path.name != "commands.md":  # takes the commands themselves: a slow test has it
            page = path.relative_to(ROOT).as_posix()
            assert build.filled(path.read_text(), page, tmp_path).startswith("# "), page


def test_a_section_that_is_not_there_is_an_error(small: Path) -> None:
    with pytest.raises(build.BuildError, match="no section #three"):
        build.filled("<!-- section: TEXT.md#three -->", "docs/a.md", small)


def test_a_folder_that_holds_no_site_is_left_alone(small: Path) -> None:
    with pytest.raises(build.BuildError, match="holds no site"):
        build.build(small / "src")


def test_a_linked_file_comes_along(small: Path) -> None:
    (small / "code.py").write_text("1\n")
    assert build.filled("[c](../code.py)", "docs/a.md", small) == "[c](files/code.py)"
    assert (small / "docs" / "files" / "code.py").read_text() == "1\n"


def test_the_numbers_of_a_loss_are_those_of_the_fair_table(tmp_path: Path) -> None:
    shown = "<!-- numbers: GCE -->\nThe rows are elsewhere.\n\nMore."
    text = build.filled(shown, "docs/losses/gce.md", tmp_path)
    assert "elsewhere" not in text
    assert text.endswith("\n\nMore.")
    line = next(x for x in (ROOT / "docs" / "fair.md").read_text().splitlines() if "| GCE |" in x)
    cells = [cell.strip().replace(" ± ", "\u00a0±\u00a0") for cell in line.strip("|").split("|")]
    assert (
        f"|  | **GCE** | {cells[1]} | {cells[2]} | {cells[4]} | {cells[7]} | {cells[9]} |" in text
    )
    with pytest.raises(build.BuildError, match="no row"):
        build.filled("<!-- numbers: nonsense -->", "docs/losses/gce.md", tmp_path)


@pytest.mark.slow
@builds
@pytest.mark.parametrize(
    "fault",
    ["[a](nowhere.md)", "[a](index.md#nowhere)", "![a](nowhere.png)", "[a](../nowhere.txt)"],
)
def test_a_dead_link_stops_the_build_and_leaves_the_site(fault: str, small: Path) -> None:
    out = small / "out"
    out.mkdir()
    (out / "search.json").write_text("of the last build")
    (small / "docs" / "index.md").write_text(f"# Hello\n\n{fault}\n")
    with pytest.raises(build.BuildError, match="does not exist"):
        build.build(out)
    assert [path.name for path in out.iterdir()] == ["search.json"]


@pytest.mark.slow
@builds
def test_a_page_that_cannot_be_made_is_named(small: Path) -> None:
    text = (small / "mkdocs.yml").read_text()
    (small / "mkdocs.yml").write_text(f"{text}plugins: [mkdocstrings]\n")
    page = small / "docs" / "other.md"
    page.write_text("# Other\n")
    build.build(small / "out")
    page.write_text("# Other\n\n::: no.such.module\n")
    with pytest.raises(build.BuildError, match=r"No page was made of other\.md"):
        build.build(small / "out")
    assert "Other" in (small / "out" / "other.html").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: a warning would be an error."""
    out = tmp_path_factory.mktemp("site") / "site"
    build.build(out)
    return out


@pytest.mark.slow
@builds
def test_the_site_is_whole_and_asks_no_other_host(site: Path) -> None:
    """Every page, a search index for each, pictures with words, nothing that is not filled in."""
    found = json.loads((site / "search.json").read_text())["items"]
    indexed = {item["location"].partition("#")[0] for item in found}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        place = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        text = (site / place).read_text()
        assert place in indexed
        assert not re.search(r"<!-- (section|numbers|paper|commands)", text), place
        loaded = re.findall(
            r"<(?:link|script|img|iframe|source)\b[^>]*(?:src|href)=\"?([^\" >]+)", text
        )
        assert loaded
        assert not [link for link in loaded if re.match("(https?:)?//", link)], place
        assert all(re.search(r'alt="?[^" ]', image) for image in re.findall("<img[^>]*>", text)), (
            place
        )
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"url\([\"']?(https?:)?//|@import", styles)


@pytest.mark.slow
@builds
def test_the_reference_has_the_public_names_and_every_command(site: Path) -> None:
    import penex
    from penex import cli

    names = set(re.findall(r'id="(penex[\w.]*)"', "".join(
        path.read_text() for path in (site / "reference").glob("*.html")
    )))  # fmt: skip
    assert {f"penex.loss.{penex.PENEX.__name__}", "penex.functional.penex"} <= names
    assert {"penex.theory.margins", "penex.calibration.fit_temperature"} <= names
    commands = (site / "reference" / "commands.html").read_text()
    for command in cli.COMMANDS:
        assert f'id="penex-{command}"' in commands
    assert re.search(r"<li>\s*(<p>)?<code>--seeds N</code>: how many", commands)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.slow
@builds
@browser_test
@pytest.mark.parametrize(
    ("page", "scheme"),
    [
        ("index", "light"),
        ("index", "dark"),
        ("losses/penex", "dark"),
        ("reference/registry", "light"),
    ],
)
def test_a_page_is_for_everybody(page: str, scheme: str, site: Path, browser: Any) -> None:
    """Opened from the disk: nothing cut on a phone, a silent console, no serious finding of axe."""
    from axe_playwright_python.sync_playwright import Axe

    view = browser.new_page(viewport={"width": 390, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    view.on("console", lambda message: said.append(message.text))
    view.on("pageerror", lambda error: said.append(str(error)))
    view.on("request", lambda asked: said.append(asked.url) if "file:" not in asked.url else None)
    view.goto((site / f"{page}.html").as_uri())
    view.wait_for_load_state("load")
    view.wait_for_selector(".md-typeset h1")
    assert view.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found = Axe().run(view, options={"preload": False}).response["violations"]
    assert not [fault["id"] for fault in found if fault["impact"] in ("serious", "critical")]
    assert said == []
    view.close()


@pytest.mark.slow
@builds
@browser_test
def test_the_search_works_from_the_disk(site: Path, browser: Any) -> None:
    view = browser.new_page()
    view.goto((site / "index.html").as_uri())
    view.wait_for_selector(".md-typeset h1")
    view.keyboard.press("Control+k")
    view.keyboard.type("fit_temperature")
    view.get_by_text(re.compile(r"^\s*[1-9]\d* results?")).wait_for()
    view.close()
