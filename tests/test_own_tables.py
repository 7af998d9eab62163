"""A user's own tables: what is read, what is left out and said, what is refused."""

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from penex.lab.data import Collection
from penex.lab.data import table as tables
from penex.lab.data.observed import observations
from penex.lab.data.read import checksum, read
from penex.lab.ground.errors import LabError

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


@pytest.mark.slow
@pytest.mark.parametrize("pack", ["auto", pytest.param("off", marks=pytest.mark.slow)])
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
    assert r"t\udce9.csv" in page.read_text()


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
        (table("a,label\n" + "1_000,x\n2,y\n" * 5), ["--label-column", "label"],
         "'1_000' is no number"),
        (table("a,label\n" + "１,x\n2,y\n" * 5), ["--label-column", "label"], "is no number"),
        (table("a,label\n" + "1,x\n2,y\n" * 5 + "3,x|y\n"), ["--label-column", "label"],
         "line 12, column 'label': 'x|y' holds several labels"),
        (table("a,label\n" + "1,x\n2,y\n" * 5 + "3,\"['x', 'y']\"\n"), ["--label-column", "label"],
         "holds several labels"),
        (table("a,label\n" + "1,x\n2,y\n" * 5 + '3,"x'), ["--label-column", "label"],
         "unexpected end of data"),
        (table(""), ["--label-column", "label"], "it has 0 lines"),
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


def labelled(tmp_path: Path, labels: list[str]) -> Collection:
    rows = "".join(f"{k},{label}\n" for k, label in enumerate(labels))
    (tmp_path / "t.csv").write_text("a,label\n" + rows)
    return read(tmp_path / "t.csv", label_column="label")


def test_labels_are_names_unless_they_are_plain_numbers(tmp_path: Path) -> None:
    collection = labelled(tmp_path, ["01", "1", "+1"] * 6)
    assert set(collection.classes) == {"01", "1", "+1"}
    assert "as they are written: '01'" in collection.notes[0]
    months = [f"{k:02}" for k in range(1, 13)]
    assert labelled(tmp_path, months * 6).classes == tuple(months)
    assert labelled(tmp_path, ["10", "9", "-1"] * 6).classes == ("-1", "9", "10")
    large = str(10**30)
    assert set(labelled(tmp_path, [large, "2"] * 6).classes) == {large, "2"}


def test_numbers_of_one_value_are_told_as_nearly_alike(tmp_path: Path) -> None:
    collection = labelled(tmp_path, ["0", "0.0", "1", "1.0", "1.5"] * 6)
    said = [note for note in observations(collection) if "nearly alike" in note]
    assert ["'0' and '0.0'" in said[0], "'1' and '1.0'" in said[1]] == [True, True]
    assert len(said) == 2


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([str(k) for k in range(20)], False),
        ([str(k + 1) for k in range(20)], False),
        ([""] * 20, False),
        ([str(k + 2) for k in range(20)], True),
        ([str(19 - k) for k in range(20)], True),
    ],
)
def test_a_column_without_a_name_is_dropped_only_if_it_tells_nothing(
    tmp_path: Path, values: list[str], kept: bool
) -> None:
    lines = [",a,kind", *(f"{value},{k % 7},{k % 2}" for k, value in enumerate(values))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    collection = read(tmp_path / "t.csv", label_column="kind")
    assert collection.facts["columns"] == (["", "a"] if kept else ["a"])
    assert len(collection.notes) == 1


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_endings_quotes_and_a_mark_at_the_start(tmp_path: Path, ending: str) -> None:
    rows = ['"a ""x""",label', *(f'"{k}","c, {k % 2}"' for k in range(12)), "  ", ""]
    (tmp_path / "t.csv").write_bytes(("\ufeff" + ending.join(rows)).encode())
    collection = read(tmp_path / "t.csv", label_column="label")
    assert collection.facts["columns"] == ['a "x"']
    assert collection.classes == ("c, 0", "c, 1")
    assert len(collection.train.targets) == 12


def test_a_column_is_found_without_looking_through_all(tmp_path: Path) -> None:
    """The header is gone through once: it may be an iterator, and is never searched."""

    class Once(list[str]):
        def index(self, *_: object) -> int:
            pytest.fail("it searches the header")

    names = [f"c{k}" for k in range(50)]
    content = tables.Table(Once(names), [[str(k) for k in range(50)]] * 3, [2, 3, 4])
    chosen = names[::-1]
    found = tables.numbers(Path("t.csv"), content, chosen, {})
    assert found[0].tolist() == [float(k) for k in range(50)][::-1]
    assert tables._twice(iter(["a", "b", "a"])) == "a"
    assert tables._twice(iter(names)) is None


def cars(path: Path, lines: int = 60) -> Path:
    """Colour decides the class, weight nothing; a colour is missing now and then."""
    rows = ["colour,weight,kind"]
    for k in range(lines):
        colour = ("red", "blue", "?")[k % 3]
        rows.append(f"{colour},{k * 7 % 11},{'ab'[colour == 'red']}")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_words_become_columns_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cars(tmp_path / "cars.csv")
    collection = read(path, label_column="kind")
    assert collection.facts["words"] == {"colour": ["?", "blue", "red"]}
    assert collection.train.inputs[:3].tolist() == [[0, 0, 1, 0], [0, 1, 0, 7], [1, 0, 0, 3]]
    run("compare", "--data", path, "--label-column", "kind", "--losses", "ce", "--seeds", 1,
        "--epochs", 20, "--out", tmp_path / "out")  # fmt: skip
    (place,) = (tmp_path / "out").glob("cars/ce/*/seed-0")
    assert json.loads((place / "done.json").read_text())["test"]["accuracy"] == 1.0
    (tmp_path / "new.csv").write_text("weight,colour\n3,red\n3,blue\n")
    capsys.readouterr()
    run("predict", place, tmp_path / "new.csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["class"] for row in rows] == ["b", "a"]
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    run("export", place, "--onnx", tmp_path / "cars.onnx")
    facts = {fact.key: fact.value for fact in onnx.load(tmp_path / "cars.onnx").metadata_props}
    names = ["colour=?", "colour=blue", "colour=red", "weight"]
    assert json.loads(facts["columns"]) == names


def test_a_word_that_is_new_in_prediction_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cars(tmp_path / "cars.csv")
    run("train", "--data", path, "--label-column", "kind", "--loss", "ce", "--epochs", 1,
        "--out", tmp_path / "out")  # fmt: skip
    (place,) = (tmp_path / "out").glob("cars/ce/*/seed-0")
    (tmp_path / "new.csv").write_text("weight,colour\n3,pink\n")
    run("predict", place, tmp_path / "new.csv", code=2)
    said = capsys.readouterr().err
    assert "line 2, column 'colour': 'pink' is none of the 3 words" in said


def test_other_words_are_other_data(tmp_path: Path) -> None:
    first = read(cars(tmp_path / "cars.csv"), label_column="kind")
    text = (tmp_path / "cars.csv").read_text().replace("blue", "cyan")
    (tmp_path / "cars.csv").write_text(text)
    other = read(tmp_path / "cars.csv", label_column="kind")
    assert first.train.inputs.equal(other.train.inputs)
    assert checksum(first) != checksum(other)


def test_words_that_are_no_categories_are_refused(tmp_path: Path) -> None:
    rows = "".join(f"name{k},{k % 2}\n" for k in range(20))
    (tmp_path / "t.csv").write_text("a,label\n" + rows)
    with pytest.raises(LabError, match=r"20 different words in 20 lines.* --text-column '\w+'"):
        read(tmp_path / "t.csv", label_column="label")
