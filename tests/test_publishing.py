"""What a report says can be published, printed and opened, whatever users call their things."""

import csv
import io
import json
import platform
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from penex.lab.ground.sentences import visible
from penex.lab.tasks import own
from penex.lab.training import Place, compare
from penex.report import page, plain, results, tables, terminal
from penex.report.results import Results

ESCAPE = "\x1b[2Jred\x9b31m\u202eon"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny comparison of own data, below a folder of someone."""
    home = tmp_path_factory.mktemp("someone")
    x = np.random.default_rng(0).integers(0, 255, (40, 9, 9), dtype=np.uint8)
    names = np.array([f"=cat{ESCAPE}", "@dog"])
    np.savez(home / "=photos.npz", x=x, y=np.arange(40) % 2, class_names=names)
    task, _ = own.own(home / "=photos.npz")
    what = compare.Comparison(task, ("ce", "penex"), 1, (2,), {"epochs": 1})
    command = f"penex compare --data {home / '=photos.npz'} --out={home / 'runs'} --seeds 1"
    compare.compare(what, Place(home / "runs"), command=command)
    return home / "runs" / task.name


@pytest.fixture
def loaded(trained: Path, tmp_path: Path) -> Results:
    return results.load(Path(shutil.copytree(trained, tmp_path / trained.name)))


def printed(found: Results) -> str:
    buffer = io.StringIO()
    terminal.show(found, buffer)
    return buffer.getvalue()


def test_nothing_tells_where_it_was_made(loaded: Results, trained: Path) -> None:
    """The page with all that is in it, and the tables: no folder, user or host."""
    next(loaded.folder.glob("ce/*/seed-0/config.json")).write_text("{}")  # said with its path
    found = results.load(loaded.folder)
    home = trained.parents[1]
    secrets = [str(home), home.name, str(loaded.folder), platform.node()]
    for show in (printed, tables.markdown, tables.latex, tables.as_csv, page.build):
        text = re.sub(r"data:image[^\"]*", "", show(found))
        assert [secret for secret in secrets if re.search(rf"\b{re.escape(secret)}\b", text)] == []
        assert not re.search(r"(?<![\w.<:/])/(home|root|tmp|Users|var|work)/", text)
    assert found.command == "penex compare --data =photos.npz --out=runs --seeds 1"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("/home/me/photos/", "photos/"),
        ("'/home/me/my photos'", "'my photos'"),
        ("--data=/home/me/photos", "--data=photos"),
        ("../../me/photos", "photos"),
        ("~/photos", "photos"),
        (r"'C:\Users\me\photos'", "photos"),
        ("photos/2024", "photos/2024"),
        ("postgresql://me@host.local/penex", "postgresql://..."),
        ("sqlite:////home/me/x.db", "sqlite://..."),
        ("penex:alpha=0.1", "penex:alpha=0.1"),
        ("https://example.org/x.zip", "https://example.org/x.zip"),
    ],
)
def test_a_command_without_its_folders(word: str, expected: str) -> None:
    assert plain.publishable(f"penex compare {word}") == f"penex compare {expected}"


def test_a_path_below_the_working_folder_is_seen_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plain.place(f"{tmp_path}/a/photos/") == "a/photos/"


def renamed(found: Results, name: str) -> Results:
    """The same comparison with a task and losses of this name."""
    listing = json.loads((found.folder / "comparison.json").read_text())
    del listing["seal"]  # it is edited on purpose
    listing["task"] = name
    listing["command"] += f" {name}"
    for run in listing["runs"]:
        run["label"] = f"{run['loss']}:{name}"
    return results.load(found.folder, listing)


def test_no_escape_sequence_reaches_a_terminal_or_a_table(loaded: Results) -> None:
    found = renamed(loaded, ESCAPE)
    for text in (
        printed(found),
        tables.markdown(found),
        tables.latex(found),
        tables.as_csv(found),
        page.build(found),
    ):
        assert all(c.isprintable() or c == "\n" for c in text)
        assert r"\x1b[2Jred\x9b31m\u202eon" in text or "textbackslash" in text or text in ("", "\n")


@pytest.mark.parametrize("name", ["[/x]", "[bold]x", "[link=file:///x]y"])
def test_a_name_is_no_markup(loaded: Results, name: str) -> None:
    assert name in printed(renamed(loaded, name))


@pytest.mark.parametrize("name", ['=HYPERLINK("x")', "+1", "-1", "@x", " =1", "\t=1", "\n=1"])
def test_a_name_is_no_formula(loaded: Results, name: str) -> None:
    """In a task's name; and what is a number stays one."""
    lines = list(csv.DictReader(io.StringIO(tables.as_csv(renamed(loaded, name)))))
    assert lines
    for line in lines:
        shown = line["task"].lstrip()
        assert not shown.startswith(("=", "+", "-", "@"))
        assert visible(name).strip() in shown
        assert float(line["seed"]) == 0
        assert float(line["value"]) >= 0


def test_one_is_singular(loaded: Results) -> None:
    """One seed, one epoch, one training example."""
    listing = json.loads((loaded.folder / "comparison.json").read_text())
    del listing["seal"]  # it is edited on purpose
    for run in listing["runs"]:
        run["train_size"] = 1
    found = results.load(loaded.folder, listing)
    for text in (printed(found), tables.markdown(found), tables.latex(found), page.build(found)):
        plain_text = re.sub(r"<script.*?</script>|<[^>]*>", " ", text, flags=re.DOTALL)
        assert re.findall(r"(?<![\w.,])1 (?:training )?[a-z]+s\b", plain_text) == []
    assert "1 training example, 1 seed" in tables.markdown(found)
