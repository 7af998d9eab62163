"""Two processes that train one model end where one process ends, for every loss."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
from torch import Tensor

from penex import registry
from small_trees import write_tree

STREAMS = Path(__file__).with_name("stream_worker.py")
WORKER = Path(__file__).with_name("lab_worker.py")
ENVIRONMENT = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def apart(one: dict[str, Tensor], two: dict[str, Tensor], what: str) -> dict[str, float]:
    """How far the processes' tensors are from the one's, relative to its norm, by loss."""
    names = {loss: f"{what}.{loss}" for loss in registry.LOSSES}
    assert all(one[name].norm() > 0 for name in names.values())
    return {
        loss: ((one[name] - two[name]).norm() / one[name].norm()).item()
        for loss, name in names.items()
    }


@pytest.mark.slow
def test_two_processes_equal_one_with_every_loss(tmp_path: Path) -> None:
    """Twenty steps in float64, with dropout, clipping and batches too small for two; and in float32
    the first gradient.
    """
    for start in ([], TORCHRUN):
        line = [sys.executable, *start, str(WORKER), str(tmp_path), *registry.LOSSES]
        done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    one, two = (
        safetensors.torch.load_file(tmp_path / f"ranks-{ranks}.safetensors") for ranks in (1, 2)
    )
    assert {k: v for k, v in apart(one, two, "theta").items() if not v <= 1e-10} == {}
    assert {k: v for k, v in apart(one, two, "grad").items() if not v <= 1e-5} == {}


@pytest.mark.slow
def test_torchrun_trains_and_resumes_a_run(tmp_path: Path) -> None:
    """The command under torchrun: one record, written by one process, equal to one process's."""
    command = ["penex", "train", "digits", "--loss", "penex", "--train-size", "97"]
    command += ["--epochs", "3", "--dtype", "float64", "--save-seconds", "0", "--device", "cpu"]
    two = [sys.executable, *TORCHRUN, "-m", *command, "--out", str(tmp_path / "two")]
    one = [sys.executable, "-m", *command, "--out", str(tmp_path / "one")]
    texts = []
    for line in (two, two, one):
        done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        texts.append(done)
    assert texts[0].stdout.count("Record: ") == 1
    assert "1 of 1 run was there already" in texts[1].stderr
    numbers = [
        json.loads(next((tmp_path / name).glob("**/done.json")).read_text())["test"]
        for name in ("one", "two")
    ]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-6)


@pytest.mark.slow
def test_two_processes_train_on_files_as_one_does(tmp_path: Path) -> None:
    """Each decodes its own share of every micro-batch; some shares of the last ones are empty."""
    tree = write_tree(tmp_path / "tree")
    for name, start in (("one", []), ("two", TORCHRUN)):
        line = [sys.executable, *start, str(STREAMS), str(tree), str(tmp_path / name)]
        done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    one, two = (
        safetensors.torch.load_file(next((tmp_path / name).glob("**/seed-0/model.safetensors")))
        for name in ("one", "two")
    )
    for key, value in one.items():
        assert (value - two[key]).norm() <= 1e-10 * value.norm(), key
