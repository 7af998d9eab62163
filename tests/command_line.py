"""The command line in tests: called in this process, or run as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penex import cli

# Tests run side by side, one process a core.
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}

# Python runs this before anything else: the modules named are not there, nor their packages.
_HIDDEN = """
import importlib.metadata, importlib.util, sys
names = {names!r}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in names:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
find_spec, version = importlib.util.find_spec, importlib.metadata.version
def without(name, *rest):
    return None if name in names else find_spec(name, *rest)
def not_installed(name):
    if name in names:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.util.find_spec, importlib.metadata.version = without, not_installed
"""


def run(*arguments: object, code: int = 0) -> None:
    """Call the command in this process; 0 stands for a return."""
    words = [str(argument) for argument in arguments]
    if code == 0:
        cli.main(words)
        return
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == code


def sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error."""
    text = capsys.readouterr().err
    assert text.startswith("penex: ")
    assert text.count("\n") == 1
    return text


def hiding(*names: str) -> str:
    """What a process must run first so that these modules are missing."""
    return _HIDDEN.format(names=names)


def child(
    folder: Path, *words: object, first: str = "", **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` in a process of its own.

    Args:
        folder: a place for what Python runs first.
        words: after `python`.
        first: code that Python runs before anything else.
        environment: variables to set, or to leave out (None).
    """
    (folder / "sitecustomize.py").write_text(first)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    wanted = {**ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths), **environment}
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env={name: value for name, value in wanted.items() if value is not None},
        capture_output=True,
        text=True,
    )
