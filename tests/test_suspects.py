"""penex suspects and penex suggest: what they write, print and refuse."""

import csv
import functools
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from command_line import run, sentence
from penex import cli
from penex.cli import suggestion
from penex.cli.parsing import call_of
from penex.lab.data import Collection, Examples
from penex.lab.records.folds import HeldOut
from penex.report import suspects

from pictures import write_class

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FAST = ("--epochs", 1, "--folds", 2)


def found(names: tuple[str, ...] = (), inputs: torch.Tensor | None = None) -> HeldOut:
    """Six examples of two classes; the third is given as b and surely is a."""
    p = torch.tensor([0.9, 0.8, 0.95, 0.3, 0.1, 0.2], dtype=torch.float64)
    given = torch.tensor([0, 0, 1, 1, 1, 1])
    inputs = torch.zeros(6, 2) if inputs is None else inputs
    pool = Collection(Examples(inputs, given, names=names), ("a", "b"))
    return HeldOut(torch.stack([p, 1 - p], 1), given, given, torch.arange(6) % 2, pool)


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_most_suspicious_comes_first() -> None:
    rows = suspects.rows(found(tuple(f"{k}.png" for k in range(6))))
    assert [row["number"] for row in rows][:2] == [2, 3]
    first = rows[0]
    assert (first["where"], first["given"], first["predicted"]) == ("2.png", "b", "a")
    assert first["probability"] == pytest.approx(0.95)
    assert first["score"] == pytest.approx(0.05)
    assert [row["number"] for row in rows if row["suspected"]] == [2]
    assert "before" not in first


def test_no_name_is_a_formula_and_no_page_is_for_numbers(tmp_path: Path) -> None:
    (tmp_path / suspects.PAGE).write_text("of other data")
    written = suspects.write(tmp_path, "mine", found(("=1+1",) * 6), 3, "penex suspects")
    assert written == [tmp_path / suspects.TABLE]
    assert not (tmp_path / suspects.PAGE).exists()
    assert {line["where"] for line in lines_of(tmp_path / suspects.TABLE)} == {"'=1+1"}


def test_names_are_only_text_on_the_page() -> None:
    images = torch.randint(256, (6, 3, 8, 8), dtype=torch.uint8)
    page = suspects.page("mine", found(("<b>",) * 6, images), 3, "penex suspects --data /a/b/c")
    assert page.count("<img ") == 3
    assert "&lt;b&gt;" in page
    assert "/a/b" not in page


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt install chromium)")
def test_the_page_fits_a_phone(tmp_path: Path) -> None:
    """With names longer than it is wide, too; axe-core finds nothing serious."""
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    images = torch.randint(256, (6, 3, 8, 8), dtype=torch.uint8)
    names = tuple(f"cats/{'very_long_' * 9}{k}.png" for k in range(6))
    suspects.write(tmp_path, "mine", found(names, images), 3, "penex suspects")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 390, "height": 844})
        view.goto((tmp_path / suspects.PAGE).as_uri())
        assert view.evaluate("document.documentElement.scrollWidth") <= 390
        violations = Axe().run(view).response["violations"]
        assert [v["id"] for v in violations if v["impact"] in ("serious", "critical")] == []
        browser.close()


def clean_but_overlapping(n: int) -> HeldOut:
    """Right labels of which few are positive, and the probabilities that they were drawn with."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    p = (1.5 * x - 2.0).sigmoid()
    given = (torch.rand(n, generator=generator, dtype=torch.float64) < p).long()
    pool = Collection(Examples(torch.zeros(n, 2), given), ("a", "b"))
    return HeldOut(torch.stack([1 - p, p], 1), given, given, torch.arange(n) % 5, pool)


@pytest.mark.parametrize(("n", "way"), [(4000, "sure"), (30, "disagreement")])
def test_a_share_is_said_with_how_it_was_found(n: int, way: str) -> None:
    """Confident learning takes what is hard for wrong, of clean and uneven classes that overlap."""
    clean = clean_but_overlapping(n)
    assert clean.wrong_share.way == way
    said = suspects.estimate(clean)
    first = float(re.findall(r"([0-9.]+)%", said)[0]) / 100
    assert first == pytest.approx(clean.wrong_share.share, abs=5e-4)
    assert ("upper bound" in said) is (way == "disagreement")


def test_what_is_suggested_follows_the_estimate() -> None:
    clean = clean_but_overlapping(4000)
    for rule, frozen in ((suggestion.RULES[0], False), (suggestion.FROZEN_RULES[0], True)):
        losses = f"To try first: {' or '.join(rule.losses)}."
        assert losses in suggestion.text(clean, [], frozen=frozen)


def test_confident_learning_stands_where_models_do_not_err() -> None:
    some = found()
    assert some.wrong_share.way == "confident"
    assert some.wrong_share.share == pytest.approx(some.disagreement)
    assert "confident learning" in suspects.estimate(some)


@pytest.mark.parametrize(
    ("share", "place"),
    [(0.0, 0), (0.03, 1), (0.15, 2), (1.0, 2)],
)
def test_each_share_has_the_rule_of_its_stretch(share: float, place: int) -> None:
    assert suggestion.rule_of(share) == suggestion.RULES[place]


def photos(root: Path) -> Path:
    for label, name in enumerate(("cats", "dogs")):
        write_class(root / "photos" / name, label, 8)
    return root / "photos"


def test_photos_are_named_by_their_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = photos(tmp_path), tmp_path / "out"
    run("suspects", data, *FAST, "--top", 3, "--out", out)
    lines = lines_of(out / "photos" / suspects.TABLE)
    files = {str(path.relative_to(data)) for path in data.glob("*/*")}
    assert {line["where"] for line in lines} == files
    assert all(line["where"].startswith(line["given"]) for line in lines)
    assert [float(line["score"]) for line in lines] == sorted(
        float(line["score"]) for line in lines
    )
    page = (out / "photos" / suspects.PAGE).read_text()
    assert page.count("<img ") == 3
    assert lines[0]["where"] in capsys.readouterr().out


def test_lines_of_a_table_are_named_and_its_test_is_of_its_own_making(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("x,y\n" + "".join(f"{k % 2}.{k},{'ab'[k % 2]}\n" for k in range(40)))
    options = ("--label-column", "y", "--label-noise", 0.2, "--out", tmp_path / "out")
    run("suspects", "--data", table, *FAST, *options)
    lines = lines_of(tmp_path / "out" / "table" / suspects.TABLE)
    assert {line["where"] for line in lines} == {f"line {k}" for k in range(2, 42)}
    assert {line["before"] for line in lines} == {"a", "b"}
    assert any(line["before"] != line["given"] for line in lines)
    capsys.readouterr()
    run("suggest", "--data", table, *FAST, *options)
    command = re.search(r"believe it: penex (compare .*)", capsys.readouterr().out)
    assert command is not None
    call = call_of(cli.COMMANDS, shlex.split(command[1]))
    assert isinstance(call, functools.partial)
    assert call.keywords["judged"].select == "best"
    assert not [loss for loss in call.keywords["losses"] if "rho" in loss]


def test_suggest_trains_nothing_that_suspects_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = photos(tmp_path), tmp_path / "out"
    run("suspects", data, *FAST, "--out", out)
    records = {path: path.stat().st_mtime_ns for path in out.rglob("done.json")}
    capsys.readouterr()
    run("suggest", data, *FAST, "--out", out)
    said = capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in out.rglob("done.json")} == records
    command = re.search(r"believe it: penex (compare .*)", said)
    assert command is not None
    words = shlex.split(command[1])
    assert words[:3] == ["compare", "--data", str(data)]
    call = call_of(cli.COMMANDS, words)  # what is suggested can be asked for
    assert isinstance(call, functools.partial)
    assert {"ce", "label_smoothing", "gce"} <= set(call.keywords["losses"])
    assert call.keywords["kept"].out == out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["suspects", "digit"], "There is no task 'digit'. Did you mean 'digits'?"),
        (["suspects", "--folds", "1"], "at least 2 folds"),
        (["suspects", "--top", "0"], "--top must be at least 1; got 0."),
        (["suspects", "--seed", "-1"], "A seed must be at least 0"),
        (["suggest", "--loss", "focl"], "There is no loss 'focl'. Did you mean 'focal'?"),
    ],
)
def test_a_wrong_word_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(*words, "--out", tmp_path / "out", code=2)
    assert said in sentence(capsys)
    assert not list(tmp_path.rglob("done.json"))
