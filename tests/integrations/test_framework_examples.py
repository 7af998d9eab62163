"""The scripts a user can start from, in their frameworks."""

import pytest

from example_scripts import accuracies

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
