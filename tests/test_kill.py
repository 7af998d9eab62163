"""A comparison that is killed, again and again, ends as if nothing had happened."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penex.lab.data.streams import WORKERS
from small_trees import write_tree

from texts import write_encoder, write_table

WORKER = Path(__file__).with_name("kill_worker.py")
FAULTS = Path(__file__).with_name("fault_worker.py")


def content(folder: Path) -> dict[str, Any]:
    """Every file of a comparison, byte for byte; of done.json all but time, memory and seal."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            continue
        if path.name == "done.json":
            done = json.loads(path.read_bytes())
            assert done.pop("wall_time") > 0
            assert done.pop("peak_memory") > 0
            del done["seal"]  # of the time, too
            found[name] = done
        elif path.name == "comparison.json":  # its command names the folder, and so does the page
            found[name] = json.loads(path.read_bytes())["runs"]
        elif path.suffix not in (".html", ".md", ".png", ".svg"):
            found[name] = path.read_bytes()
    return found


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_a_killed_comparison_completes_bit_for_bit(tmp_path: Path) -> None:
    kills = 8
    done = subprocess.run(
        [sys.executable, str(WORKER), str(tmp_path), str(kills), "0", "compare"],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    hit, comparisons = (int(word) for word in done.stdout.split())
    assert hit == kills
    whole = content(tmp_path / "whole")
    statuses = {d["status"] for n, d in whole.items() if n.endswith("done.json")}
    assert statuses == {"completed", "diverged"}
    for number in range(comparisons):
        assert content(tmp_path / str(number)) == whole


@pytest.mark.parametrize(
    ("kind", "how", "stride"),
    [
        pytest.param("kill", "packed", 61, marks=pytest.mark.slow),
        pytest.param("full", "alone", 29, marks=pytest.mark.slow),
    ],
)
def test_runs_that_fail_at_any_write_complete_bit_for_bit(
    kind: str, how: str, stride: int, tmp_path: Path
) -> None:
    """Killed, or out of room on the disk, before the first write, one in the middle, the last."""
    done = subprocess.run(
        [sys.executable, str(FAULTS), str(tmp_path), kind, how, str(stride)],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    writes = done.stdout.split()
    assert int(writes[-1]) > 100
    whole = content(tmp_path / "whole")
    assert whole
    for number in writes:
        assert content(tmp_path / number) == whole


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_fine_tuning_that_is_killed_completes_bit_for_bit(tmp_path: Path) -> None:
    """With the encoder's own dropout, which draws from torch's generator."""
    write_encoder(tmp_path / "encoder")
    write_table(tmp_path / "reviews.csv")
    done = subprocess.run(
        [sys.executable, str(WORKER), str(tmp_path), "4", "0", "texts"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    hit, comparisons = (int(word) for word in done.stdout.split())
    assert hit == 4
    whole = content(tmp_path / "whole")
    assert any(name.endswith("model.safetensors") for name in whole)
    for number in range(comparisons):
        assert content(tmp_path / str(number)) == whole


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_training_on_files_that_is_killed_completes_bit_for_bit(tmp_path: Path) -> None:
    """In the middle of epochs, while processes decode ahead; a file of the tree is broken."""
    broken = write_tree(tmp_path / "tree") / "train" / "n0002" / "3.JPEG"
    broken.write_bytes(broken.read_bytes()[:300])
    done = subprocess.run(
        [sys.executable, str(WORKER), str(tmp_path), "5", "0", "images"],
        env={**os.environ, WORKERS: "2"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    hit, comparisons = (int(word) for word in done.stdout.split())
    assert hit == 5
    whole = content(tmp_path / "whole")
    assert any(name.endswith("model.safetensors") for name in whole)
    for number in range(comparisons):
        assert content(tmp_path / str(number)) == whole
