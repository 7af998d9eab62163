"""A user's own tables: what is read, what is left out and said, what is refused."""

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from penex.lab.data.read import read

from own_files import GOOD, refuses, run, table, write_times


def test_a_table_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    rows = ["width;height;kind"]
    for k in range(90):
        x, y = random.normal(k % 3, 0.3, 2)
        rows.append(f"{x};{1000 * y};{'abc'[k % 3]}")
    path = tmp_path / "flowers 2.csv"
    path.write_text("\n".join(rows), encoding="utf-8-sig")
    run("compare", "--data", path, "--label-column", "kind", "--losses", "ce", "--seeds", 1,
        "--epochs", 30, "--out", tmp_path / "out")  # fmt: skip
    assert "flowers_2, 58 training examples" in capsys.readouterr().out
    place = next((tmp_path / "out").glob("flowers_2/ce/*/seed-0"))
    assert json.loads((place / "done.json").read_text())["test"]["accuracy"] > 0.8
    card = json.loads((place / "model.json").read_text())
    assert card["model"] == "mlp"
    assert card["preprocessing"]["columns"] == ["width", "height"]
    assert card["preprocessing"]["std"][1] > 500


def test_a_row_number_is_no_feature(tmp_path: Path) -> None:
    lines = [",a,kind", *(f"{k},{k % 7},{k % 2}" for k in range(20))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    collection = read(tmp_path / "t.csv", label_column="kind")
    assert collection.facts["columns"] == ["a"]
    assert "without a name" in collection.notes[0]


@pytest.mark.parametrize("pack", ["auto", "off"])
def test_columns_with_a_large_offset_are_not_rounded_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: str
) -> None:
    path = write_times(tmp_path / "times.csv")
    options = ["--data", path, "--label-column", "species", "--out", tmp_path / "out"]
    run("compare", *options, "--seeds", 2, "--losses", "ce", "--pack", pack)
    places = sorted((tmp_path / "out").glob("times/ce/*/seed-*"))
    for place in places:
        assert json.loads((place / "done.json").read_text())["test"]["accuracy"] == 1.0
    capsys.readouterr()
    run("predict", places[0], path)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert all(row["class"] == f"c{k % 3}" for k, row in enumerate(rows))
    run("data", "check", path, "--label-column", "species")
    checked = capsys.readouterr().out
    assert "exact copies" not in checked
    assert f"penex compare --data {path} --label-column species would train" in checked


def test_other_names_of_columns_are_other_data(tmp_path: Path) -> None:
    """Or a model would be used again whose columns are called otherwise."""
    sums = set()
    for header in ("a,b,label", "b,a,label"):
        path = tmp_path / "same.csv"
        path.write_text(header + "\n" + GOOD)
        sums.add(read(path, label_column="label").facts["sha256"])
    assert len(sums) == 2


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ('"a; m; k; z; y; u",b,label\n' + GOOD, ["a; m; k; z; y; u", "b"]),
        ("a;b, c;label\n" + GOOD.replace(",", ";"), ["a", "b, c"]),
        ("a\tb\tlabel\n" + GOOD.replace(",", "\t"), ["a", "b"]),
    ],
)
def test_the_delimiter_is_the_one_that_fits(tmp_path: Path, text: str, columns: list[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert read(path, label_column="label").facts["columns"] == columns


def test_a_path_that_is_no_text_is_compared(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xe9"))
    folder.mkdir()
    path = write_times(folder / os.fsdecode(b"t\xe9.csv"), 30)
    run("compare", "--data", path, "--label-column", "species", "--seeds", 1, "--epochs", 1,
        "--losses", "ce", "--out", tmp_path / "out")  # fmt: skip
    (page,) = (tmp_path / "out").glob("*/page.html")
    assert r"b\udce9" in page.read_text()


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (table("a,b,label\n1,2,x\n"), ["--label-column", "lable"], "Did you mean 'label'?"),
        (table("a,b,label\n1,2,x\n"), [], "needs --label-column: which of a, b, label"),
        (table("a,b,label\n" + GOOD + "1,,no\n"), ["--label-column", "label"],
         "line 22, column 'b': the value is missing"),
        (table("a,b,label\n" + GOOD + "1,two,no\n"), ["--label-column", "label"],
         "line 22, column 'b': 'two' is no number"),
        (table("a,b,label\n" + GOOD + "1,2,\n"), ["--label-column", "label"],
         "the label is missing"),
        (table("a,b\n" + "1,0\n2,1\n" * 9 + "3,cat\n"), ["--label-column", "b"],
         "line 20, column 'b': the label 'cat' stands among whole numbers"),
        (table("a,b\n" + "".join(f"{k},v{k}\n" for k in range(9))), ["--label-column", "b"],
         "so it is no class"),
        (table("a,a,label\n1,2,x\n"), ["--label-column", "label"], "the column 'a' twice"),
        (table("a,label\n1,x,3\n"), ["--label-column", "label"], "line 2: 3 values for 2 columns"),
        (table("a,label\n"), ["--label-column", "label"], "needs a header and rows"),
        (table("label\nx\ny\n"), ["--label-column", "label"], "has no column besides"),
        (table("a,label\n1,x\n"), ["--label-column", "label", "--image-size", "16"],
         "is for image files"),
        (table("a,label\n" + "1e300,x\n2,y\n" * 5), ["--label-column", "label"],
         "'1e300' is not finite in float32"),
        (table("a,label\n" + '"1\n",x\n2,y\n' * 5 + ",x\n"), ["--label-column", "label"],
         "line 17, column 'a': the value is missing"),
    ],
)  # fmt: skip
def test_one_sentence_and_exit_code_2(
    make: Callable[[Path], Path],
    options: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refuses(make(tmp_path), options, words, tmp_path, capsys)
