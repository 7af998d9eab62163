"""The house: what an import pulls in, what it depends on, what its examples draw."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import penex

ROOT = Path(__file__).parents[1]


def modules_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print('\\n'.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    return {name.split(".")[0] for name in result.stdout.split()}


def test_importing_penex_pulls_in_torch_and_nothing_else() -> None:
    """The time it takes is for benchmarks/imports.py to say."""
    extra = modules_after("from penex import *") - modules_after("import torch")
    assert extra == {"penex"}


def test_torch_comes_with_the_first_name() -> None:
    assert "torch" not in modules_after("import penex")
    assert "torch" in modules_after("import penex; penex.PENEX")


def test_every_public_name_is_there() -> None:
    source = Path(penex.__file__).read_text()
    assert re.findall(r" as (\w+)$", source, flags=re.MULTILINE) == sorted(
        penex.__all__, key=lambda name: (name == "PENEX", name == "linear_penex", name)
    )
    assert {name: getattr(penex, name) for name in penex.__all__}.keys() <= set(dir(penex))
    assert penex.base.Loss in penex.PENEX.__mro__  # modules that are not listed, too
    assert not hasattr(penex, "nonsense")


def test_the_version_is_the_packages() -> None:
    assert penex.__version__ == metadata.version("penex")


def test_torch_is_the_only_hard_dependency() -> None:
    required = metadata.requires("penex") or []
    assert [r for r in required if "extra ==" not in r] == ["torch>=2.6"]


def test_types_are_shipped() -> None:
    assert (Path(penex.__file__).parent / "py.typed").exists()


@pytest.mark.slow
def test_quickstart_prints_its_table() -> None:
    command = [sys.executable, "examples/quickstart.py", "--seeds", "2", "--epochs", "2"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    for word in ("cross-entropy", "PENEX", "accuracy", "brier", "ece"):
        assert word in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options", "word"),
    [
        ("boosting_view", [], "PENEX: multiplier"),
        ("divergence", ["--steps", "20"], "largest logit"),
        ("other_sign", ["--epochs", "2"], "weight of wrong over right labels"),
    ],
)
def test_a_figure_is_drawn(script: str, options: list[str], word: str, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    command = [sys.executable, f"examples/{script}.py", "--out", str(picture), *options]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert word in result.stdout
    assert picture.stat().st_size > 20_000
    command = [sys.executable, f"examples/{script}.py", "--out", str(tmp_path / "no" / "a.png")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 2
    assert "does not exist" in result.stderr


@pytest.mark.slow
def test_quickstart_says_what_is_wrong() -> None:
    command = [sys.executable, "examples/quickstart.py", "--train-size", "5000"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 2
    assert "--train-size must be from 1 to 1796" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["penex", "cross_entropy"])
def test_the_language_model_is_trained(loss: str) -> None:
    pytest.importorskip("transformers", reason="needs transformers: pip install 'penex[text]'")
    command = [sys.executable, "examples/language_model.py", "--loss", loss, "--steps", "2"]
    result = subprocess.run(
        [*command, "--classes", "2000"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert "held-out cross-entropy" in result.stdout
    assert ("rho" in result.stdout) == (loss == "penex")


def test_the_page_about_frameworks_names_the_versions_that_are_tested() -> None:
    page = (ROOT / "docs" / "frameworks.md").read_text()
    pins = (ROOT / "constraints-frameworks.txt").read_text() + (
        ROOT / "constraints.txt"
    ).read_text()
    tested = dict(re.findall(r"^([\w-]+)==(.*)$", pins, flags=re.MULTILINE))
    named = dict(re.findall(r"^\| \[.*?\| ([\w-]+) (\d[\d.]*)", page, flags=re.MULTILINE))
    assert len(named) == 10
    assert named == {name: tested[name] for name in named}
