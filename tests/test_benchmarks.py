"""The benchmarks' commands: a fault of the user's is a sentence. What they measure is no test."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import tables

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("loss --sizes abc", "A size is ROWSxCLASSES"),
        ("loss --dtype int3", "invalid choice: 'int3'"),
        ("studies digits --losses ce", "The loss ce has no parameter to tune"),
        ("studies cifar10 --data nowhere", "CIFAR-10 is not in nowhere"),
        ("studies digits --trials 0", "must be at least 1"),
        ("tables cifar10 --data nowhere", "CIFAR-10 is not in nowhere"),
        ("tables cifar10 --data nowhere --noise-kind foo", "invalid choice: 'foo'"),
        ("tables cifar10 --data nowhere --pack 0", "must be at least 1"),
        ("training --packs 0", "must be at least 1"),
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


def test_a_command_is_recorded_without_the_folders_of_one_machine() -> None:
    given = "cifar10 --data /somewhere/x --losses penex:alpha=0.1 --slim results --seeds 3"
    assert tables.command(given.split()) == (
        "python -m benchmarks.tables cifar10 --data FOLDER --losses penex:alpha=0.1 "
        "--slim FOLDER --seeds 3"
    )
