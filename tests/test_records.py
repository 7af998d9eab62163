"""A run's folder is written by one process, whole or not at all, and keeps what is needed."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from penex import cli
from penex.lab import tasks, training
from penex.lab.ground.errors import Interrupted, RecordError
from penex.lab.records import Record
from penex.lab.records.sealing import seal
from penex.lab.tasks import runs
from penex.lab.training import packing
from penex.lab.training.packed import name_of, train_members

CPU = torch.device("cpu")
DIGITS = tasks.find("digits")


def planned(loss: str = "ce", **changes: Any) -> runs.Run:
    return runs.plan(DIGITS, runs.LossSpec.parse(loss), 0, 40, {"epochs": 2, **changes})


def carried_out(some: list[runs.Run], out: Path, hooks: training.Hooks, pack: int) -> None:
    packing.train(some, training.Place(out, CPU, hooks), pack)


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time and content."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_pack_leaves_alone_what_another_process_has_finished_meanwhile(tmp_path: Path) -> None:
    """Between the first look and the lock."""
    done, left = planned("ce"), planned("penex")
    record = training.train(done, training.Place(tmp_path, CPU))
    before = everything(record.folder)
    begun: list[str] = []
    hooks = training.Hooks(begin=lambda run, epochs: begun.append(run.loss.name))
    names = [name_of(done), name_of(left)]
    train_members([done, left], names, training.Place(tmp_path, CPU, hooks))
    assert begun == ["penex"]
    assert everything(record.folder) == before
    assert Record.of(tmp_path, left.config).is_done
    train_members([done, left], names, training.Place(tmp_path, CPU, hooks))  # nobody is left
    assert begun == ["penex"]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("environment.json", '"threads": ', '"threads": 1'),
        ("metrics.jsonl", '"accuracy": 0.', '"accuracy": 0.9'),
        ("pack.json", "digits/penex/", "digits/focal/"),
    ],
)
def test_what_was_changed_while_a_run_was_stopped_is_refused(
    tmp_path: Path, name: str, before: str, after: str
) -> None:
    """A number that is another one now would else become part of the record."""
    some = [planned("ce", batch_size=8), planned("penex", batch_size=8)]
    asked = iter(range(7))  # in the second epoch
    hooks = training.Hooks(stop=lambda: next(asked, None) is None)
    with pytest.raises(Interrupted):
        carried_out(some, tmp_path, hooks, 2)
    path = Record.of(tmp_path, some[0].config).folder / name
    content = path.read_text()
    assert before in content
    path.write_text(content.replace(before, after))
    with pytest.raises(RecordError, match=f"{name} is damaged: "):
        carried_out(some, tmp_path, training.Hooks(), 2)
    path.write_text(content)
    carried_out(some, tmp_path, training.Hooks(), 2)


@pytest.mark.parametrize("seconds", ["NaN", "-1", "1" + 400 * "0", "null", "[]", "true"])
def test_a_damaged_clock_is_not_worth_a_run(tmp_path: Path, seconds: str) -> None:
    record = Record(tmp_path)
    (tmp_path / "clock.json").write_text(f'{{"seconds": {seconds}}}')
    assert record.add_time(2.0) == 2.0


def test_a_pack_refuses_what_another_process_has_left_damaged(tmp_path: Path) -> None:
    run = planned()
    record = training.train(run, training.Place(tmp_path, CPU))
    (record.folder / "metrics.jsonl").write_text("")
    before = everything(record.folder)
    with pytest.raises(RecordError, match=r"metrics\.jsonl is damaged"):
        train_members([run], [name_of(run)], training.Place(tmp_path))
    assert everything(record.folder) == before


@pytest.mark.parametrize("pack", [1, 8])
@pytest.mark.parametrize("save_seconds", [0.0, 1e9])
@pytest.mark.parametrize("made_again", [True, False])
def test_a_folder_removed_while_its_run_is_trained_is_one_sentence(
    tmp_path: Path, pack: int, save_seconds: float, made_again: bool
) -> None:
    some = [planned("ce"), planned("penex")]
    folder = Record.of(tmp_path, some[0].config).folder

    def remove(run: runs.Run, line: Any) -> None:
        if run is some[0] and line["epoch"] == 1:
            shutil.rmtree(folder)
            if made_again:  # by another process, which has a lock of its own
                folder.mkdir()
                (folder / ".lock").touch()

    hooks = training.Hooks(epoch=remove, save_seconds=save_seconds)
    with pytest.raises(RecordError, match="was removed while its run was trained"):
        carried_out(some, tmp_path, hooks, pack)
    assert folder.exists() == made_again
    assert not made_again or [path.name for path in folder.iterdir()] == [".lock"]
    carried_out(some, tmp_path, training.Hooks(), pack)
    for run in some:
        Record.of(tmp_path, run.config).verify()


@pytest.mark.parametrize("name", ["done.json", "model.json", "predictions.npz"])
def test_a_folder_removed_at_the_very_end_leaves_no_half_run(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing takes its time: what is written meanwhile may stay behind, but is no run."""
    run = planned()
    folder = Record.of(tmp_path, run.config).folder
    replace = Path.replace

    def removed(path: Path, target: Path) -> Path:
        if target.name == name:
            for one in folder.glob("[!.]*.json*"):
                one.unlink()
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", removed)
    with pytest.raises(RecordError, match="was removed while its run was trained"):
        training.train(run, training.Place(tmp_path, CPU))
    assert not Record(folder).is_done


def test_a_checkpoint_goes_when_its_run_is_done_unless_it_is_asked_for(tmp_path: Path) -> None:
    words = ["train", "--loss", "ce", "--epochs", "1", "--train-size", "40", "--out", str(tmp_path)]
    cli.main(words)
    cli.main([*words, "--keep-checkpoints"])  # a done run is not repeated for it
    assert not list(tmp_path.rglob("checkpoint"))
    cli.main([*words, "--seed", "1", "--keep-checkpoints"])
    cli.main([*words, "--seed", "1"])  # what was asked for stays
    assert len(list(tmp_path.rglob("checkpoint/position.json"))) == 1


@pytest.mark.parametrize("keep", [True, False])
def test_a_packs_checkpoints_go_with_its_runs_unless_they_are_asked_for(
    tmp_path: Path, keep: bool
) -> None:
    some = [planned(loss) for loss in ("ce", "penex", "ex:alpha=1000")]
    carried_out(some, tmp_path, training.Hooks(keep_checkpoints=keep, save_seconds=0.0), 8)
    assert Record.of(tmp_path, some[2].config).done()["status"] == "diverged"
    assert len(list(tmp_path.rglob("checkpoint"))) == 2 * keep


def test_a_checkpoint_that_a_killed_process_had_no_time_to_remove_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = planned()
    with monkeypatch.context() as patch:
        patch.setattr(Record, "_tidy", lambda *_: None)
        record = training.train(run, training.Place(tmp_path, CPU))
    assert record.checkpoint.exists()
    training.train(run, training.Place(tmp_path, CPU))
    assert not record.checkpoint.exists()


def test_the_checkpoint_of_a_run_that_does_not_say_is_kept(tmp_path: Path) -> None:
    """A run of an earlier version: nothing that is on the disk is taken away from it."""
    record = training.train(
        planned(), training.Place(tmp_path, CPU, training.Hooks(keep_checkpoints=True))
    )
    path = record.folder / "done.json"
    done = {k: v for k, v in record.done().items() if k not in ("keeps_checkpoint", "seal")}
    path.write_text(json.dumps({**done, "seal": seal(done)}))
    assert "keeps_checkpoint" not in record.done()
    record.verify()
    assert record.checkpoint.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_full_disk_names_the_file_of_the_metrics(tmp_path: Path) -> None:
    record = Record(tmp_path)
    os.symlink("/dev/full", tmp_path / "metrics.jsonl")
    with pytest.raises(OSError, match="No space left") as caught:
        record.add_metrics({"epoch": 1})
    assert caught.value.filename == str(tmp_path / "metrics.jsonl")
