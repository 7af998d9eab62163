"""The command as a process: what is installed, what the environment says, how it ends early."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penex
from command_line import ONE_THREAD, child, hiding, run
from penex.lab.ground import health
from penex.lab.ground.errors import writes
from penex.lab.ground.processes import half_launched, launched
from penex.lab.ground.stop import stoppable

ROOT = Path(__file__).parents[1]
LITTLE = ["--losses", "ce", "--seeds", "1", "--epochs", "1", "--train-size", "20"]

# Code that Python runs first: what happens when torch is about to be imported.
ON_TORCH = """
import sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            import os, signal
            {}
sys.meta_path.insert(0, Watch())
"""


def test_the_version_needs_no_torch(tmp_path: Path) -> None:
    done = child(tmp_path, "-m", "penex", "--version", first=ON_TORCH.format("os._exit(9)"))
    assert (done.returncode, done.stdout) == (0, f"penex {penex.__version__}\n")


def test_ctrl_c_while_torch_is_imported_is_no_traceback(tmp_path: Path) -> None:
    first = ON_TORCH.format(
        "signal.signal(signal.SIGINT, signal.default_int_handler); "  # a background job ignores it
        "os.kill(os.getpid(), signal.SIGINT)"
    )
    done = child(tmp_path, "-m", "penex", "compare", first=first)
    assert (done.returncode, done.stderr) == (130, "\nStopped.\n")


# What is installed.


def test_the_command_without_the_laboratory_is_one_sentence(tmp_path: Path) -> None:
    done = child(tmp_path, "-m", "penex", "compare", first=hiding("tyro", "rich"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "(rich, tyro missing): pip install '.[lab]' in a clone of penex." in done.stderr


def test_doctor_works_without_the_laboratory(tmp_path: Path) -> None:
    names = re.findall(r'"([A-Za-z0-9-]+)>=', (ROOT / "pyproject.toml").read_text())
    modules = {"pillow": "PIL", "scikit-learn": "sklearn", "SciencePlots": "scienceplots"}
    hidden = {*names, *modules.values()} - {"torch", "hatchling"}
    done = child(tmp_path, "-m", "penex", "doctor", first=hiding(*hidden))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^torch +\d", done.stdout, re.MULTILINE)
    for name in ("numpy", "tyro", "rich", "matplotlib"):
        assert re.search(rf"^{name} +missing .*pip install '\.\[lab\]'", done.stdout, re.MULTILINE)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_without_posix_locks_the_losses_work_and_the_rest_says_why(tmp_path: Path) -> None:
    first = hiding("fcntl")
    code = """
import sys, torch, penex
penex.PENEX()(torch.zeros(2, 3), torch.tensor([0, 1]))
from penex.__main__ import main
sys.argv = ["penex", "doctor"]
main()
"""
    done = child(tmp_path, "-c", code, first=first)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^file locks +no ", done.stdout, re.MULTILINE)
    out = tmp_path / "out"
    done = child(tmp_path, "-m", "penex", "compare", *LITTLE, "--out", out, first=first)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Linux, macOS or WSL" in done.stderr


def test_no_hint_names_a_package_that_is_on_no_index() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        assert not re.search(r"pip install '?penex", path.read_text()), path


def test_the_laboratory_imports_with_torch_numpy_and_pillow_alone(tmp_path: Path) -> None:
    code = """
import importlib, pkgutil, penex.lab
names = {m.name for m in pkgutil.walk_packages(penex.lab.__path__, "penex.lab.")}
names -= {"penex.lab.engine.packed_conv", "penex.lab.engine.conv_kernels"}  # Triton, for a GPU
for name in names:
    importlib.import_module(name)
print(len(names))
"""
    others = ("jinja2", "matplotlib", "optuna", "pandas", "rich", "safetensors", "scienceplots",
              "scipy", "sklearn", "transformers", "triton", "tyro")  # fmt: skip
    done = child(tmp_path, "-c", code, first=hiding(*others))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 20


def test_digits_without_scikit_learn_says_what_to_install(tmp_path: Path) -> None:
    done = child(tmp_path, "-m", "penex", "compare", "--seeds", 1, first=hiding("sklearn"))
    assert done.returncode == 2
    assert "The task digits needs scikit-learn: pip install scikit-learn" in done.stderr


def test_doctor_names_what_there_is_and_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from penex.lab.ground import environment

    found = environment.version
    monkeypatch.setattr(environment, "version", lambda n: None if n == "matplotlib" else found(n))
    run("doctor")
    text = capsys.readouterr().out
    for word in ("torch ", "CUDA ", "--device auto takes", "safetensors"):
        assert word in text
    assert "matplotlib   missing    compare: figures: pip install '.[lab]'" in text


def test_a_process_that_a_processor_stops_does_not_survive() -> None:
    assert not health.survives("import os, signal; os.kill(os.getpid(), signal.SIGILL)")


def test_a_processor_that_refuses_bfloat16_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "refuses_bfloat16", lambda: True)
    run("train", "--loss", "ce", "--autocast", "--epochs", 1, "--out", tmp_path, code=2)
    assert "ONEDNN_MAX_CPU_ISA" in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.glob("**/done.json"))


# What the environment says.


@pytest.mark.slow
def test_a_bare_environment_is_enough(tmp_path: Path) -> None:
    """No home, no locale, a user whom the system does not know, and a stray RANK."""
    first = "import pwd\ndef nobody(*_): raise KeyError\npwd.getpwuid = pwd.getpwnam = nobody\n"
    out = tmp_path / "out"
    bare: dict[str, str | None] = {
        "HOME": None, "XDG_CACHE_HOME": None, "PENEX_CACHE": None, "PYTHONIOENCODING": None,
        "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "RANK": "1",
    }  # fmt: skip
    words = ["-m", "penex", "compare", *LITTLE, "--out", out]
    done = child(tmp_path, *words, first=first, **bare)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "The environment has RANK but no WORLD_SIZE" in done.stderr
    assert "accuracy ?" in done.stdout  # an arrow, where it can be shown
    assert (out / "digits" / "page.html").exists()


def test_no_home_is_a_sentence_where_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    from penex.lab.data import cache
    from penex.lab.ground.errors import LabError

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("PENEX_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(LabError, match="set PENEX_CACHE"):
        cache.root()


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


def test_only_all_of_torchruns_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)
    assert (launched(), writes(), half_launched()) == (False, True, "")
    for name in [*TORCHRUN][:3]:
        monkeypatch.setenv(name, TORCHRUN[name])
        assert (launched(), writes()) == (False, True)
        assert "MASTER_PORT" in half_launched()
    monkeypatch.setenv("MASTER_PORT", "1")
    assert (launched(), writes(), half_launched()) == (True, False, "")


# A reader who leaves.


@pytest.mark.slow
def test_a_closed_pipe_ends_the_output_and_not_the_work(tmp_path: Path) -> None:
    """Both streams are dead before the first word, which comes before the work."""
    command = [sys.executable, "-m", "penex", "tune", "--loss", "penex", "--trials", "1"]
    process = subprocess.Popen(
        [*command, *LITTLE[4:], "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=ONE_THREAD,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait() == 0
    (done,) = tmp_path.glob("digits/penex/*/seed-0/done.json")
    assert json.loads(done.read_text())["status"] == "completed"
    assert (tmp_path / "digits" / "tuning.html").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
@pytest.mark.parametrize("words", [("--version",), ("cache",), ("data", "list")])
def test_a_full_disk_under_the_output_is_one_sentence(tmp_path: Path, words: tuple[str]) -> None:
    """Whether it is noticed while the command writes, or when all is flushed at its end."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "penex", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**ONE_THREAD, "PENEX_CACHE": str(tmp_path)},
        )
    assert done.returncode == 2
    assert done.stderr.startswith("penex: Cannot ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_full_disk_under_the_progress_ends_no_work(tmp_path: Path) -> None:
    code = "import sys; from penex.streams import outlive_readers; outlive_readers()\n"
    code += "print('x' * 10**5, file=sys.stderr, flush=True); print('done')"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, done.stdout) == (0, b"done\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_is_asked_for_once_and_done_the_second_time(number: signal.Signals) -> None:
    with stoppable() as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


def test_a_signal_may_come_while_something_is_written(tmp_path: Path) -> None:
    """The stream writes by a file of ours, which is stopped half-way by Ctrl-C."""
    code = """
import io, os, signal, sys
from penex.lab.ground.stop import stoppable
class Interrupted(io.FileIO):
    def write(self, content):
        os.kill(os.getpid(), signal.SIGINT)
        return super().write(content)
with stoppable() as stop:
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(Interrupted(2, "w")), line_buffering=True)
    print("something", file=sys.stderr)
    sys.stderr = sys.__stderr__
    assert stop()
os._exit(0)
"""
    done = child(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "Stopping after this step" in done.stderr
