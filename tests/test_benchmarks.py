"""The benchmarks' commands: a fault of the user's is a sentence. What they measure is no test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import linear, linear_record

from penex.lab.ground.errors import LabError

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("loss --sizes abc", "A size is ROWSxCLASSES"),
        ("workers --workers 0", "must be at least 1"),
        pytest.param("loss --dtype int3", "invalid choice: 'int3'", marks=pytest.mark.slow),
        pytest.param("training --packs 0", "must be at least 1", marks=pytest.mark.slow),
    ],
)
def test_one_sentence_and_exit_code_2(words: str, sentence: str) -> None:
    name, *rest = words.split()
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *rest],
        cwd=ROOT,
        capture_output=True,
        text=True,
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
    with pytest.raises(LabError, match="measured on a GPU only"):
        linear_record.plot(record, tmp_path / "memory.png")
    for row in record["rows"]:
        row["peak"] = 2.0**30
    linear_record.plot(record, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").stat().st_size > 10_000


def test_a_size_of_a_last_layer_has_three_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, sentence in ((["--sizes", "4x4"], "got '4x4'"), ([], "name smaller --sizes")):
        monkeypatch.setattr(sys, "argv", ["linear", *words, "--device", "cpu"])
        with pytest.raises(LabError, match=sentence):
            linear.main()
