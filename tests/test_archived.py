"""A task's records in one archive: read in place, with the same numbers, and never trusted."""

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from our_results import RESULTS, unpacked
from penex import cli
from penex.lab import tasks
from penex.lab.ground.errors import LabError, RecordError
from penex.lab.records import Record, archived
from penex.lab.records.scores import pack
from penex.lab.training import Hooks, Place
from penex.lab.training.compare import Comparison, compare
from penex.lab.tuning.storage import open_storage
from penex.lab.tuning.study import all_studies
from penex.paper import plan
from penex.report import figures, results, tables
from penex.report.finished import read

MARK = b"penex records 1"


def written(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes], mark: bytes = MARK) -> Path:
    """An archive by hand."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = mark
        for name, content in members:
            archive.writestr(name, content)
    return path


def content(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_a_folder_packed_and_read_is_the_same(tmp_path: Path) -> None:
    """Packing is a function of the records, and what is packed already stays as it is."""
    folder = unpacked(tmp_path, "cifar10_noisy_resample") / "cifar10_noisy_resample"
    for place in (*folder.glob("*/*/seed-[2-4]"), *folder.glob("[!cp]*")):
        shutil.rmtree(place)  # three losses with two seeds are enough
    archive = pack(folder)
    first = archive.read_bytes()
    kept = content(archive)
    known = content(RESULTS / archive.name)
    assert kept == {name: known[name] for name in kept}
    assert sum(name.endswith("done.json") for name in kept) == 6
    shutil.rmtree(folder)
    folder.mkdir()
    assert pack(folder).read_bytes() == first
    assert {name: archived.read(folder / name) for name in archived.names(folder)} == kept


def test_readers_say_the_same_of_a_folder_and_of_its_archive(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, "pathmnist") / "pathmnist"
    of_folder, of_archive = results.load(folder), results.load(RESULTS / "pathmnist")
    for form in (tables.as_csv, tables.markdown, tables.latex):
        assert form(of_folder) == form(of_archive)
    for one, other in zip(of_folder.records(), of_archive.records(), strict=True):
        assert (one.done, one.config, one.history) == (other.done, other.config, other.history)
    assert [row.classes for row in of_archive.rows] == 7 * [9]
    assert of_archive.damaged == []


def test_the_folders_runs_come_first_and_the_archives_fill_in(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, "pathmnist") / "pathmnist"
    shutil.copy(RESULTS / "pathmnist.zip", tmp_path)
    (own,) = folder.glob("ce/*/seed-0")
    changed = Record(own)
    done = changed.done()
    done["test"]["accuracy"] = 0.125
    changed.finish(done)
    for place in folder.glob("*/*/seed-[1-4]"):
        shutil.rmtree(place)
    (begun,) = folder.glob("label_smoothing/*/seed-0")
    (begun / "done.json").unlink()  # not done here: then all of it is the archive's
    (begun / "metrics.jsonl").write_text("")
    found = {row.loss: row for row in results.load(folder).rows}
    known = {row.loss: row for row in results.load(RESULTS / "pathmnist").rows}
    assert found["ce"].done[0]["test"]["accuracy"] == 0.125
    assert found["ce"].done[1] == known["ce"].done[1]
    assert found["label_smoothing"].done == known["label_smoothing"].done
    assert [row.damaged for row in found.values()] == 7 * [{}]


def test_a_run_without_its_place_in_the_list_has_no_single_scores() -> None:
    """And says so: the first seed of the losses of a table has them. Every record is whole."""
    for task in (*plan.TABLE1, "cifar10_noisy_resample"):
        listed = json.loads(archived.read(RESULTS / task / "comparison.json"))["runs"]
        headlines = {run["folder"] for run in listed if run["seed"] == 0}
        for name in archived.names(RESULTS / task):
            if name.endswith("/done.json"):
                run = name.removesuffix("/done.json")
                one = read(Record(RESULTS / task / run))
                assert one.record.has("scores.npz") == (run in headlines)
                assert ("scores.npz" in one.done["thinned"]) == (run not in headlines)
                assert "seal" in one.done


def test_results_are_small() -> None:
    assert sum(path.stat().st_size for path in RESULTS.iterdir() if path.is_file()) < 12 * 2**20


def test_penex_report_of_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it writes goes to runs/report, or where the user says; nothing beside the archive."""
    monkeypatch.setattr(figures, "write_all", lambda *_: [])  # they take seconds
    (tmp_path / "kept").mkdir()
    shutil.copy(RESULTS / "pathmnist.zip", tmp_path / "kept")
    monkeypatch.chdir(tmp_path)
    cli.main(["report", "kept/pathmnist.zip"])
    assert "In runs/report/pathmnist: page.html" in capsys.readouterr().out
    csv = (tmp_path / "runs" / "report" / "pathmnist" / "comparison.csv").read_text()
    assert csv == tables.as_csv(results.load(RESULTS / "pathmnist"))
    cli.main(["report", "kept", "--to", "here/page.html"])
    cli.main(["report", "kept/pathmnist", "kept/pathmnist.zip", "--to", "here"])
    names = {path.name for path in (tmp_path / "here").iterdir()}
    assert names == {"page.html", "comparison-of-two.html"}
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["pathmnist.zip"]


def test_studies_in_an_archive_are_read_and_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = unpacked(tmp_path / "folder", "cifar10") / "cifar10"
    counts = []
    for place in (folder, RESULTS / "cifar10"):
        studies = all_studies(open_storage(None, place, existing=True), "cifar10")
        counts.append({loss: [t.params for t in one.trials] for loss, one in studies.items()})
    assert counts[0] == counts[1]
    assert len(counts[0]["penex"]) == 50
    shutil.copy(RESULTS / "cifar10.zip", tmp_path)
    monkeypatch.chdir(tmp_path)
    cli.main(["tune", "cifar10", "--all", "--out", "."])
    said = capsys.readouterr().out
    assert "PENEX: best alpha 0.0004443 (trial 41; the authors have 0.03)" in said
    assert "Page: runs/report/cifar10/tuning.html" in said
    assert not (tmp_path / "cifar10").exists()
    monkeypatch.setattr("penex.lab.training.Place.data", lambda *_: None)
    monkeypatch.setattr("penex.lab.training.packing.size_for", lambda *_: 1)
    with pytest.raises(SystemExit):
        cli.main(["tune", "cifar10", "--loss", "penex", "--trials", "60", "--out", "."])
    assert "are in an archive and stay as they are" in capsys.readouterr().err


def test_a_run_in_an_archive_is_not_trained_again(tmp_path: Path) -> None:
    what = Comparison(tasks.find("digits"), ("ce",), 1, (20,), {"epochs": 12})
    seen: list[bool] = []

    def train(comparison: Comparison) -> None:
        compare(comparison, Place(tmp_path, hooks=Hooks(done=lambda *a: seen.append(a[2]))))

    train(what)
    whole = Record.of(tmp_path, what.runs[0].config)
    before = whole.done()
    pack(tmp_path / "digits")
    shutil.rmtree(tmp_path / "digits")
    assert whole.done()["test"] == before["test"]
    assert [line["epoch"] for line in whole.metrics()] == list(range(1, 13))
    assert whole.done()["thinned"] == []
    train(replace(what, seeds=2))
    assert seen == [False, True, False]
    (run,) = (tmp_path / "digits").glob("ce/*/seed-*")
    assert run.name == "seed-1"


# What is damaged, and what is not ours.


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text"])
def test_a_damaged_archive_is_one_sentence(
    damage: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = (RESULTS / "pathmnist.zip").read_bytes()
    spoilt = {
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:-3000] + bytes(byte ^ 255 for byte in whole[-3000:-2900]) + whole[-2900:],
        "empty": b"",
        "text": b"no archive",
    }
    path = tmp_path / "pathmnist.zip"
    path.write_bytes(spoilt[damage])
    monkeypatch.chdir(tmp_path)
    for words in (
        ["report", "pathmnist.zip"],
        ["reproduce", "table1", "--read-only", "--task", "pathmnist", "--out", "."],
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 2
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 1
        assert "pathmnist.zip is damaged: " in said[0]
    assert path.read_bytes() == spoilt[damage]


def test_a_damaged_member_is_a_damaged_run(tmp_path: Path) -> None:
    """The others are shown."""
    path = tmp_path / "pathmnist.zip"
    shutil.copy(RESULTS / "pathmnist.zip", path)
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if n.startswith("ce/") and "seed-1/met" in n)
        start = archive.getinfo(name).header_offset + 30 + len(name) + 100
    spoilt = bytearray(path.read_bytes())
    spoilt[start] ^= 255
    path.write_bytes(spoilt)
    rows = {row.loss: row for row in results.load(tmp_path / "pathmnist").rows}
    assert list(rows["ce"].damaged) == [1]
    assert "pathmnist.zip is damaged" in rows["ce"].damaged[1]
    assert [len(row.done) for row in rows.values()] == [4, *6 * [5]]


@pytest.mark.parametrize("name", ["../evil.json", "/evil.json", "a/../../evil.json", "C:/evil"])
def test_a_name_that_leads_outside_is_refused(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "digits.zip", (name, b"{}"))
    with pytest.raises(RecordError, match="would be written outside its folder"):
        archived.folder_of(path)
    with pytest.raises(RecordError, match="is refused"):
        results.load(tmp_path / "digits")


def test_a_link_and_a_bomb_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("comparison.json")
    link.external_attr = 0o120777 << 16
    with pytest.raises(RecordError, match="is a link"):
        archived.folder_of(written(tmp_path / "digits.zip", (link, b"/etc/passwd")))
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = MARK
        archive.writestr("comparison.json", b"{}")
        archive.filelist[0].file_size = 10**12  # as the list at the end will say
    with pytest.raises(RecordError, match="would become 1 TB"):
        archived.folder_of(bomb)


def test_an_archive_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """Such as the user's data, beside the runs made of it; even one with a run in it."""
    run = "ce/0123456789ab/seed-0/done.json"
    path = written(tmp_path / "pets.zip", (run, b"{}"), mark=b"")
    assert not Record(tmp_path / "pets" / run).is_done
    assert archived.names(tmp_path / "pets") == []
    with pytest.raises(LabError, match="is no archive of records"):
        archived.folder_of(path)
    with pytest.raises(FileNotFoundError):
        archived.read(tmp_path / "pets" / "comparison.json")


def test_an_archive_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    for number in range(2):
        archived.pack({"comparison.json": bytes([number])}, tmp_path / "digits")
        assert archived.read(tmp_path / "digits" / "comparison.json") == bytes([number])
