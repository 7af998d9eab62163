"""The scripts a user can start from: they run and learn something."""

import os
import re
import subprocess
import sys

import pytest

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
