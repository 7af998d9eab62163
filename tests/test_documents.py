"""The documents: their Python runs, their commands exist, their links lead somewhere."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from penex import cli

ROOT = Path(__file__).parents[1]
WRITTEN = "reproduction.md"  # by `make claims`, from the records
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PAGES = (*DOCUMENTS, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md")))
LINKED = (*PAGES, ROOT / "results" / "README.md")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def named(paths: tuple[Path, ...]) -> list[object]:
    return [pytest.param(path, id=path.relative_to(ROOT).as_posix()) for path in paths]


def snippets(path: Path) -> str:
    """The Python of a page, each line where it stands, so that an error names its line."""
    text = path.read_text()
    kept = [""] * text.count("\n")
    for block in _FENCE.finditer(text):
        if block[1] == "python":
            start = text.count("\n", 0, block.start(2))
            lines = block[2].splitlines()
            kept[start : start + len(lines)] = lines
    return "\n".join(kept)


def own_photos() -> None:
    """What the pages about own data have by then: photos, new ones, and a trained model."""
    draw = np.random.default_rng(0)
    for name in ("photos/cats", "photos/dogs", "new"):
        Path(name).mkdir(parents=True)
        for number in range(6):
            pixels = draw.integers(256, size=(32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(f"{name}/{number}.jpg")
    cli.main(["train", "--data", "photos", "--loss", "penex", "--epochs", "1"])


@pytest.mark.parametrize("path", named(tuple(page for page in DOCUMENTS if snippets(page).strip())))
def test_the_python_of_a_page_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From top to bottom, as a reader would try it; a warning is an error."""
    monkeypatch.chdir(tmp_path)
    if path.name in ("prediction.md", "records.md"):
        own_photos()
    with torch.random.fork_rng():
        exec(compile(snippets(path), path, "exec"), {"__name__": "__main__"})


def test_every_field_of_a_record_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own_photos()
    (done,) = tmp_path.glob("runs/photos/*/*/seed-0/done.json")
    said = set(re.findall(r"`(\w+)`", (ROOT / "docs/reference/records.md").read_text()))
    for name in ("config.json", "metrics.jsonl", "model.json", "done.json"):
        lines = (done.parent / name).read_text()
        found = set(json.loads(lines.splitlines()[0] if name.endswith("l") else lines))
        assert found <= said, (name, found - said)


def test_the_first_pages_have_python() -> None:
    for name in ("README.md", "docs/start.md", "docs/training-loop.md", "docs/prediction.md"):
        assert snippets(ROOT / name).count("import") >= 2


def commands() -> dict[str, set[str]]:
    """The options that the pages give to each command, with the pages that do."""
    used: dict[str, set[str]] = {}
    for path in DOCUMENTS:
        text = "" if path.name == WRITTEN else path.read_text()
        blocks = [block[2] for block in _FENCE.finditer(text) if not block[1]]
        spoken = re.findall(r"`(penex [^`]*)`", text.replace("\n", " "))
        for line in [*spoken, *(line for block in blocks for line in block.splitlines())]:
            found = re.match(r"(?:torchrun .* -m )?penex ([a-z]+)(.*?)(?:\s#|$)", line)
            if found:
                options = re.findall(r"\s(--[a-z-]+)", found[2])
                used.setdefault(found[1], set()).update(options)
    return used


@pytest.mark.parametrize("command", sorted(commands()))
def test_the_commands_of_the_pages_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    missing = commands()[command] - set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert not missing


def anchors(path: Path) -> set[str]:
    """The places of a page that a link can name, as GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", path.read_text()), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower().strip()).replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("path", named(LINKED))
def test_links_lead_somewhere(path: Path) -> None:
    text = _FENCE.sub("", path.read_text())
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        file, _, place = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        assert not place or place in anchors(target), link


def test_every_page_is_in_the_navigation_and_every_picture_on_a_page() -> None:
    _, _, navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    listed = re.findall(r": (\S+\.md)$", navigation, flags=re.MULTILINE)
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in DOCUMENTS[1:]]
    assert sorted(listed) == sorted(pages)
    shown = " ".join(path.read_text() for path in DOCUMENTS)
    for picture in (ROOT / "docs" / "images").rglob("*.png"):
        place = picture.relative_to(ROOT / "docs").as_posix()
        assert re.search(rf"!\[[^]]+\]\((docs/|\.\./)?{place}\)|{place}\" alt=", shown), place


@pytest.mark.parametrize("path", named(tuple(page for page in PAGES if page.name != WRITTEN)))
def test_prose_has_lines_that_can_be_read(path: Path) -> None:
    for line in _FENCE.sub("", path.read_text()).splitlines():
        assert len(line) <= 400 or line.startswith("|"), line[:80]


def test_the_readme_is_short() -> None:
    """What does not fit belongs to a page under docs/."""
    text = (ROOT / "README.md").read_bytes()
    assert len(text) <= 10_000
    assert text.count(b"\n") <= 150
