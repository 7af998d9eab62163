"""Two processes, or devices, that share each batch, in the frameworks that can: one plain loop.

The same training as in test_killed.py, with windows that an epoch cuts short or carries over.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

import framework_task

pytestmark = pytest.mark.frameworks

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.parametrize(
    ("framework", "windows", "launcher"),
    [
        ("accelerate", "cut", []),
        ("fastai", "carried", []),
        ("ignite", "carried", []),  # by idist.Parallel
        ("jax", "carried", []),  # by shard_map over two devices
        ("lightning", "cut", []),  # by strategy="ddp_fork"
        ("skorch", "single", []),
        ("timm", "mean", []),
        ("transformers", "mean", TORCHRUN),
    ],
)
def test_ranks_together_are_one_plain_loop(
    framework: str, windows: str, launcher: list[str], tmp_path: Path
) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"needs {framework} (make test-frameworks)")
    framework_task.start(framework, tmp_path, "2", launcher)
    expected = framework_task.plain_loop(windows)
    found = sorted(tmp_path.glob("rank-*.npz"))
    assert len(found) == (1 if framework == "jax" else 2)
    for rank in found:
        framework_task.assert_same(rank, expected)
