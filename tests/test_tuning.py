"""Tuning: the same seed gives the same study, whatever happens to the process."""

import html
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from our_results import unpacked
from penex import cli
from penex.cli.parsing import call_of
from penex.lab import tasks, tuning
from penex.lab.ground.errors import Interrupted, LabError
from penex.lab.records import Record
from penex.lab.tasks import runs
from penex.lab.training import Hooks, Place
from penex.lab.training.compare import Comparison
from penex.lab.tuning.search import FIRST_SAMPLER, Tuning
from penex.lab.tuning.storage import JOURNAL, Storage, alone, open_storage
from penex.lab.tuning.study import ATTRIBUTE, all_studies, progress, sampler
from penex.lab.tuning.values import tuned
from penex.lab.workers.server import said
from penex.paper.printed import authors_of
from penex.registry import FIVE, Parameter
from penex.report import studies
from penex.report.page import tuning as tuning_page
from postgres import Server
from postgres import server as server

optuna = pytest.importorskip("optuna")

CPU = torch.device("cpu")
DIGITS = tasks.find("digits")
WORKER = Path(__file__).with_name("kill_worker.py")
SMALL: dict[str, Any] = {"trials": 7, "batch": 3, "train_size": 40, "changes": {"epochs": 1}}


def fingerprint(study: Any) -> list[tuple[object, ...]]:
    """The values and results of a study."""
    return [(t.number, t.params, t.state.name, t.values) for t in study.get_trials(deepcopy=False)]


def small(*losses: str, **changes: Any) -> Tuning:
    return Tuning(DIGITS, losses or ("penex",), **{**SMALL, **changes})


def carried_out(what: Tuning, out: Path, hooks: Hooks | None = None, **options: Any) -> Any:
    storage = open_storage(None, out / what.task.name)
    return tuning.tune(what, storage, Place(out, hooks=hooks or Hooks()), **options)


def test_momentum_is_for_sgd_wherever_that_is_chosen() -> None:
    """By the task, by all of the comparison or the study, or by the contender alone."""
    given = {"momentum": 0.9}
    for words in ("ce", "ce@lr=0.1"):
        with pytest.raises(LabError, match="of sgd alone"):
            runs.plan(DIGITS, runs.Contender.parse(words), 0, changes=given)
    own = runs.Contender.parse("ce@optimizer=sgd")
    resnet = tasks.find("cifar10_resnet18")
    for run in (
        runs.plan(DIGITS, own, 0, changes=given),
        runs.plan(resnet, runs.Contender.parse("ce"), 0, changes=given),
        small(changes={**given, "optimizer": "sgd"}, along=("lr",)).run("penex", {"lr": 0.01}),
    ):
        assert (run.recipe.optimizer, run.recipe.momentum) == ("sgd", 0.9)
    left = runs.plan(resnet, runs.LossSpec("ce"), 0, changes={"optimizer": "adam"})
    assert left.recipe.momentum == 0.9  # the task's own, which nobody asked for


# The same study.


@pytest.mark.slow
def test_the_same_seed_gives_the_same_study_to_the_last_bit(tmp_path: Path) -> None:
    prints = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        found = carried_out(small("penex", "focal", seed=seed), tmp_path / name)
        assert {loss: len(study.trials) for loss, study in found.items()} == {
            "penex": 7,
            "focal": 7,
        }
        prints.append({loss: fingerprint(study) for loss, study in found.items()})
    assert prints[0] == prints[1]
    assert prints[0]["penex"] != prints[2]["penex"]


def test_every_trial_is_a_run_with_a_record(tmp_path: Path) -> None:
    what = small("penex")
    study = carried_out(what, tmp_path)["penex"]
    for trial in study.trials:
        record = Record.of(tmp_path, what.run("penex", trial.params).config)
        assert trial.user_attrs["record"] == str(record.folder.relative_to(tmp_path))
        assert trial.value == record.done()["validation"]["cross_entropy"]
        assert trial.user_attrs["test"] == record.done()["test"]
        assert 1e-5 <= trial.params["alpha"] <= 1
    before = [trial.params for trial in study.trials]
    later = carried_out(replace(what, trials=9), tmp_path)["penex"]
    assert [t.params for t in later.trials[:7]] == before
    assert len(later.trials) == 9


@pytest.mark.slow
def test_after_the_first_ten_the_search_is_no_longer_blind(tmp_path: Path) -> None:
    """TPE's suggestions follow the results: the first ten are random, the later ones are not."""
    what = small("focal", trials=20, batch=10)
    first = carried_out(what, tmp_path / "a")["focal"]
    blind = [sampler(0, n, "gamma") for n in range(20)]
    empty = optuna.create_study()
    expected = []
    for one in blind:
        empty.sampler = one
        expected.append(empty.ask().suggest_float("gamma", 0.0, 5.0))
    values = [trial.params["gamma"] for trial in first.trials]
    assert values[:10] == expected[:10]
    assert all(a != b for a, b in zip(values[10:], expected[10:], strict=True))


def test_a_trial_that_diverges_fails_with_its_reason(tmp_path: Path) -> None:
    """The exponential loss under an alpha that is too large."""
    search = {"ex": (Parameter("alpha", 1.0, 1.0, 2000.0, "how hard an example pulls"),)}
    task = replace(DIGITS, search=search)
    what = Tuning(task, ("ex",), **{**SMALL, "trials": 6, "changes": {"epochs": 2, "lr": 0.1}})
    study = carried_out(what, tmp_path)["ex"]
    failed = [t for t in study.trials if t.state.name == "FAIL"]
    assert failed
    assert all("at step" in trial.user_attrs["reason"] for trial in failed)
    assert all(trial.value is None for trial in failed)
    stand = progress(study, "ex", 6)
    assert (stand.failed, stand.finished) == (len(failed), 6)
    page = tuning_page.build("digits", [studies.load(study, "ex", tmp_path)], "penex tune")
    assert "Failed trials" in page
    assert failed[0].user_attrs["reason"] in page
    value = failed[0].params["alpha"]
    assert f"Trial {failed[0].number} (alpha {value:.4g}): the loss was" in page


def test_two_trials_with_one_value_are_one_run(tmp_path: Path) -> None:
    search = {"penex": (Parameter("alpha", 0.1, 0.1, 0.1, "a point"),)}
    what = replace(small("penex"), task=replace(DIGITS, search=search))
    study = carried_out(what, tmp_path)["penex"]
    assert len({trial.value for trial in study.trials}) == 1
    assert len(list(tmp_path.glob("**/done.json"))) == 1


# Stopping and going on.


@pytest.mark.slow
def test_a_stopped_study_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    what = small("penex", "conex_lagrangian", changes={"epochs": 2})
    whole = carried_out(what, tmp_path / "whole")
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked % 3 == 0

    for _ in range(100):
        try:
            found = carried_out(what, tmp_path / "broken", hooks=Hooks(stop=stop))
            break
        except Interrupted:
            pass
    assert asked >= 6
    for loss, study in whole.items():
        assert fingerprint(found[loss]) == fingerprint(study)


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_trial_that_was_only_half_suggested_is_completed(tmp_path: Path, kept: int) -> None:
    """Killed after any line of the journal: the suggestions are those of an undisturbed study."""
    what = small("conex_lagrangian", trials=3)
    whole = carried_out(what, tmp_path / "whole")["conex_lagrangian"]
    lines = (tmp_path / "whole" / "digits" / JOURNAL).read_bytes().splitlines(keepends=True)
    start = next(k for k, line in enumerate(lines) if json.loads(line)["op_code"] == 4)
    broken = tmp_path / "broken" / "digits"
    broken.mkdir(parents=True)
    half = lines[start + kept][: len(lines[start + kept]) // 2]  # and half a line more
    (broken / JOURNAL).write_bytes(b"".join(lines[: start + kept]) + half)
    found = carried_out(what, tmp_path / "broken")["conex_lagrangian"]
    assert fingerprint(found) == fingerprint(whole)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_a_killed_study_completes_with_the_same_trials(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(WORKER), str(tmp_path), "4", "0", "tune"],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    hit, count = (int(word) for word in done.stdout.split())
    assert hit == 4
    prints = []
    for folder in ("whole", *(str(k) for k in range(count))):
        storage = open_storage(None, tmp_path / folder / "digits").optuna
        loaded = [
            optuna.load_study(study_name=f"digits {loss}", storage=storage)
            for loss in ("penex", "focal")
        ]
        for study in loaded:
            assert [t.number for t in study.trials] == list(range(15))
            assert all(t.state.is_finished() for t in study.trials)
        prints.append([fingerprint(study) for study in loaded])
    assert prints == [prints[0]] * len(prints)


# Where studies are kept.


def test_another_study_is_refused(tmp_path: Path) -> None:
    carried_out(small("penex", trials=3), tmp_path)
    before = (tmp_path / "digits" / JOURNAL).read_bytes()
    search = {"penex": (Parameter("alpha", 0.1, 1e-5, 3.0, "wider"),)}
    others = {
        "its seed is 0, not 1": small(seed=1),
        "its batch is 3, not 4": small(batch=4),
        "its search.alpha is [1e-05, 1.0], not [1e-05, 3.0]": replace(
            small(), task=replace(DIGITS, search=search)
        ),
        "its run.train_size is 40, not 50": small(train_size=50),
        "its run.recipe.epochs is 1, not 2": small(changes={"epochs": 2}),
        "its run.class_weights is none, not balanced": small(
            treatment=runs.Treatment(class_weights="balanced")
        ),
    }
    for words, other in others.items():
        with pytest.raises(LabError) as refused:
            carried_out(other, tmp_path)
        assert words in str(refused.value)
    assert (tmp_path / "digits" / JOURNAL).read_bytes() == before


def test_a_version_or_a_study_that_is_not_ours_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_storage(None, tmp_path / "digits")
    study = optuna.create_study(storage=place.optuna, study_name="digits focal")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    with pytest.raises(LabError, match="was not made by penex tune"):
        carried_out(small("focal"), tmp_path)
    carried_out(small("penex", trials=1), tmp_path)
    monkeypatch.setattr("penex.lab.tuning.search.FORMAT", 2)
    with pytest.raises(LabError, match="its format is 1, not 2"):
        carried_out(small("penex", trials=1), tmp_path)


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    for content in (b"no journal\nat all\n", b"my notes", b"\x00\x01\n\x02", b"{}\n{"):
        path.write_bytes(content)
        with pytest.raises(LabError, match="is no journal that can be read"):
            open_storage(None, tmp_path)
        assert path.read_bytes() == content


def test_half_a_line_of_another_process_is_cut_before_the_next_write(tmp_path: Path) -> None:
    place = open_storage(None, tmp_path)
    study = optuna.create_study(storage=place.optuna, study_name="x")
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 5, "worker_id": "a')
    reader = open_storage(None, tmp_path, existing=True)
    assert optuna.get_all_study_names(reader.optuna) == ["x"]
    study.set_user_attr("still", "here")
    again = open_storage(None, tmp_path)
    assert optuna.load_study(study_name="x", storage=again.optuna).user_attrs == {"still": "here"}


@pytest.mark.parametrize(
    "rest",
    [b'{"op', b'{"op_code"', b"{", b"\0" * 50, b'{"op_code":5\0\0\0', b"\n", b'{"a"\n', b"5\n"],
)
def test_a_last_line_that_is_not_whole_is_cut_before_the_next_write(
    tmp_path: Path, rest: bytes
) -> None:
    """However short, and whether a killed process left it or a power cut."""
    path = tmp_path / JOURNAL
    study = optuna.create_study(storage=open_storage(None, tmp_path).optuna, study_name="x")
    whole = path.read_bytes()
    for writer in (study, None):  # one that was open before, and one that opens now
        path.write_bytes(whole + rest)
        if writer is None:
            storage = open_storage(None, tmp_path).optuna
            assert path.read_bytes() == whole
            writer = optuna.load_study(study_name="x", storage=storage)
        writer.set_user_attr("still", "here")
        again = open_storage(None, tmp_path).optuna
        found = optuna.load_study(study_name="x", storage=again)
        assert found.user_attrs == {"still": "here"}


@pytest.mark.parametrize("rest", [b'{"op', b'{"op_code": 0, "w', b"\0" * 50])
def test_a_journal_whose_first_line_is_not_whole_is_empty(tmp_path: Path, rest: bytes) -> None:
    (tmp_path / JOURNAL).write_bytes(rest)
    place = open_storage(None, tmp_path, existing=True)
    assert optuna.get_all_study_names(place.optuna) == []
    assert (tmp_path / JOURNAL).read_bytes() == rest
    open_storage(None, tmp_path)
    assert (tmp_path / JOURNAL).read_bytes() == b""


@pytest.mark.parametrize("bad", [b'{"op{"op_code":5}\n', b"\0\0\0\n", b"5\n", b"\n", b"\xff\n"])
def test_a_bad_line_in_the_middle_is_one_sentence(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / JOURNAL
    study = optuna.create_study(storage=open_storage(None, tmp_path).optuna, study_name="x")
    study.set_user_attr("still", "here")
    first, _, rest = path.read_bytes().partition(b"\n")
    broken = first + b"\n" + bad + rest
    path.write_bytes(broken)
    for existing in (False, True):
        with pytest.raises(LabError, match="is no journal that can be read"):
            open_storage(None, tmp_path, existing=existing)
    assert path.read_bytes() == broken


@pytest.mark.parametrize("again", [True, False])
def test_a_journal_removed_while_in_use_is_not_begun_in_the_middle(
    tmp_path: Path, again: bool
) -> None:
    study = optuna.create_study(storage=open_storage(None, tmp_path).optuna, study_name="x")
    path = tmp_path / JOURNAL
    path.rename(tmp_path / "elsewhere")  # its inode stays taken
    if again:  # by another process
        optuna.create_study(storage=open_storage(None, tmp_path).optuna, study_name="y")
    before = path.read_bytes() if again else None
    with pytest.raises(LabError, match="was removed or replaced while it was in use"):
        study.set_user_attr("a", 1)
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_mistake_leaves_no_study_behind(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="examples to train on"):
        carried_out(small("penex", train_size=100_000), tmp_path)
    carried_out(small("penex", trials=1), tmp_path)


def test_a_study_of_other_data_is_none(tmp_path: Path) -> None:
    carried_out(small("penex", trials=2), tmp_path)
    like = runs.plan(DIGITS, runs.LossSpec("ce"), 0, 50)
    (found,) = tuned(DIGITS, ("penex",), [like], None, tmp_path / "digits")
    assert "our study: best of 2 trials" in found.source
    assert found.source.endswith("it was made with train_size 40, epochs 1")
    other = replace(DIGITS, identity={"sha256": "x"})
    like = runs.plan(other, runs.LossSpec("ce"), 0)
    (found,) = tuned(other, ("penex",), [like], None, tmp_path / "digits")
    assert found == type(found)(
        "penex", "the default (the study is of other data, and no value of the authors')"
    )


@pytest.mark.slow
def test_no_password_is_written_or_said(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = server.url.replace("penex@", "penex:hunter@2@")  # the server trusts everyone
    options = ["--train-size", 40, "--epochs", 1, "--out", tmp_path, "--storage", secret]
    run("tune", "--loss", "focal", "--trials", 2, "--batch", 2, *options)
    run("tune", "--loss", "focal", "--trials", 2, "--batch", 2, *options[:-3], tmp_path / "b",
        *options[-2:])  # fmt: skip
    assert (tmp_path / "b" / "digits" / "tuning.html").exists()
    run("compare", "--tuned", "--losses", "focal", "--seeds", 1, *options)
    said = capsys.readouterr()
    assert "our study" in said.err
    assert "hunter" not in said.out + said.err
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"hunter" not in path.read_bytes(), path


def test_the_page_has_every_study_of_the_task(tmp_path: Path) -> None:
    options = ["--trials", 2, "--batch", 2, "--train-size", 40, "--epochs", 1, "--out", tmp_path]
    run("tune", "--loss", "penex", *options)
    best = next((tmp_path / "digits" / "penex").glob("*/seed-0/metrics.jsonl"))
    best.write_text("damaged")
    run("tune", "--loss", "focal", *options)
    page = (tmp_path / "digits" / "tuning.html").read_text()
    assert 'id="penex"' in page
    assert 'id="focal"' in page


def test_several_processes_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (
        ("RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "a"),
        ("MASTER_PORT", "1"),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        run("tune", "--loss", "penex")
    assert "without torchrun" in capsys.readouterr().err


def opened(url: str | None, folder: Path) -> AbstractContextManager[Storage]:
    return closing(open_storage(url, folder))


def busy(place: Storage, other: Storage, name: str) -> str:
    """What a second process is told, as flock and a server see two openings of one file."""
    with alone(place, [name]), pytest.raises(LabError) as refused, alone(other, [name]):
        pass
    with alone(other, [name]):  # let go
        pass
    return str(refused.value)


def test_one_process_a_study(tmp_path: Path) -> None:
    first, second = (open_storage(None, tmp_path) for _ in range(2))
    assert "Another process tunes digits penex" in busy(first, second, "digits penex")
    with alone(first, ["digits penex"]), alone(second, ["digits focal"]):
        pass


@pytest.mark.slow
def test_sqlite_is_for_one_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/studies.db"
    with opened(url, tmp_path) as first, opened(url, tmp_path) as second:
        assert "SQLite locks its whole file" in busy(first, second, "digits penex")
        with (
            alone(first, ["digits penex"]),
            pytest.raises(LabError, match="PostgreSQL"),
            alone(second, ["digits focal"]),
        ):
            pass
        what = small("penex")
        found = tuning.tune(what, first, Place(tmp_path))["penex"]
        again = carried_out(what, tmp_path / "journal")["penex"]
        assert fingerprint(found) == fingerprint(again)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("studies.db", "--storage is a URL"),
        ("sqlite:////no/such/folder/x.db", "cannot be opened"),
        ("postgresql://me:secret@localhost:1/x", "cannot be opened"),
        ("parchment://x", "cannot be opened"),
        ("sqlite://", "keeps nothing"),
        ("sqlite:///:memory:", "keeps nothing"),
        ("sqlite:///file::memory:?cache=shared&uri=true", "keeps nothing"),
        ("me:secret@host", "--storage is a URL"),
    ],
)
def test_a_storage_that_cannot_be_opened_is_one_sentence(
    url: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(LabError, match=words) as refused:
        open_storage(url, tmp_path)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_a_server_gives_the_same_study(server: Server, tmp_path: Path) -> None:
    what = small("penex")
    with opened(server.url, tmp_path) as place:
        found = tuning.tune(what, place, Place(tmp_path / "a"))["penex"]
        again = carried_out(what, tmp_path / "b")["penex"]
        assert fingerprint(found) == fingerprint(again)


@pytest.mark.slow
def test_several_processes_open_a_new_database_at_once(server: Server, tmp_path: Path) -> None:
    url = server.database("fresh")
    worker = Path(__file__).with_name("storage_worker.py")
    done = subprocess.run(
        [sys.executable, str(worker), url, str(tmp_path), "3"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    with opened(url, tmp_path) as storage:
        names = optuna.get_all_study_names(storage.optuna)
    assert sorted(names) == ["study 0", "study 1", "study 2"]


# The command, the page, and what a comparison makes of a study.


def run(*words: object) -> None:
    cli.main([str(word) for word in words])


@pytest.mark.slow
def test_tune_then_compare_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--train-size", 40, "--epochs", 1, "--out", tmp_path]
    run("tune", "--loss", "penex", "focal", "--trials", 4, "--batch", 2, *options)
    said = capsys.readouterr()
    assert "PENEX: best alpha" in said.out
    assert "penex: 2 of 4 trials, 2 running; best so far alpha" in said.err
    command = said.out.rpartition("To compare the losses at these values: ")[2]
    asked = "penex compare --tuned --epochs 1 --train-size 40 --out"
    assert shlex.split(command) == [*asked.split(), str(tmp_path)]
    call_of(cli.COMMANDS, shlex.split(command)[1:])  # it can be given as it is
    page = (tmp_path / "digits" / "tuning.html").read_text()
    assert "best on digits" in page
    assert page.count("<tr>") == 2 * (4 + 1)
    run("compare", "--tuned", "--seeds", 1, *options)
    said = capsys.readouterr()
    best = min(
        optuna.load_study(
            study_name="digits penex", storage=open_storage(None, tmp_path / "digits").optuna
        ).trials,
        key=lambda trial: trial.value,
    )
    value = float(f"{best.params['alpha']:.3g}")
    assert f"penex:alpha={value}: our study: best of 4 trials" in said.err
    assert "ce: nothing to tune" in said.err
    assert "label_smoothing: the default (no study" in said.err
    assert f"alpha={value}" in (tmp_path / "digits" / "comparison.json").read_text()
    for name in ("page.html", "comparison.md"):  # and not only on the terminal
        text = html.unescape((tmp_path / "digits" / name).read_text())
        assert f"PENEX (alpha={value}): our study: best of 4 trials" in text
    assert "it was made with" not in said.err
    for sizes in ((40, 60), (60, 40)):
        run("compare", "--tuned", "--seeds", 1, "--losses", "penex", "--epochs", 1,
            "--train-size", *sizes, "--out", tmp_path)  # fmt: skip
        assert "it was made with train_size 40" in capsys.readouterr().err


def test_the_studies_of_a_page_may_be_made_in_different_ways(tmp_path: Path) -> None:
    run("tune", "--loss", "focal", "--trials", 2, "--epochs", 2, "--train-size", 50, "--seed", 5,
        "--out", tmp_path)  # fmt: skip
    alike = (tmp_path / "digits" / "tuning.html").read_text()
    assert "seed 5, in batches of 10; each trial trains 2 epochs on 50 examples" in alike
    assert "Made with" not in alike
    run("tune", "--loss", "penex", "--trials", 2, "--epochs", 1, "--train-size", 40,
        "--out", tmp_path)  # fmt: skip
    page = (tmp_path / "digits" / "tuning.html").read_text()
    assert "each study in its own way" in page
    assert "Made with seed 5, in batches of 10; each trial trains 2 epochs on 50 examples." in page
    assert "Made with seed 0, in batches of 10; each trial trains 1 epoch on 40 examples." in page
    assert "their bars are not the same measure" in page


def test_records_that_are_elsewhere_are_said(tmp_path: Path) -> None:
    study = carried_out(small("penex"), tmp_path)["penex"]
    words = "The curves of the best and the worst trial are not drawn"
    here = tuning_page.build("digits", [studies.load(study, "penex", tmp_path)], "")
    there = tuning_page.build("digits", [studies.load(study, "penex", tmp_path / "other")], "")
    assert words not in here
    assert words in there
    best = min(study.trials, key=lambda trial: trial.value or 0.0)
    (tmp_path / best.user_attrs["record"] / "metrics.jsonl").write_text("{}\n")
    assert words in tuning_page.build("digits", [studies.load(study, "penex", tmp_path)], "")


@pytest.mark.parametrize("harm", ["unknown entry", "lost line"])
def test_a_damaged_journal_is_one_sentence(
    harm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", "--loss", "penex", "--trials", 2, "--epochs", 1, "--train-size", 40]
    run(*command, "--out", tmp_path)
    path = tmp_path / "digits" / JOURNAL
    lines = path.read_text().splitlines(keepends=True)
    if harm == "unknown entry":
        lines.append('{"op_code": 99, "worker_id": "x"}\n')
    else:
        lines.remove(next(line for line in lines if '"param_name"' in line))
    path.write_text("".join(lines))
    with pytest.raises(SystemExit) as ended:
        run(*command, "--out", tmp_path)
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "is no journal that can be read" in said or "is not as it was written" in said
    assert path.read_text() == "".join(lines)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (r'"values":\[\d', '"values":[0'),
        (r'"values":\[[\d.]+\]', '"values":[[1]]'),
        (r'"accuracy":\d', '"accuracy":7'),
        (r'"param_value_internal":[\d.]+', '"param_value_internal":0.5'),
        (r'"record":"digits', '"record":"elsewhere'),
        (r'"state":1', '"state":3'),
        (r'"directions":\[1\]', '"directions":[2]'),
        (r'"train_size":40', '"train_size":41'),
        (r'"search":{', '"found":{'),
    ],
)
def test_a_study_that_was_changed_is_refused(tmp_path: Path, before: str, after: str) -> None:
    """A number that is another one now is no fault of a line, and Optuna has no checksums."""
    found = carried_out(small(trials=1, batch=1), tmp_path)
    path = tmp_path / "digits" / JOURNAL
    text = path.read_text()
    path.write_text(re.sub(before, after, text))
    assert path.read_text() != text
    with pytest.raises(LabError, match="The study 'digits penex' is damaged: "):
        all_studies(open_storage(None, tmp_path / "digits", existing=True), "digits")
    assert len(found["penex"].trials) == 1


def test_a_study_without_a_name_or_a_trial_without_its_metrics_is_refused(tmp_path: Path) -> None:
    carried_out(small(trials=1, batch=1), tmp_path)
    path = tmp_path / "digits" / JOURNAL
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    bare = "".join(x for x in lines if '"validation"' not in x and '{"seal"' not in x)
    nameless = text.replace('"study_name":"digits penex"', '"study_name":null')
    for harmed in (bare, nameless):
        assert harmed != text
        path.write_text(harmed)
        with pytest.raises(LabError, match=" is damaged: "):
            all_studies(open_storage(None, tmp_path / "digits", existing=True), "digits")


def test_an_earlier_versions_study_has_no_seals(tmp_path: Path) -> None:
    first = [t.value for t in carried_out(small(trials=3), tmp_path)["penex"].trials]
    path = tmp_path / "digits" / JOURNAL
    lines = path.read_text().splitlines(keepends=True)
    bare = [re.sub(r',"seal":"\w+"', "", x) for x in lines if '{"seal"' not in x]
    path.write_text("".join(bare))
    assert "seal" not in path.read_text()
    found = carried_out(small(trials=4), tmp_path)
    assert [t.value for t in found["penex"].trials][:3] == first


def test_a_server_that_goes_away_is_named_as_the_cause() -> None:
    wrapped = RuntimeError("An exception is raised during the commit.")
    wrapped.__cause__ = OSError("server closed the connection unexpectedly")
    assert said(wrapped) == "server closed the connection unexpectedly"


def test_a_storage_of_studies_alone_needs_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("compare", "--storage", "sqlite:///x.db")
    assert ended.value.code == 2
    assert "is for the studies of --tuned; got sqlite" in capsys.readouterr().err


def test_where_values_come_from(tmp_path: Path) -> None:
    cifar10 = tasks.find("cifar10")
    like = runs.plan(cifar10, runs.LossSpec("ce"), 0)
    losses = ("ce", "penex", "focal:gamma=1", "ce_zloss")
    found = tuned(cifar10, losses, [like], None, tmp_path, authors_of("cifar10"))
    assert [(one.loss, one.source) for one in found] == [
        ("ce", "nothing to tune"),
        ("penex:alpha=0.03", "the authors' value (no study)"),
        ("focal:gamma=1", "as given"),
        ("ce_zloss", "the default (no study, and no value of the authors')"),
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--loss", "ce"], "The loss ce has no parameter to tune"),
        (["--loss", "penx"], "penex"),
        ([], "Say what to tune"),
        (["--loss", "penex", "--all"], "Say what to tune"),
        (["--loss", "penex", "--trials", "0"], "from 1 to 100,000 trials"),
        (["--loss", "penex", "--batch", "0"], "A batch has from 1"),
        (["--loss", "penex", "penex"], "there twice"),
        (["--loss", "penex", "--storage", "x"], "--storage is a URL"),
        (["--loss", "penex", "--train-size", "100000"], "examples to train on"),
    ],
)
def test_wrong_options_are_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run("tune", *words, "--out", tmp_path)
    assert ended.value.code == 2
    said = capsys.readouterr().err.strip()
    assert sentence in said
    assert said.count("\n") == 0


def test_without_optuna_there_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(LabError, match=r"pip install '\.\[tune\]'"):
        open_storage(None, tmp_path)


def test_our_own_studies_are_whole_and_still_the_same_studies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four losses of fifty trials on CIFAR-10; `--tuned` takes their values, without data."""
    unpacked(tmp_path, "cifar10")
    what = Tuning(tasks.find("cifar10"), FIVE[1:])
    found = all_studies(open_storage(None, tmp_path / "cifar10", existing=True), "cifar10")
    assert set(found) == set(FIVE[1:])
    for loss, study in found.items():
        known = {"sampler": FIRST_SAMPLER, **study.user_attrs[ATTRIBUTE]}
        assert known == what.identity(loss)
        assert [t.number for t in study.get_trials(deepcopy=False)] == list(range(50))
        assert progress(study, loss, 50).finished == 50
    like = Comparison(what.task, ("ce",), 1).runs
    best = tuned(what.task, ("penex",), like, None, tmp_path / "cifar10")
    assert best[0].source.startswith("our study: best of 50 trials")
    run("tune", "cifar10", "--all", "--out", tmp_path)
    assert "label smoothing: best epsilon 0.04992 (trial 2; the authors have 0.039)" in (
        capsys.readouterr().out
    )


def trial(number: int, alpha: float, accuracy: float) -> studies.Trial:
    metrics = {"accuracy": accuracy, "cross_entropy": 1 - accuracy}
    return studies.Trial(number, {"alpha": alpha}, metrics, {}, "", Record(Path()), "complete")


def test_the_share_of_the_range_that_is_as_good_as_the_best() -> None:
    """By hand: 0.80 up to 0.2, a line down to 0.70 at 0.7, flat after it."""
    study = studies.Study("penex", {"alpha": (0.0, 1.0)}, set(), {})
    assert study.share_close("accuracy", 0.01) is None
    study.trials = [trial(0, 0.2, 0.80), trial(1, 0.7, 0.70)]
    # 0.79 is reached a tenth of the way: 0.2 + 0.05. The other metric is 1 less this one.
    assert study.share_close("accuracy", 0.01) == pytest.approx(0.25)
    assert study.share_close("cross_entropy", 0.01) == pytest.approx(0.25)
    assert study.share_close("cross_entropy", 0.05) == pytest.approx(0.45)
    study.trials.append(trial(2, 1.0, 0.795))
    # and again on the way up to 0.795: the last 0.005 of 0.095, over 0.3.
    assert study.share_close("accuracy", 0.01) == pytest.approx(0.25 + 0.3 * 0.005 / 0.095)
    best = study.best
    assert best is not None
    assert best.number == 0
