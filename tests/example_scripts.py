"""Running a script of examples/ in this process, where torch is imported already."""

import re
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"


def accuracies(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[float]:
    """The accuracies that a script prints."""
    monkeypatch.setattr(sys, "argv", [f"{script}.py"])
    runpy.run_path(str(FOLDER / f"{script}.py"), run_name="__main__")
    return [float(number) for number in re.findall(r"accuracy (\d\.\d+)", capsys.readouterr().out)]
