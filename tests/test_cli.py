"""The command line: what it prints, what it leaves, one sentence for everything wrong."""

import fcntl
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import ONE_THREAD, run, sentence
from penex import cli

SMALL = ["--losses", "ce", "penex", "--seeds", "2", "--epochs", "2", "--train-size", "50"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small comparison, done once. Tests copy it before they harm it."""
    out = tmp_path_factory.mktemp("compared")
    cli.main(["compare", *SMALL, "--out", str(out)])
    return out


@pytest.fixture
def copied(compared: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(compared, tmp_path / "copy"))


def test_compare_leaves_records_tables_and_figures(compared: Path) -> None:
    folder = compared / "digits"
    names = {path.name for path in folder.iterdir() if path.is_file()}
    assert names == {
        "comparison.json", "comparison.md", "comparison.csv", "comparison.tex", "curves.png",
        "curves.svg", "summary.png", "summary.svg", "page.html", "examples.npz", "leads.csv",
    }  # fmt: skip
    listing = json.loads((folder / "comparison.json").read_text())
    assert [(r["loss"], r["seed"], r["train_size"]) for r in listing["runs"]] == [
        ("ce", 0, 50), ("penex", 0, 50), ("ce", 1, 50), ("penex", 1, 50),
    ]  # fmt: skip
    for listed in listing["runs"]:
        place = folder / listed["folder"]
        found = {str(p.relative_to(place)) for p in place.rglob("*") if p.is_file()}
        assert found == {
            ".lock", "config.json", "environment.json", "metrics.jsonl", "predictions.npz",
            "done.json", "model.json", "model.safetensors",
        }  # fmt: skip
        done = json.loads((place / "done.json").read_text())
        assert done["status"] == "completed"
        assert done["test"].keys() == done["test_spread"].keys()
        assert len((place / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_second_call_trains_nothing(
    copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from penex.lab.engine import loop

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is left to train")

    monkeypatch.setattr(loop, "fit", never)
    run("compare", *SMALL, "--out", copied)
    shown = capsys.readouterr()
    assert "4 of 4 runs were there already" in shown.err
    assert "Nothing is better than guessing yet" in shown.out
    last = shown.out.splitlines()[-1]  # how the best run is used
    words = shlex.split(last[last.index("penex predict") :])
    assert words[-1] == "FILES"
    np.save(copied / "x.npy", np.zeros((2, 8, 8), np.uint8))
    run(*words[1:-1], copied / "x.npy")
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_train_prints_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("train", "digits", "--loss", "focal:gamma=1", "--seed", 3, "--epochs", 1,
        "--train-size", 50, "--out", tmp_path)  # fmt: skip
    text = capsys.readouterr().out
    assert "test       accuracy" in text
    place = Path(text.rpartition("Record: ")[2].strip())
    config = json.loads((place / "config.json").read_text())
    assert config["loss"] == {"name": "focal", "arguments": {"gamma": 1.0, "detach": False}}
    assert (config["seed"], config["train_size"], config["recipe"]["epochs"]) == (3, 50, 1)


def test_the_zero_sum_head_is_built_in(tmp_path: Path) -> None:
    import numpy as np

    run("train", "digits", "--loss", "conex_hard", "--epochs", 1, "--train-size", 50,
        "--out", tmp_path)  # fmt: skip
    with np.load(next(tmp_path.glob("**/predictions.npz"))) as arrays:
        assert arrays["test_logits"].shape == (700, 10)
        assert np.abs(arrays["test_logits"].sum(axis=1)).max() < 1e-5


def test_predictions_give_the_metrics(compared: Path) -> None:
    """The logits are as the model gave them, the temperature is the loss's."""
    import torch

    from penex import metrics
    from penex.lab.records import Record

    (place,) = compared.glob("digits/penex/*/seed-0")
    record = Record(place)
    arrays, done = record.predictions(), record.done()
    assert float(arrays["temperature"]) == pytest.approx(1 / 1.1)
    for short, name in (("val", "validation"), ("test", "test")):
        logits = torch.from_numpy(arrays[f"{short}_logits"])
        targets = torch.from_numpy(arrays[f"{short}_targets"])
        value = metrics.cross_entropy(logits, targets, temperature=1 / 1.1)
        assert value.item() == pytest.approx(done[name]["cross_entropy"], rel=1e-6)


@pytest.mark.slow
@pytest.mark.rendered
def test_training_sizes_make_their_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("compare", "--losses", "ce", "penex", "--seeds", 1, "--epochs", 1,
        "--train-size", 20, 60, "--out", tmp_path)  # fmt: skip
    text = capsys.readouterr().out
    assert "digits, 20 training examples, 1 seed" in text
    assert "With 60 training examples, nothing is better than guessing yet" in text
    assert "One seed shows no spread" in text
    assert (tmp_path / "digits" / "train_size.png").stat().st_size > 10_000


def test_a_diverged_run_is_kept_and_the_comparison_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["compare", "--losses", "ex:alpha=1000", "ce", "--seeds", 2, "--epochs", 1,
                 "--train-size", 50, "--out", tmp_path]  # fmt: skip
    run(*arguments)
    shown = capsys.readouterr()
    assert "diverged: the loss was inf at step 1" in shown.err
    assert "EX (alpha=1000) (2 of 2 diverged)" in shown.out
    assert "2 of 2 runs diverged" in shown.out
    done = json.loads(next(tmp_path.glob("digits/ex/*/seed-0/done.json")).read_text())
    assert (done["status"], done["steps"]) == ("diverged", 1)
    assert done["diverged"].keys() == {"loss", "grad_norm", "max_logit", "rho"}
    run(*arguments)
    assert "4 of 4 runs were there already" in capsys.readouterr().err


@pytest.mark.parametrize("pack", ["auto", "off"])
def test_outputs_that_are_not_finite_are_a_divergence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: str
) -> None:
    """The last step's loss and the parameters are finite; what the model says is not."""
    run("compare", "--losses", "ce", "penex", "--seeds", 2, "--epochs", 1, "--train-size", 50,
        "--batch-size", 64, "--lr", 1e30, "--pack", pack, "--out", tmp_path)  # fmt: skip
    shown = capsys.readouterr()
    assert shown.err.count("the outputs for the validation set were not finite at step 1") == 4
    assert "PENEX: 2 of 2 runs diverged" in shown.out
    for place in tmp_path.glob("digits/*/*/seed-*"):
        assert json.loads((place / "done.json").read_text())["status"] == "diverged"
        assert not (place / "model.json").exists()
    assert "diverged" in (tmp_path / "digits" / "page.html").read_text()


def test_a_test_set_that_breaks_the_model_is_a_divergence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penex.lab.engine.evaluation import logits_of as whole
    from penex.lab.training import writing

    def broken(learner: Any, data: Any, part: Any) -> Any:
        logits = whole(learner, data, part)
        return logits / 0 if part is data.test else logits

    monkeypatch.setattr(writing, "logits_of", broken)
    run("train", "--loss", "ce", "--epochs", 1, "--train-size", 50, "--out", tmp_path)
    (done,) = (json.loads(p.read_text()) for p in tmp_path.rglob("done.json"))
    assert done["reason"] == "the outputs for the test set were not finite at step 1"


# What is wrong.


def harmed(path: Path, **changes: Any) -> None:
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, **changes}))


@pytest.mark.parametrize(
    ("name", "harm", "words"),
    [
        ("config.json", lambda p: harmed(p, format=0), "an older version of penex"),
        ("config.json", lambda p: harmed(p, format=99), "another version of penex"),
        ("done.json", lambda p: harmed(p, format=0), "an older version of penex"),
        ("done.json", lambda p: p.write_text('{"status": "comp'), "is damaged"),
        ("done.json", lambda p: p.write_text("[]"), "is damaged: it is not an object"),
        ("done.json", lambda p: harmed(p, status="fine"), "is damaged: its status is 'fine'"),
        ("done.json", lambda p: harmed(p, test={}), "is damaged"),
        (
            "done.json",
            lambda p: p.write_text(
                re.sub(r'("accuracy": )[0-9.]+', r"\g<1>5e400", p.read_text(), count=1)
            ),
            "lacks a metric",
        ),
        ("config.json", lambda p: p.write_bytes(b"\xff"), "is damaged"),
        ("config.json", lambda p: p.unlink(), "config.json is damaged: it is missing"),
        ("metrics.jsonl", lambda p: p.write_text(p.read_text()[:-9]), "its checksum is not"),
        ("config.json", lambda p: harmed(p, train_size=51), "its checksum is not"),
        ("done.json", lambda p: harmed(p, validation=[]), "validation lacks a metric"),
        ("done.json", lambda p: harmed(p, sha256=None), "it has no checksums"),
        ("predictions.npz", lambda p: p.write_bytes(b"PK"), "its checksum is not"),
        ("predictions.npz", lambda p: p.unlink(), "predictions.npz is damaged: it is missing"),
        ("metrics.jsonl", lambda p: p.unlink(), "metrics.jsonl is damaged: it is missing"),
    ],
)
def test_a_bad_record_is_one_sentence_and_stays(
    copied: Path, name: str, harm: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    harm(next(copied.glob(f"digits/penex/*/seed-1/{name}")))
    before = {p: p.read_bytes() for p in copied.glob("digits/*/*/seed-*/**/*") if p.is_file()}
    capsys.readouterr()
    run("compare", *SMALL, "--out", copied, code=2)
    text = capsys.readouterr().err.splitlines()[-1]
    assert text.startswith("penex: ")
    assert words in text
    after = {p: p.read_bytes() for p in copied.glob("digits/*/*/seed-*/**/*") if p.is_file()}
    assert after == before


def test_a_changed_configuration_of_a_broken_run_is_refused(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = next(copied.glob("digits/penex/*/seed-1"))
    (place / "done.json").unlink()
    harmed(place / "config.json", train_size=51)
    capsys.readouterr()
    run("compare", *SMALL, "--out", copied, code=2)
    assert "is not the configuration that its folder stands for" in capsys.readouterr().err


def test_a_run_that_another_process_trains_is_left_alone(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = next(copied.glob("digits/penex/*/seed-1"))
    (place / "done.json").unlink()
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        capsys.readouterr()
        run("compare", *SMALL, "--out", copied, code=2)
    assert "Another process is training the run in" in capsys.readouterr().err
    run("compare", *SMALL, "--out", copied)


@pytest.mark.slow
def test_two_processes_at_once_make_one_comparison(tmp_path: Path) -> None:
    """One of them may be told to wait; together they lose nothing."""
    command = [sys.executable, "-m", "penex", "compare", *SMALL, "--out", str(tmp_path)]
    both = [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ONE_THREAD)
        for _ in range(2)
    ]
    errors = [process.communicate(timeout=300)[1] for process in both]
    for process, text in zip(both, errors, strict=True):
        assert process.returncode in (0, 2), text
        assert (process.returncode == 0) or "Another process is training" in text
    assert 0 in {process.returncode for process in both}
    assert len(list(tmp_path.glob("digits/*/*/seed-*/done.json"))) == 4


@pytest.mark.skipif(sys.platform != "linux", reason="/sys is Linux's")
def test_a_folder_that_cannot_be_written_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("compare", *SMALL, "--out", "/sys/penex", code=2)
    text = sentence(capsys)
    assert "/sys/penex" in text
    assert "Operation not permitted" in text


def test_a_file_in_the_way_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("precious")
    run("compare", *SMALL, "--out", tmp_path / "out", code=2)
    assert "Not a directory" in sentence(capsys)
    assert (tmp_path / "out").read_text() == "precious"


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow beyond 200 kB: what writing to a full disk is like, for any user."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_a_disk_that_refuses_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("compare", *SMALL, "--out", tmp_path, code=2)
    text = capsys.readouterr().err
    assert "penex: Cannot read or write" in text
    assert "step-2.safetensors: File too large" in text
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list(tmp_path.rglob("done.json"))


@pytest.mark.slow
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_later(tmp_path: Path) -> None:
    """A file system of 500 kB, in a namespace of its own; where that is not allowed, no test."""
    disk = tmp_path / "disk"
    disk.mkdir()
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=500k none {disk} && "
    if subprocess.run([*inside, mount + "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let a user mount a file system")
    penex = f"{sys.executable} -m penex compare {' '.join(SMALL)} --out {disk}/runs"
    grow = f"mount -o remount,size=90m {disk}"
    script = (
        f"{mount} {penex}; echo code $?; find {disk} -name '*.tmp'; {grow} && {penex} | tail -3"
    )
    done = subprocess.run(
        [*inside, script], capture_output=True, text=True, timeout=300, env=ONE_THREAD
    )
    assert "code 2" in done.stdout
    assert done.stderr.count("No space left on device") == 1
    assert ".tmp" not in done.stdout
    assert "a record of every run" in done.stdout


@pytest.mark.slow
def test_two_values_that_look_alike_are_two_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("compare", "--losses", "penex:alpha=0.12345678", "penex:alpha=0.12345679", "--seeds", 1,
        "--epochs", 1, "--train-size", 20, "--out", tmp_path)  # fmt: skip
    text = capsys.readouterr().out
    assert "PENEX (alpha=0.12345678)" in text
    assert "PENEX (alpha=0.12345679)" in text


@pytest.mark.slow
def test_a_damaged_clock_costs_no_run(copied: Path) -> None:
    place = next(copied.glob("digits/penex/*/seed-1"))
    (place / "done.json").unlink()
    (place / "clock.json").write_text("[")
    run("compare", *SMALL, "--out", copied)


def test_what_a_killed_process_left_of_a_diverged_run_is_tidied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "--loss", "ex:alpha=1000", "--epochs", 1, "--train-size", 50,
                 "--out", tmp_path]  # fmt: skip
    run(*arguments)
    rest = next(tmp_path.glob("digits/ex/*/seed-0")) / "checkpoint"
    rest.mkdir()
    (rest / "position.json").write_text("{}")
    run(*arguments)
    assert not rest.exists()
    assert "there already" in capsys.readouterr().err


@pytest.mark.slow
def test_an_earlier_comparisons_picture_does_not_stay(tmp_path: Path) -> None:
    start = ["compare", "--losses", "ce", "--seeds", 1, "--epochs", 1, "--out", tmp_path]
    run(*start, "--train-size", 20, 60)
    run(*start, "--train-size", 20)
    assert not (tmp_path / "digits" / "train_size.png").exists()


# Stopping.


@pytest.mark.slow
def test_a_stop_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    """The signal comes when something was said; SIGTERM has the same handler."""
    command = [sys.executable, "-m", "penex", "compare", "--losses", "ce", "penex", "--seeds", "1"]
    command += ["--epochs", "60", "--train-size", "60", "--pack", "off", "--out", str(tmp_path)]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ONE_THREAD
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "digits: 2 runs (2 losses, 1 seed) on cpu.\n"
    assert process.stderr.readline().startswith("[1/2] digits ce")
    process.send_signal(signal.SIGINT)
    text = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "Traceback" not in text
    assert text.rpartition("To go on: ")[2].strip() == " ".join(command[2:])
    (broken,) = (
        place for place in tmp_path.glob("digits/*/*/seed-0") if not (place / "done.json").exists()
    )
    position = json.loads((broken / "checkpoint" / "position.json").read_text())
    again = subprocess.run(command, capture_output=True, text=True, timeout=300, env=ONE_THREAD)
    assert again.returncode == 0
    resumed = f"resumed after epoch {position['epoch']}\n"
    assert (resumed in again.stderr) == (position["epoch"] > 0)
    assert len(list(tmp_path.glob("digits/*/*/seed-0/done.json"))) == 2


# What is installed.


def test_the_installed_command_is_there() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("penex"), "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("compare", "train", "doctor"))


def test_a_missing_tracker_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    run("compare", *SMALL, "--track", "wandb", "--out", tmp_path, code=2)
    assert "--track wandb needs the package wandb" in sentence(capsys)


def test_tensorboard_shows_every_epoch(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run("train", "digits", "--loss", "penex", "--epochs", 3, "--train-size", 50,
        "--track", "tensorboard", "--out", tmp_path)  # fmt: skip
    log = accumulator.EventAccumulator(str(next(tmp_path.glob("**/tensorboard"))))
    log.Reload()
    points = log.Scalars("validation/accuracy")
    lines = next(tmp_path.glob("**/metrics.jsonl")).read_text().splitlines()
    values = [json.loads(line)["validation"]["accuracy"] for line in lines]
    assert [point.value for point in points] == pytest.approx(values)
    assert [point.step for point in points] == [1, 2, 3]
    assert log.Scalars("rho")


@pytest.mark.slow
def test_runs_of_a_pack_have_their_own_logs(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run("compare", *SMALL, "--pack", 4, "--track", "tensorboard", "--out", tmp_path)
    logs = list(tmp_path.glob("digits/*/*/seed-*/tensorboard"))
    assert len(logs) == 4
    for folder in logs:
        log = accumulator.EventAccumulator(str(folder))
        log.Reload()
        lines = (folder.parent / "metrics.jsonl").read_text().splitlines()
        values = [json.loads(line)["train_loss"] for line in lines]
        assert [point.value for point in log.Scalars("train_loss")] == pytest.approx(values)


def test_weights_and_biases_gets_every_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in that takes what the real one takes: the real one wants an account or a daemon."""
    stand_in = tmp_path / "wandb.py"
    stand_in.write_text(
        "import json\n"
        "class Run:\n"
        "    def __init__(self, file): self.file = file\n"
        "    def log(self, numbers, step): print(json.dumps([step, numbers]), file=self.file)\n"
        "    def finish(self): self.file.close()\n"
        "def init(*, project, name, config, dir):\n"
        "    assert project == 'penex' and config['seed'] == 0\n"
        "    return Run(open(dir + '/wandb.log', 'w'))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    run("train", "digits", "--loss", "penex", "--epochs", 2, "--train-size", 50,
        "--track", "wandb", "--out", tmp_path / "out")  # fmt: skip
    lines = next(tmp_path.glob("out/**/wandb.log")).read_text().splitlines()
    assert [json.loads(line)[0] for line in lines] == [1, 2]
    assert "validation/accuracy" in json.loads(lines[0])[1]
    monkeypatch.delitem(sys.modules, "wandb")


def test_environment_names_the_machine(compared: Path) -> None:
    environment = json.loads(next(compared.glob("**/environment.json")).read_text())
    assert environment["torch"].startswith("2.")
    assert environment["threads"] == 1
    assert environment["data"]["source"] == "sklearn.datasets.load_digits"
    assert len(environment["data"]["sha256"]) == 64
    assert os.getcwd() not in json.dumps(environment)
