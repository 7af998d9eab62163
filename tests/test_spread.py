"""Many workers, one comparison: whoever dies or sleeps, the table is that of one machine."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penex import cli
from penex.lab import tasks
from penex.lab.data import Collection
from penex.lab.ground.errors import Interrupted, LabError, RecordError
from penex.lab.records import Record, parcels
from penex.lab.tasks import Task
from penex.lab.tasks.runs import Run
from penex.lab.training import Hooks, Place, packing, spread
from penex.lab.training.compare import Comparison, Listing, compare
from penex.lab.training.spread import Spread
from penex.lab.workers.server import opened, transaction
from penex.report import figures, results, tables
from postgres import Server, in_trouble
from postgres import server as server

pytest.importorskip("sqlalchemy")

DIGITS = tasks.find("digits")
# Nine runs in packs of two, of which one is left alone: it would be other bits in another pack.
OPTIONS = ["--losses", "ce", "penex", "focal", "--seeds", 3, "--train-size", 40, "--epochs", 1,
           "--pack", 2]  # fmt: skip
SMALL = Comparison(DIGITS, ("ce", "penex", "focal"), 1, (40,), {"epochs": 1})
FOLDERS = ("runs", "stopped", "alone")
TABLES = ("comparison.md", "comparison.csv", "comparison.tex", "leads.csv")


def run(*words: object) -> None:
    cli.main([str(word) for word in words])


def compared(
    url: str, out: Path, what: Comparison = SMALL, *, hooks: Hooks | None = None,
    pack: int | None = 2, say: Callable[[str], None] = lambda text: None, **options: Any,
) -> Listing:  # fmt: skip
    with opened(url) as server:
        way = Spread(server, say, **options)
        return compare(what, Place(out, hooks=hooks or Hooks()), pack=pack, carry_out=way)


def table(out: Path) -> str:
    return tables.as_csv(results.load(out / "digits"))


def trained() -> tuple[list[str], Hooks]:
    """The runs that are begun, and the hooks that tell."""
    begun: list[str] = []
    return begun, Hooks(begin=lambda run, epochs: begun.append(f"{run.label} {epochs}"))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_the_table_of_three_workers_is_that_of_one_machine(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two share a folder, of whom one is killed in a pack; the third sleeps past its lease."""
    url = server.database("three")
    logs = in_trouble(url, tmp_path, True, "compare", *OPTIONS, "--lease-seconds", 2)
    assert "what it trained is thrown away" in logs["stopped"]
    assert "digits: this worker has the pack of 2 runs from number " in logs["steady"]
    # On a fast machine the steady one has trained all that was left before the sleeper wakes.
    assert "came from other workers" in logs["stopped"]
    packs = "SELECT (SELECT count(*) FROM penex_leases), count(*), count(DISTINCT number)"
    assert server.execute(f"{packs} FROM penex_parcels", url) == [(0, 9, 9)]
    monkeypatch.setattr(figures, "write_all", lambda results, folder: [])
    run("compare", *OPTIONS, "--out", tmp_path / "alone")
    for name in TABLES:
        found = {f: (tmp_path / f / "digits" / name).read_text() for f in FOLDERS}
        if name.endswith(".md"):  # its last line is the command
            found = {f: text.strip().rpartition("\n")[0] for f, text in found.items()}
            assert found["alone"].count("PENEX")
        assert found["runs"] == found["stopped"] == found["alone"], name


def test_one_that_comes_late_gets_all_and_one_forgets(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = server.database("late")
    said: list[str] = []
    listing = compared(url, tmp_path / "a", say=said.append)
    assert [text for text in said if "done" in text] == [
        "digits: 0 of 3 runs done",
        *(text for text in said if text.startswith("digits: 2 of 3 runs done, about ")),
    ]
    begun, hooks = trained()
    said.clear()
    found = compared(url, tmp_path / "b", hooks=hooks, say=said.append, pack=None, forget=True)
    assert begun == []
    assert said == ["digits: 3 of 3 runs came from other workers"]
    assert found["runs"] == listing["runs"]
    assert table(tmp_path / "b") == table(tmp_path / "a")
    for name in ("comparisons", "parcels", "leases"):
        assert server.execute(f"SELECT count(*) FROM penex_{name}", url) == [(0,)]
    run("doctor", "--storage", url)
    assert "records      of 0 comparisons\n" in capsys.readouterr().out
    said.clear()
    compared(url, tmp_path / "b", hooks=hooks, say=said.append)  # it is brought, not trained
    assert begun == []
    assert server.execute("SELECT count(*) FROM penex_parcels", url) == [(3,)]
    assert not [text for text in said if "came from" in text]
    run("doctor", "--storage", url)
    assert "records      of 1 comparison, " in capsys.readouterr().out


def test_a_pack_that_was_left_goes_on_from_its_checkpoint(server: Server, tmp_path: Path) -> None:
    url = server.database("given_back")
    what = replace(SMALL, changes={"epochs": 2})
    begun, hooks = trained()
    with pytest.raises(Interrupted):
        compared(url, tmp_path / "a", what, hooks=replace(hooks, stop=lambda: bool(begun)))
    assert begun == ["ce 0", "penex 0"]
    packs = "SELECT first, numbers, owner FROM penex_leases ORDER BY first"
    assert server.execute(packs, url) == [(0, [0, 1], None), (2, [2], None)]
    lease = "UPDATE penex_leases SET owner = 'x', version = '0.0', expires = now() + interval"
    server.execute(f"{lease} '1 hour' WHERE first = 0", url)
    with pytest.raises(LabError, match=r"Workers with penex 0\.0 are at 'comparison digits "):
        compared(url, tmp_path / "a", what)
    with pytest.raises(LabError, match="is trained in packs of 2, not 3"):
        compared(url, tmp_path / "a", what, pack=3)
    server.execute(f"{lease} '-1 hour' WHERE first = 0", url)  # they are gone
    begun.clear()
    compared(url, tmp_path / "a", what, hooks=hooks, seconds=1.0)
    assert sorted(begun) == ["ce 1", "focal 0", "penex 1"]
    compare(what, Place(tmp_path / "one"), pack=2)
    assert table(tmp_path / "a") == table(tmp_path / "one")


def other_digits() -> Collection:
    found = DIGITS.collect()
    return replace(found, facts={**found.facts, "sha256": "0" * 64})


def test_other_data_are_refused_and_other_comparisons_go_their_way(
    server: Server, tmp_path: Path
) -> None:
    url = server.database("others")
    compared(url, tmp_path / "a")
    before = server.execute("SELECT job, packs, data FROM penex_comparisons", url)
    other: Task = replace(DIGITS, collect=other_digits)
    with pytest.raises(LabError, match=r"is of other data: the checksum is 0{64} now and was "):
        compared(url, tmp_path / "b", replace(SMALL, task=other))
    assert not list(tmp_path.glob("b/*/*/*/seed-*"))
    begun, hooks = trained()
    compared(url, tmp_path / "b", replace(SMALL, seeds=2, losses=("ce",)), hooks=hooks)
    assert begun == ["ce 0", "ce 0"]
    assert set(server.execute("SELECT job, packs, data FROM penex_comparisons", url)) > set(before)
    server.execute("DELETE FROM penex_parcels WHERE number = 1", url)  # someone's hand
    begun.clear()
    compared(url, tmp_path / "c", hooks=hooks)
    assert begun == ["ce 0", "penex 0"]  # their pack again
    assert table(tmp_path / "c") == table(tmp_path / "a")


def test_a_record_that_is_not_whole_on_its_way_is_refused(server: Server, tmp_path: Path) -> None:
    url = server.database("damaged")
    compared(url, tmp_path / "a")
    # More than a member's header, of which some bytes mean nothing.
    hit = "overlay(content placing decode(repeat('00', 200), 'hex') from 2000)"
    server.execute(f"UPDATE penex_parcels SET content = {hit} WHERE number = 2", url)
    with pytest.raises(RecordError, match=r"The parcel for .* is refused: "):
        compared(url, tmp_path / "b")
    there = [path.parent.parent.parent.name for path in tmp_path.glob("b/*/*/*/*/done.json")]
    assert sorted(there) == ["ce", "penex"]


def test_records_are_packed_before_the_server_waits_for_them(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends a transaction that is idle for long, and a large network takes long."""
    inside = [False]
    packed: list[bool] = []

    @contextmanager
    def begun(where: Any) -> Iterator[Any]:
        with transaction(where) as connection:
            inside[0] = True
            yield connection
        inside[0] = False

    def pack(record: Record) -> bytes:
        packed.append(inside[0])
        return parcels.pack(record)

    monkeypatch.setattr(spread, "transaction", begun)
    monkeypatch.setattr(spread, "parcels", SimpleNamespace(pack=pack, unpack=parcels.unpack))
    compared(server.database("idle"), tmp_path)
    assert packed == [False] * 3


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("comparisons", "packs = '[[7, 1], [2]]'"),
        ("comparisons", "packs = 'half a li'"),
        ("comparisons", "packs = '[[0, 1], [-1]]'"),
        ("comparisons", "data = '{'"),
        ("leases", "numbers = '{7}'"),
    ],
)
def test_packs_that_someone_changed_are_refused(
    table: str, change: str, server: Server, tmp_path: Path
) -> None:
    url = server.database(f"changed_{len(change)}")
    begun, hooks = trained()
    with pytest.raises(Interrupted):
        compared(url, tmp_path, hooks=replace(hooks, stop=lambda: bool(begun)))
    server.execute(f"UPDATE penex_{table} SET {change}", url)
    with pytest.raises(LabError, match="are not its runs: someone changed them"):
        compared(url, tmp_path)


def test_data_that_stay_in_their_files_are_trained_one_by_one(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever --pack says, as on a machine alone; who comes next is not refused either."""
    monkeypatch.setattr(packing, "size_for", lambda place, wanted, run: 1)
    url = server.database("streams")
    compared(url, tmp_path / "a", pack=10)
    assert server.execute("SELECT size FROM penex_comparisons", url) == [(1,)]
    compared(url, tmp_path / "b", pack=10)


def test_a_comparison_that_was_removed_is_not_begun_again_by_those_who_are_at_it(
    server: Server, tmp_path: Path
) -> None:
    url = server.database("removed")

    def done(run: Run, record: object, reused: bool) -> None:
        server.execute("DELETE FROM penex_comparisons", url)  # as the documents say

    with pytest.raises(LabError, match=r"was removed from .* What is done here is kept"):
        compared(url, tmp_path, hooks=Hooks(done=done))
    assert server.execute("SELECT * FROM penex_comparisons", url) == []
    assert server.execute("SELECT first FROM penex_leases ORDER BY first", url) == [(0,), (2,)]
    begun, hooks = trained()
    compared(url, tmp_path, hooks=hooks)
    assert begun == ["focal 0"]
    assert server.execute("SELECT count(*) FROM penex_parcels", url) == [(3,)]


def test_a_server_that_is_restarted_is_waited_for(server: Server, tmp_path: Path) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if "does not answer" in text:
            server.start()

    stops = iter([True])

    def epoch(run: Run, line: object) -> None:
        if next(stops, False):
            server.stop()

    compared(server.database("away"), tmp_path / "a", hooks=Hooks(epoch=epoch), say=say)
    assert sum("does not answer" in text for text in said) == 1
    compare(SMALL, Place(tmp_path / "one"), pack=2)
    assert table(tmp_path / "a") == table(tmp_path / "one")


@pytest.mark.slow
def test_tuned_values_and_runs_are_on_one_server(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(figures, "write_all", lambda results, folder: [])
    url = server.database("tuned")
    small = ["--train-size", 40, "--epochs", 1, "--storage", url]
    run("tune", "--loss", "penex", "--trials", 2, *small, "--out", tmp_path / "a")
    words = ["compare", "--tuned", "--losses", "ce", "penex", "--seeds", 1, *small]
    run(*words, "--out", tmp_path / "a")
    run(*words, "--forget", "--out", tmp_path / "b")
    said = capsys.readouterr().err
    assert "our study: best of 2 trials" in said
    assert "digits: 2 of 2 runs came from other workers" in said
    assert table(tmp_path / "a") == table(tmp_path / "b")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--storage", "sqlite:///x.db"], "Workers share runs on a PostgreSQL server"),
        (["--storage", "studies.journal"], "Workers share runs on a PostgreSQL server"),
        (["--storage", "me:secret@db/studies"], "as postgresql://user@host/name; another"),
        (["--storage", "postgresql:/me:secret@db/studies"], "Workers share runs on a PostgreSQL"),
        (["--storage", "host=db password='my secret'"], "Workers share runs on a PostgreSQL"),
        (["--forget"], "it needs --storage postgresql://"),
        (["--storage", "SERVER", "--lease-seconds", 0], "--lease-seconds is from 1"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    words: list[object], sentence: str, server: Server, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    given = [server.url if word == "SERVER" else word for word in words]
    with pytest.raises(SystemExit) as ended:
        run("compare", *given, "--out", tmp_path)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "secret" not in said
    assert said.count("\n") == 1


def test_torchrun_and_workers_are_not_mixed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    launched = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        run("compare", "--storage", server.url, "--out", tmp_path)
    assert "torchrun has one run trained by several processes" in capsys.readouterr().err
