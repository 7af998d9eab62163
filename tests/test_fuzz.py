"""The fuzz campaign, in short: its cases find nothing, can be repeated, and do find what is wrong.

`python -m benchmarks.fuzz` is the long form.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.fuzz import campaign
from benchmarks.fuzz.commands import penex
from benchmarks.fuzz.data import Data
from benchmarks.fuzz.kills import Kills
from benchmarks.fuzz.losses import Losses
from benchmarks.fuzz.mutations import damage
from benchmarks.fuzz.records import Records

from penex import penalty
from penex.lab import records
from penex.lab.records import reading
from penex.report import results

ROOT = Path(__file__).parents[1]


def found(
    make: Callable[[Path], campaign.Kind], folder: Path, cases: int, seed: int = 0
) -> list[str]:
    said: list[str] = []
    tally = campaign.run({"kind": make}, folder, seed, cases=cases, say=said.append)
    assert sum(tally.endings.values()) == cases
    return said


def test_losses(tmp_path: Path) -> None:
    assert found(Losses, tmp_path, 80) == []


def test_damaged_records(tmp_path: Path) -> None:
    assert found(Records, tmp_path, 12) == []


def test_damaged_data(tmp_path: Path) -> None:
    assert found(Data, tmp_path, 25) == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_kills(tmp_path: Path) -> None:
    assert found(Kills, tmp_path, 2) == []


def test_a_wrong_loss_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of rho that is off by a hundredth."""
    right = penalty.updated_number

    def wrong(*arguments: object) -> float:
        return 1.01 * right(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(penalty, "updated_number", wrong)
    said = found(Losses, tmp_path, 150)
    assert any("silent difference" in line for line in said)
    assert any("--seed 0 --case kind:" in line for line in said)


@pytest.mark.slow
def test_a_record_that_nobody_checks_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (records, reading, results):  # found by the cases 13 and 21 of this seed
        monkeypatch.setattr(module, "is_as_sealed", lambda content: True)
    assert any("silent difference" in line for line in found(Records, tmp_path, 30, seed=3))


def test_a_case_is_a_function_of_its_number(tmp_path: Path) -> None:
    """Of kind, number and seed: the same bytes are changed in the same way, on any machine."""
    told = []
    for name in ("a", "b"):
        path = tmp_path / name / "some.json"
        path.parent.mkdir()
        path.write_text('{"a": [1, 2.5, "x"], "b": {"c": null}}')
        chance = campaign.chance_of(3, "records", 17)
        told.append((damage(path, chance), path.read_bytes() if path.is_file() else b""))
        shutil.rmtree(path.parent)
    assert told[0] == told[1]
    assert campaign.chance_of(3, "records", 18).random() != random.Random("3 records 17").random()


def test_a_command_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert penex("report", "nowhere").code == 2
    monkeypatch.setattr("penex.cli.main", lambda words: 1 / 0)
    with pytest.raises(campaign.Finding, match="ZeroDivisionError"):
        penex("report", "nowhere")


@pytest.mark.parametrize(
    "words", ["--case losses", pytest.param("--only nothing", marks=pytest.mark.slow)]
)
def test_a_wrong_word_is_one_sentence(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fuzz", *words.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert words.split()[1] in done.stderr.splitlines()[-1]
