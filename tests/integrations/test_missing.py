"""An adapter without its framework says what to install, and imports nobody else's."""

import importlib
import sys

import pytest


@pytest.mark.parametrize("name", ["fastai", "jax", "keras", "lightning", "skorch", "transformers"])
def test_an_adapter_names_what_it_needs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [*sys.modules]:
        if module == name or module.startswith(f"{name}."):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, f"penex.integrations.{name}", raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"penex\.integrations\.{name} needs .*pip install"):
        importlib.import_module(f"penex.integrations.{name}")
