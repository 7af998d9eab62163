"""The benchmarks' commands: a fault of the user's is a sentence. What they measure is no test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmarks import linear, linear_record, many_tables, tables
from benchmarks import texts as many_texts

from penex.lab.ground.errors import LabError

from texts import sentences, write_encoder

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("loss --sizes abc", "A size is ROWSxCLASSES"),
        ("workers --workers 0", "must be at least 1"),
        ("many_tables --data nowhere", "a folder of .dat or .csv files; got nowhere"),
        pytest.param("loss --dtype int3", "invalid choice: 'int3'", marks=pytest.mark.slow),
        pytest.param("training --packs 0", "must be at least 1", marks=pytest.mark.slow),
        pytest.param("launches", "torch sees none here", marks=pytest.mark.slow),
    ],
)
def test_one_sentence_and_exit_code_2(words: str, sentence: str) -> None:
    name, *rest = words.split()
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *rest],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_the_record_of_a_last_layer_is_tabulated_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every way of ours runs, and is as near to float64 as the usual one; memory is invented."""
    written = tmp_path / "linear.json"
    words = ["linear", "--sizes", "16x8x300", "--seconds", "0.01", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [*words, "--write", str(written)])
    linear.main()
    record = json.loads(written.read_text())
    assert all("error" not in row for row in record["rows"])
    ours = {
        name: off for name, off in record["errors"].items() if name.startswith(linear_record.OURS)
    }
    assert len(ours) == 4  # its own chunks, and three others
    assert all(error < 1e-6 for off in ours.values() for error in off.values())
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| 16x8x300 |") for line in lines) == len(record["rows"])
    assert lines[-1].startswith("16x8x300: linear PENEX")
    linear_record.plot(record, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").stat().st_size > 10_000
    for row in record["rows"]:
        row["peak"] = None
    with pytest.raises(LabError, match="no memory to draw"):
        linear_record.plot(record, tmp_path / "memory.png")


def test_a_size_of_a_last_layer_has_three_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, sentence in ((["--sizes", "4x4"], "got '4x4'"), ([], "name smaller --sizes")):
        monkeypatch.setattr(sys, "argv", ["linear", *words, "--device", "cpu"])
        with pytest.raises(LabError, match=sentence):
            linear.main()


def test_memory_is_the_most_that_tensors_have_at_once() -> None:
    def call() -> None:
        first = torch.empty(1000)
        second = torch.empty(2000)
        del first, second
        torch.empty(2500)

    assert linear.peak(call, torch.device("cpu")) == 4 * 3000


def test_a_table_of_numbers_and_words(tmp_path: Path) -> None:
    rows = "1, red, b\n2.5, blue, a\n" * 2
    (path := tmp_path / "small.dat").write_text("@relation small\n" + rows)
    x, y = tables.columns(path)
    assert x.tolist() == [[1, 0, 1], [2.5, 1, 0]] * 2
    assert y.tolist() == ["b", "a"] * 2
    path.write_text("1,2,a\n1,b\n")
    with pytest.raises(LabError, match="is no table"):
        tables.columns(path)


def test_sets_of_texts_are_read_from_clones_at_their_commits(tmp_path: Path) -> None:
    """What is committed later is not read; a clone that lacks the commit is a sentence."""

    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        called = ["git", "-C", str(tmp_path / "some/one"), *identity, *words]
        return subprocess.run(called, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "some/one").mkdir(parents=True)
    git("init", "-q")
    file = tmp_path / "some/one/all.csv"
    file.write_text('a,"one, two",three\nb,four\n')
    git("add", ".")
    git("commit", "-qm", "first")
    source = many_texts.Source("some/one", git("rev-parse", "HEAD"), ("all.csv",), "table")
    file.write_text("c,five\n")
    git("commit", "-qam", "second")
    assert list(many_texts.read(source, tmp_path)) == [("a", "one, two three"), ("b", "four")]
    with pytest.raises(LabError, match=r"is to be a clone of some/one on GitHub\."):
        list(many_texts.read(source._replace(commit="0" * 40), tmp_path))
    assert len({source.paths for source in many_texts.SOURCES.values()}) == 12


def test_texts_are_little_data_as_tables_are(tmp_path: Path, own_cache: Path) -> None:
    """Each text once; rows are features; 300 are trained on where there are enough."""
    rows = [(label, text) for text, label in sentences(520)]
    many_texts.write([*rows, *rows[:9]], tmp_path / "many.csv")
    encoder = str(write_encoder(tmp_path / "encoder"))
    task = many_texts.task(tmp_path / "many.csv", tmp_path / "made", encoder)
    made = task.collect().train
    assert made.inputs.shape == (len({text for _, text in rows}), 16)
    assert made.inputs.dtype == torch.float32
    assert (task.train_size, round(task.val * len(made.inputs))) == (300, 100)


@pytest.mark.slow
def test_small_tables_are_compared_as_they_come_and_tuned(tmp_path: Path) -> None:
    """Twice: what was found is read. Places, leads and picture are of the same numbers."""
    (data := tmp_path / "data").mkdir()
    for name, size in (("few", 60), ("many", 520)):
        x = torch.randn(size, 3, generator=torch.Generator().manual_seed(0))
        y = (x[:, 0] > 0).long()
        lines = (f"{a:.3f},{b:.3f},{c:.3f},{k}" for (a, b, c), k in zip(x, y, strict=True))
        (data / f"{name}.dat").write_text("\n".join(lines))
    sizes = [tables.from_file(data / f"{n}.dat", tmp_path).train_size for n in ("few", "many")]
    assert sizes == [38, 300]
    what = many_tables.Study(tmp_path, seeds=1, trials=1)
    rows = many_tables.measured(data / "few.dat", 0.4, what)
    assert many_tables.measured(data / "few.dat", 0.4, what) == rows
    fewer = many_tables.measured(data / "few.dat", 0.4, what._replace(losses=("ce",), trials=0))
    assert [(row["way"], row["loss"]) for row in fewer] == [("as it comes", "ce")]
    record = {"rows": rows}
    found = {(row["way"], row["loss"]) for row in record["rows"]}
    assert found == {(way, loss) for way in many_tables.WAYS for loss in many_tables.LOSSES}
    seen = many_tables.means(record, 0.4, "tuned", "accuracy")
    places = many_tables.ranks(seen, high=True)
    assert sum(places.values()) == pytest.approx(sum(range(1, len(seen) + 1)))
    lead = many_tables.leads(seen, "ce")["penex"]
    assert lead.mean == seen["penex"][0] - seen["ce"][0]
    many_tables.plot(record, tmp_path / "tables.png")
    assert (tmp_path / "tables.png").stat().st_size > 10_000


def test_a_place_is_shared_by_equals() -> None:
    seen = {"a": {0: 0.9, 1: 0.5}, "b": {0: 0.8, 1: 0.5}, "c": {0: 0.7}}
    assert many_tables.ranks(seen, high=True) == {"a": 1, "b": 2, "c": 3}
    del seen["c"]
    assert many_tables.ranks(seen, high=True) == {"a": 1.25, "b": 1.75}
    assert many_tables.ranks(seen, high=False) == {"a": 1.75, "b": 1.25}
