"""Training that is killed in each framework: another process goes on, and ends as a plain loop.

What is trained, and how seven batches make windows of two, is in `framework_task.py`; each
framework saves and loads in its own way, in `framework_worker.py`.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import framework_task
import framework_trainers

pytestmark = pytest.mark.frameworks

# How a framework treats the last window of an epoch, which is not full.
WINDOWS = {
    "accelerate": "cut",
    "fastai": "carried",
    "ignite": "carried",
    "jax": "carried",
    "keras": "carried",
    "lightning": "cut",
    "skorch": "single",  # it has none
    "timm": "mean",
    "transformers": "mean",
}


@pytest.mark.parametrize("framework", WINDOWS)
def test_a_killed_training_ends_as_the_plain_loop(framework: str, tmp_path: Path) -> None:
    """Weights, rho and the probabilities that the framework predicts."""
    if find_spec(framework) is None:
        pytest.skip(f"needs {framework} (make test-frameworks)")
    framework_task.start(framework, tmp_path, "killed")
    expected = framework_task.plain_loop(WINDOWS[framework])
    framework_task.assert_same(tmp_path / "rank-0.npz", expected)


def test_a_killed_classifier_ends_as_one_that_was_not(tmp_path: Path) -> None:
    """It shuffles, so that a loop in order is no twin of it."""
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
    framework_task.start("sklearn", tmp_path / "killed", "killed")
    framework_trainers.sklearn(tmp_path / "whole", 1)
    with np.load(tmp_path / "whole" / "rank-0.npz") as whole:
        framework_task.assert_same(tmp_path / "killed" / "rank-0.npz", dict(whole), tolerance=0.0)
