"""Many workers, one study: whoever dies or sleeps, the study is that of one worker."""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penex import cli
from penex.lab import tasks, tuning
from penex.lab.ground.errors import Interrupted, LabError
from penex.lab.training import Hooks, Place
from penex.lab.tuning import seals, study
from penex.lab.tuning.search import Tuning
from penex.lab.tuning.storage import open_storage
from postgres import Server, in_trouble
from postgres import server as server

optuna = pytest.importorskip("optuna")

WHAT = Tuning(
    tasks.find("digits"), ("penex",), trials=7, batch=5, train_size=40, changes={"epochs": 1}
)


def fingerprint(study: Any) -> list[tuple[object, ...]]:
    """The values and results of a study."""
    return [
        (t.number, t.params, t.state.name, t.values, t.user_attrs)
        for t in study.get_trials(deepcopy=False)
    ]


def tuned(
    url: str | None, out: Path, hooks: Hooks | None = None, what: Tuning = WHAT, **options: Any
) -> list[tuple[object, ...]]:
    with closing(open_storage(url, out)) as storage:
        place = Place(out, hooks=hooks or Hooks())
        return fingerprint(tuning.tune(what, storage, place, **{"pack": 2, **options})["penex"])


def run(*words: object) -> None:
    cli.main([str(word) for word in words])


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_a_study_of_three_workers_is_that_of_one(server: Server, tmp_path: Path) -> None:
    """One is killed in the middle of a pack, one sleeps past its lease and wakes up."""
    url = server.database("three")
    what = replace(WHAT, trials=60, batch=30)
    options = ["--loss", "penex", "--trials", 60, "--batch", 30, "--pack", 10, "--train-size", 40,
               "--epochs", 1, "--lease-seconds", 2]  # fmt: skip
    logs = in_trouble(url, tmp_path, False, "tune", *options)
    assert "what it trained is thrown away" in logs["stopped"]
    with closing(open_storage(url, tmp_path)) as storage:
        found = fingerprint(optuna.load_study(study_name="digits penex", storage=storage.optuna))
    assert [(number, state) for number, _, state, _, _ in found] == [
        (number, "COMPLETE") for number in range(60)
    ]
    assert found == tuned(None, tmp_path / "one", what=what, pack=10)
    assert server.execute("SELECT * FROM penex_leases", url) == []


@pytest.mark.slow
def test_a_server_that_is_restarted_is_waited_for(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of training, of asking for a batch, and of telling a pack."""
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if "does not answer" in text:
            server.start()

    def interrupted(act: Any, at: int) -> Any:
        calls = 0

        def called(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                server.stop()
            return act(*arguments)

        return called

    monkeypatch.setattr(study, "sampler", interrupted(study.sampler, 3))
    monkeypatch.setattr(seals, "seal_trial", interrupted(seals.seal_trial, 6))
    hooks = Hooks(epoch=interrupted(lambda run, line: None, 3))
    found = tuned(server.database("restarted"), tmp_path / "a", hooks, say=say)
    monkeypatch.undo()
    assert sum("does not answer" in text for text in said) == 3
    assert found == tuned(server.database("not_restarted"), tmp_path / "b")


@pytest.mark.slow
def test_a_pack_that_was_given_back_or_left_goes_on_from_its_checkpoint(
    server: Server, tmp_path: Path
) -> None:
    url = server.database("given_back")
    two = replace(WHAT, changes={"epochs": 2})
    begun: list[object] = []
    hooks = Hooks(begin=lambda run, epochs: begun.append(run), stop=lambda: bool(begun))
    with pytest.raises(Interrupted):
        tuned(url, tmp_path, hooks, two)
    assert len(begun) == 2
    packs = "SELECT first, numbers, owner, expires FROM penex_leases ORDER BY first"
    free = [(0, [0, 1], None, None), (2, [2, 3], None, None), (4, [4], None, None)]
    assert server.execute(packs, url) == free
    for words, what, pack in (
        ("its seed is 0, not 1", replace(two, seed=1), 2),
        ("is trained in packs of 2, not 3", two, 3),
    ):
        with pytest.raises(LabError, match=words):
            tuned(url, tmp_path, what=what, pack=pack)
    lease = "UPDATE penex_leases SET owner = 'x', version = '0.0', expires = now() + interval"
    server.execute(f"{lease} '1 hour' WHERE first = 0", url)
    with pytest.raises(LabError, match=r"Workers with penex 0\.0 are at .*, and this is penex"):
        tuned(url, tmp_path, what=two)
    server.execute(f"{lease} '-1 hour' WHERE first = 0", url)  # they are gone
    reached: list[int] = []
    later = Hooks(begin=lambda run, epochs: reached.append(epochs))
    found = tuned(url, tmp_path, later, two, lease_seconds=1.0)
    assert sorted(reached) == [0, 0, 0, 0, 0, 1, 1]  # the first pack from its checkpoint
    assert found == tuned(server.database("never_given_back"), tmp_path / "whole", what=two)


@pytest.fixture(scope="module")
def guest(server: Server) -> str:
    """The URL of a database whose user has a password, "right"."""
    server.execute("CREATE ROLE guest LOGIN PASSWORD 'right'")
    server.execute("CREATE DATABASE guests OWNER guest")
    return server.address("guests", "guest:right")


@pytest.mark.parametrize(
    "command",
    [["tune", "--loss", "penex"], ["compare"], ["compare", "--tuned"], ["doctor"]],
    ids=" ".join,
)
def test_a_server_that_will_not_do_is_one_sentence(
    command: list[str], server: Server, guest: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for url, words in (
        ("postgresql://me:secret@host:port/x", "cannot be opened"),
        ("postgresql://me:secret@localhost:1/x", "refused"),
        (guest.replace(":right", ":secret"), "password authentication failed"),
        (guest.replace("/guests", "/nowhere"), 'database "nowhere" does not exist'),
        (guest.replace("/guests", "/studies"), "permission denied for schema public"),
    ):
        with pytest.raises(SystemExit) as ended:
            run(*command, "--storage", url)
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
        assert "secret" not in said
        assert "right" not in said


def test_doctor_says_that_a_server_will_do(
    server: Server, guest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("doctor", "--storage", guest)
    said = capsys.readouterr().out
    assert "server       PostgreSQL" in said
    assert "0 packs being trained" in said
    assert "right" not in said
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert server.execute(tables, guest) == [(0,)]
    with pytest.raises(SystemExit):
        run("doctor", "--storage", "sqlite:///x.db")
    assert "on a PostgreSQL server only" in capsys.readouterr().err


@pytest.mark.slow
def test_a_worker_says_which_pack_it_has_and_how_the_study_stands(
    guest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("tune", "--loss", "penex", "--trials", 3, "--batch", 3, "--pack", 2, "--train-size", 40,
        "--epochs", 1, "--storage", guest, "--out", tmp_path)  # fmt: skip
    said = capsys.readouterr()
    assert "penex: this worker has the pack of 1 trial from number 2 on" in said.err
    assert "penex: 2 of 3 trials, 1 running" in said.err
    assert "guest:right" not in said.out + said.err
