"""The benchmarks' commands: a fault of the user's is a sentence. What they measure is no test."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("loss --sizes abc", "A size is ROWSxCLASSES"),
        ("loss --dtype int3", "invalid choice: 'int3'"),
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
