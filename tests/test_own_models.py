"""Models of a user's own: which code is theirs, what they remember, what they leave."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from penex.lab import models
from penex.lab.ground.errors import LabError
from penex.lab.models import sources, state


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that modules are imported from; what was imported from it is forgotten."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


MAKE = "def make(shape, n_out):\n    return nn.Sequential(nn.Flatten(), nn.Linear(4, n_out))\n"


def test_a_model_in_one_file_is_known_by_that_file(tree: Path) -> None:
    """As it was before helpers counted: the folders of such runs keep their names."""
    write(tree, alone_model="import math, torch\nfrom torch import nn\n" + MAKE)
    (tree / "alone_helper.py").write_text("never = 'imported'")
    content = (tree / "alone_model.py").read_bytes()
    assert models.source("alone_model:make") == hashlib.sha256(content).hexdigest()[:16]
    assert models.source("cnn") is None


@pytest.mark.parametrize("changed", ["near", "far", "late", "packed/part", "packed/__init__"])
def test_a_changed_helper_makes_other_runs(changed: str, tree: Path) -> None:
    """One imported by name, one by a helper, one inside of a function, one of a package."""
    write(
        tree,
        model_of_mine="from torch import nn\nimport near\nfrom packed.part import width\n" + MAKE,
        near="from far import depth\n",
        far="depth = 3\ndef deep():\n    import late\n",
        late="x = 1\n",
    )
    (tree / "packed").mkdir()
    (tree / "packed" / "__init__.py").write_text("from . import other\n")
    (tree / "packed" / "part.py").write_text("width = 3\n")
    (tree / "packed" / "other.py").write_text("")
    first = models.source("model_of_mine:make")
    assert first == models.source("model_of_mine:make")
    (tree / "stranger.py").write_text("x = 2\n")
    assert first == models.source("model_of_mine:make")
    path = tree / f"{changed}.py"
    path.write_text(path.read_text() + "# changed\n")
    assert first != models.source("model_of_mine:make")


def test_what_is_installed_is_not_the_users(tree: Path) -> None:
    place = tree / ".venv" / "lib" / "site-packages"
    place.mkdir(parents=True)
    (place / "installed_thing.py").write_text("x = 1\n")
    write(tree, model_with_library="import installed_thing\nimport json\nimport penex.lab\n")
    sys.path.append(str(place))
    try:
        assert list(sources.files_of("model_with_library")) == ["model_with_library"]
    finally:
        sys.path.remove(str(place))


def test_what_changes_in_plain_attributes_is_said_once(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = """
from torch import nn
class Counting(nn.Linear):
    def __init__(self, n_out):
        super().__init__(4, n_out)
        self.calls, self.name = 0, "fixed"
    def forward(self, x):
        self.calls += self.training
        return super().forward(x.flatten(1))
def make(shape, n_out):
    return nn.Sequential(Counting(n_out))
"""
    write(tree, model_that_counts=code)
    models.find("model_that_counts:make", trained=True)((4,), 3)
    assert capsys.readouterr().err == ""
    for _ in range(2):
        models.find("model_that_counts:make")((4,), 3)
    text = capsys.readouterr().err
    assert text.count("0.calls") == 1
    assert "name" not in text


def test_a_state_that_cannot_be_saved_is_refused(tree: Path) -> None:
    code = """
from torch import nn
class Odd(nn.Linear):
    def get_extra_state(self):
        return {"a": 1}
    def set_extra_state(self, state):
        pass
def make(shape, n_out):
    return Odd(4, n_out)
"""
    write(tree, model_with_extra=code)
    with pytest.raises(LabError, match="_extra_state of its state_dict is no tensor"):
        models.find("model_with_extra:make")((4,), 3)


def test_a_state_is_taken_whole_or_refused() -> None:
    network, other = nn.Linear(2, 3), nn.Linear(2, 3)
    network.register_buffer("seen", torch.ones(1), persistent=False)
    other.register_buffer("seen", torch.zeros(1), persistent=False)
    state.take(other, state.of(network))
    assert all(
        torch.equal(value, state.of(network)[name]) for name, value in state.of(other).items()
    )
    state.take(other, network.state_dict())  # as older files have it
    for wrong in (
        {"weight": network.weight},
        {**network.state_dict(), "more": torch.zeros(1)},
        {**network.state_dict(), "bias": torch.zeros(2)},
    ):
        with pytest.raises(ValueError, match=r"does not belong|has another shape"):
            state.take(other, wrong)


@pytest.mark.slow
def test_old_results_are_not_shown_for_a_changed_helper(tmp_path: Path) -> None:
    """A real process each time: the second trains anew."""
    write(
        tmp_path,
        model_by_helper="from torch import nn\nimport helper_of_it\n"
        "def make(shape, n_out):\n"
        "    return nn.Sequential(nn.Flatten(), helper_of_it.layer(64, n_out))\n",
        helper_of_it="from torch import nn\nlayer = nn.Linear\n",
    )
    command = [sys.executable, "-m", "penex", "train", "--loss", "ce", "--epochs", "1", "--model",
               "model_by_helper:make", "--train-size", "50", "--out", "out"]  # fmt: skip
    for count in (1, 2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert len(list((tmp_path / "out").rglob("done.json"))) == count
        (tmp_path / "helper_of_it.py").write_text("from torch import nn\nlayer = nn.LazyLinear\n"
            "def layer(n_in, n_out): return nn.Linear(n_in, n_out, bias=False)\n")  # fmt: skip
