"""Tests in frameworks are collected where they are asked for: `pytest -m frameworks`."""

from pathlib import Path

import pytest

ALWAYS = {"test_sklearn.py", "test_export.py"}  # with what the other tests have installed


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a framework's file out unless the marker is asked for: its imports take seconds."""
    asked = "frameworks" in str(config.getoption("-m"))
    is_test = collection_path.name.startswith("test_")
    return True if is_test and not asked and collection_path.name not in ALWAYS else None
