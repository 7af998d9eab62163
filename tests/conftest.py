"""Settings shared by all tests."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Before torch is there. Some virtual machines announce AMX and refuse it: a product in bfloat16
# would kill the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import hypothesis
import pytest
import torch

from penex.report import figures

# Timing never decides a test, and a red test must be red again tomorrow.
hypothesis.settings.register_profile("penex", deadline=None, derandomize=True)
hypothesis.settings.load_profile("penex")

# Of tests/integrations, those that need no more than the other tests do.
_ALWAYS = {"test_attached.py", "test_export.py", "test_missing.py", "test_sklearn.py"}

# No test cuts the power, and waiting for the disk takes a twelfth of their time.
os.fsync = lambda fd: None

# The tests run side by side, one process a core.
torch.set_num_threads(1)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a framework's tests unless `-m frameworks` asks for them: imports take seconds."""
    asked = "frameworks" in str(config.getoption("-m"))
    framework = collection_path.parent.name == "integrations" and (
        collection_path.name.startswith("test_") and collection_path.name not in _ALWAYS
    )
    return True if framework and not asked else None


@pytest.fixture(autouse=True)
def same_numbers_in_any_order() -> None:
    """A test that draws from torch's global generator draws the same wherever it runs."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def unrendered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of a comparison are composed, but come out empty: pixels are half of its time.

    A test that looks at them says `rendered`.
    """
    if request.node.get_closest_marker("rendered") is None:
        monkeypatch.setattr(figures, "drawn", _composed)


def _composed(
    folder: Path, name: str, draw: Callable[[], Any], kinds: Sequence[str] = ("png", "svg")
) -> list[Path]:
    with figures.style():
        draw()
    paths = [folder / f"{name}.{kind}" for kind in kinds]
    for path in paths:
        path.write_bytes(b"")
    return paths


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A test never reads or fills the cache of whoever runs it."""
    monkeypatch.setenv("PENEX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
