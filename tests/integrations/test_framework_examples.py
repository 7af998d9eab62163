"""The scripts a user can start from, in their frameworks."""

import re
from pathlib import Path

import pytest

import vision_here
from example_scripts import FOLDER, accuracies

pytestmark = pytest.mark.frameworks


@pytest.mark.parametrize(
    ("script", "package"),
    [
        ("lightning_module", "lightning"),
        ("transformers_trainer", "transformers"),
        ("jax_loop", "jax"),
    ],
)
def test_an_example_learns(
    script: str,
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip(package)
    found = accuracies(script, monkeypatch, capsys)
    assert found
    assert min(found) > 0.75


def test_the_page_about_frameworks_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its Python, from top to bottom, as a reader would try it."""
    vision_here.declare()
    monkeypatch.chdir(tmp_path)
    page = FOLDER.parent / "docs" / "frameworks.md"
    blocks = re.findall(r"^```py(?:thon)?\n(.*?)^```$", page.read_text(), flags=re.S | re.M)
    assert len(blocks) > 12
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": "__main__"})
