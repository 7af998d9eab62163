"""The scripts a user can start from: they run and learn something."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from example_scripts import FOLDER, accuracies


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", ["plain_loop", "mixup", "segmentation", "noisy_labels", "sklearn_classifier"]
)
def test_an_example_learns(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = accuracies(script, monkeypatch, capsys)
    assert found
    assert min(found) > 0.75


@pytest.mark.slow
def test_ranks_have_one_rho() -> None:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(FOLDER / "ddp.py"), "--steps", "3",
    ]  # fmt: skip
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    first, second = re.findall(r"\d\.\d+", result.stdout)
    assert float(first) == float(second) > 0


@pytest.mark.slow
def test_every_loss_is_drawn_as_its_formula_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PENEX's pull is p^-alpha - p where sum_j exp f_j = 1, for either sign."""
    script = runpy.run_path(str(FOLDER / "loss_shapes.py"))
    for name, alpha in (("penex", 0.1), ("penex_negative", -0.3)):
        margins, value, pull = script["shape"](name, alpha=alpha)
        p = margins.exp() / (margins.exp() + 9)
        torch.testing.assert_close(value, (p**-alpha - 1) / alpha)
        torch.testing.assert_close(pull, p**-alpha - p)
    monkeypatch.setattr("sys.argv", ["loss_shapes.py", "--out", str(tmp_path)])
    script["main"]()
    drawn = {path.stem for path in tmp_path.iterdir()}
    assert drawn == {path.stem for path in (FOLDER.parent / "docs/images/losses").iterdir()}
    assert str(tmp_path) in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["loss_shapes.py", "--out", str(tmp_path / "no")])
    with pytest.raises(SystemExit, match="2"):
        script["main"]()
    assert "does not exist" in capsys.readouterr().err
