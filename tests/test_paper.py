"""`python -m penex.paper`: what penex reproduce and penex tune do, without their libraries."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penex import cli
from penex.lab.records import Record
from penex.lab.tasks.runs import Run
from penex.lab.training.session import Silent
from penex.paper.__main__ import main
from penex.paper.reproduction import reproduce
from penex.paper.request import Request
from penex.paper.standins import write_stand_ins

ABSENT = ("tyro", "rich", "jinja2", "matplotlib", "scipy", "sklearn", "optuna")
BLOCKER = f"""
import sys

class Blocker:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""
SMALL = ["--losses", "ce", "penex:alpha=0.1", "--seeds", "2", "--epochs", "1", "--train-size", "40"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("official")
    write_stand_ins(folder)
    return folder


def small_records(folder: Path) -> list[Record]:
    return [Record(path.parent) for path in sorted(folder.glob("*/*/seed-*/done.json"))]


def test_trains_where_only_torch_numpy_and_pillow_are(tmp_path: Path) -> None:
    """Progress in plain lines; what needs more is left out with a sentence."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "penex.paper", "table1", "--smoke", "--task", "pathmnist",
         "--losses", "ce", "penex"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "pathmnist: 4 of 4 runs to train" in done.stderr
    assert "[4/4] pathmnist penex n=40 seed 1: accuracy" in done.stderr
    assert "The tables are left out: they need scipy" in done.stdout.splitlines()[-1]


def test_the_small_form_is_a_whole_table(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["table1", "--task", "pathmnist", "--data", str(data), *SMALL]
    main([*words, "--out", str(tmp_path / "runs"), "--slim", str(tmp_path / "slim")])
    small = small_records(tmp_path / "slim" / "pathmnist")
    assert len(small) == 4
    for record in small:
        assert record.has("scores.npz") == record.folder.name.endswith("seed-0")
        assert not record.has("predictions.npz")
    listing = json.loads((tmp_path / "slim" / "pathmnist" / "comparison.json").read_text())
    assert len(listing["runs"]) == 4
    assert listing["command"] == (
        "python -m penex.paper table1 --task pathmnist --data FOLDER --losses ce penex:alpha=0.1 "
        "--seeds 2 --epochs 1 --train-size 40 --out FOLDER --slim FOLDER"
    )
    table = capsys.readouterr().out.partition("\nIn ")[0]
    cli.main(["reproduce", "table1", "--task", "pathmnist", "--read-only", *SMALL, "--out",
              str(tmp_path / "slim")])  # fmt: skip
    assert capsys.readouterr().out.partition("\nIn ")[0] == table
    # What is there already is kept as well.
    main([*words, "--out", str(tmp_path / "runs"), "--slim", str(tmp_path / "again")])
    assert len(small_records(tmp_path / "again" / "pathmnist")) == 4
    assert "to train" not in capsys.readouterr().err


def test_the_small_form_is_written_as_runs_finish(data: Path, tmp_path: Path) -> None:
    class Impatient(Silent):
        def done(self, run: Run, record: Record, reused: bool) -> None:
            if run.label == "penex":
                raise KeyboardInterrupt

    request = Request(
        "table1", "", lambda total: Impatient(), task=("cifar10_noisy",), losses=("ce", "penex"),
        seeds=1, epochs=1, train_size=40, noise_kind="resample", data=data, out=tmp_path / "runs",
        slim=tmp_path / "slim", device="cpu", pack="off",
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        reproduce(request)
    (record,) = small_records(tmp_path / "slim" / "cifar10_noisy_resample")
    config = record.config()
    assert (config["loss"]["name"], config["label_noise"]["kind"]) == ("ce", "resample")


def test_a_study_stops_in_time_goes_on_and_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    words = ["tune", "digits", "--loss", "penex", "--trials", "3", "--batch", "3", "--epochs", "2",
             "--train-size", "40", "--out", str(tmp_path / "runs"), "--slim",
             str(tmp_path / "slim")]  # fmt: skip
    main([*words, "--minutes", "1e-9"])
    assert "Stopped in time. To go on: python -m penex.paper tune digits" in capsys.readouterr().err
    main(words)
    assert "PENEX: best alpha" in capsys.readouterr().out
    journal = "digits/studies.journal"
    assert (tmp_path / "slim" / journal).read_bytes() == (tmp_path / "runs" / journal).read_bytes()
    assert len(small_records(tmp_path / "slim" / "digits")) == 2
    assert len(small_records(tmp_path / "runs" / "digits")) == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("table2", "invalid choice: 'table2'"),
        ("table1 --noise-kind foo", "invalid choice: 'foo'"),
        ("table1 --task cifar10 --noise-kind resample", "--noise-kind is for --task cifar10_noisy"),
        ("table1 --task cifar10 --data nowhere", "CIFAR-10 is not in nowhere"),
        ("table1 --slim runs --out ./runs", "--slim must be another folder than --out"),
        ("table1 --losses ce --tuned", "Choose one of --tuned, --authors and --losses"),
        ("rho --losses ce", "--losses are for table1, fair, resnet and imagenet; this is rho"),
        ("tune digits", "Say what to tune"),
        ("tune digits --loss ce", "The loss ce has no parameter to tune"),
        ("tune digits --all --data nowhere", "'digits' or --data, not both"),
        ("tune cifar10 --all --data nowhere --out OUT", "CIFAR-10 is not in nowhere"),
        ("tune digits --all --trials 0", "A study needs from 1 to"),
        ("tune digits --all --minutes 0", "--minutes must be a number above 0"),
        ("tune digits --all --slim runs", "--slim must be another folder than --out"),
    ],
)
def test_one_sentence_and_exit_code_2(
    words: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.replace("OUT", str(tmp_path)).split())
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("plain", "typed"), [("table1", "reproduce"), ("tune", "tune")])
def test_both_commands_have_the_same_options(
    plain: str, typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the plain parser takes, the typed one takes."""
    found = []
    for command, name in ((main, plain), (cli.main, typed)):
        with pytest.raises(SystemExit):
            command([name, "--help"])
        found.append(set(re.findall(r"--[a-z-]+", capsys.readouterr().out)))
    assert len(found[0]) > 10
    assert found[0] <= found[1]
