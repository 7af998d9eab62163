"""A network that is cut over processes ends where a whole one ends, killed in between or not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch

from penex import cli
from penex.lab.records import Record

WORKER = Path(__file__).with_name("shard_worker.py")
ENVIRONMENT = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def start(out: Path, way: str, *last: str) -> subprocess.CompletedProcess[str]:
    processes = TORCHRUN if way == "cut" else []
    line = [sys.executable, *processes, str(WORKER), str(out), way, *last]
    return subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)


def trained(out: Path, way: str) -> Record:
    done = start(out, way)
    assert done.returncode == 0, done.stderr
    [path] = out.glob("**/done.json")
    record = Record(path.parent)
    record.verify()
    return record


def difference(one: Record, other: Record) -> float:
    """The largest between two networks' numbers."""
    a, b = (safetensors.torch.load(record.content("model.safetensors")) for record in (one, other))
    assert a.keys() == b.keys()
    return max((a[name] - b[name]).abs().max().item() for name in a)


@pytest.mark.slow
def test_a_network_in_parts_is_trained_as_a_whole_one(tmp_path: Path) -> None:
    """With dropout, clipping, micro-batches, blocks computed twice, and a process without rows."""
    whole, cut = trained(tmp_path / "whole", "whole"), trained(tmp_path / "cut", "cut")
    assert whole.folder.relative_to(tmp_path / "whole") == cut.folder.relative_to(tmp_path / "cut")
    assert difference(whole, cut) <= 1e-10
    assert cut.environment()["processes"] == 2

    assert start(tmp_path / "killed", "cut", "3").returncode != 0
    [checkpoint] = (tmp_path / "killed").glob("**/step-*.safetensors")
    saved = safetensors.torch.load(checkpoint.read_bytes())
    assert saved["count"].item() == 2 * 4
    shutil.copytree(tmp_path / "killed", tmp_path / "joined")
    again = trained(tmp_path / "killed", "cut")
    for name in ("model.safetensors", "metrics.jsonl"):
        assert again.content(name) == cut.content(name)
    # And what two processes began, one goes on with.
    assert difference(trained(tmp_path / "joined", "whole"), whole) <= 1e-10


def test_a_process_alone_has_nothing_to_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "--loss", "ce", "--shard", "True", "--out", str(tmp_path)])
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "--shard cuts a network over several processes" in line
