"""Where a comparison lies: data of one name do not share a folder, none replaces another."""

import json
import os
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from penex import cli
from penex.lab import tasks
from penex.lab.records import KEPT, LISTING
from penex.lab.records.examples import NAME as EXAMPLES
from penex.lab.tasks.own import OWNER, own, placed, task_name
from penex.lab.training import Place
from penex.lab.training.compare import Comparison, compare
from penex.report import results

CPU = torch.device("cpu")
DIGITS = tasks.find("digits")


def table(path: Path, seed: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    np.savez(path, x=random.normal(size=(60, 3)).astype(np.float32), y=np.arange(60) % 2)
    return path


def name_of(path: Path, out: Path) -> str:
    return placed(own(path)[0], path, out).name


def train(path: Path, out: Path) -> None:
    cli.main(["train", "--data", str(path), "--loss", "ce", "--epochs", "1", "--out", str(out)])


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("花 2.npz", "花_2"),
        ("Цветы.csv", "цветы"),
        ("हिन्दी.npz", "हिन्दी"),
        (unicodedata.normalize("NFD", "Äpfel.npz"), "äpfel"),
        ("a__b-c.npz", "a_b_c"),
        ("花" * 100, "花" * 66),
        (os.fsdecode(b"\xff\xfe.npz"), "data"),
    ],
)
def test_a_name_keeps_the_letters_of_any_script(file: str, name: str) -> None:
    assert task_name(Path(file)) == name


def test_two_data_sets_of_one_name_have_a_folder_each(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    first, second = (table(tmp_path / k / "flowers.npz", n) for n, k in enumerate("ab"))
    for path in (first, second, second, first):
        train(path, out)
    names = sorted(path.name for path in out.iterdir() if path.is_dir())
    assert names[0] == "flowers"
    assert names[1].startswith("flowers-")
    assert len(names) == 2
    for name, path in zip(names, (first, second), strict=True):
        assert json.loads((out / name / OWNER).read_bytes())["path"] == str(path)
        assert len(list(out.glob(f"{name}/*/*/*/done.json"))) == 1  # found again


def test_changed_data_at_one_place_stay_in_their_folder(tmp_path: Path) -> None:
    path = table(tmp_path / "flowers.npz", 0)
    before = name_of(path, tmp_path / "runs")
    assert name_of(table(path, 1), tmp_path / "runs") == before == "flowers"


def test_data_that_moved_are_known_by_their_content(tmp_path: Path) -> None:
    out, path = tmp_path / "runs", table(tmp_path / "a" / "flowers.npz", 0)
    train(path, out)
    (tmp_path / "b").mkdir()
    moved = path.replace(tmp_path / "b" / "flowers.npz")
    assert name_of(moved, out) == "flowers"
    (out / "flowers" / OWNER).unlink()  # as an earlier version left it
    assert name_of(table(path, 1), out).startswith("flowers-")
    assert name_of(moved, out) == "flowers"


@pytest.mark.parametrize("content", ["", "[]", '{"path": 3}'])
def test_a_folder_with_a_damaged_owner_is_known_by_its_runs(tmp_path: Path, content: str) -> None:
    out, path = tmp_path / "runs", table(tmp_path / "flowers.npz", 0)
    train(path, out)
    (out / "flowers" / OWNER).write_text(content)
    assert name_of(table(tmp_path / "a" / "flowers.npz", 1), out).startswith("flowers-")
    assert name_of(path, out) == "flowers"


def test_records_do_not_lie_among_the_data(tmp_path: Path) -> None:
    path = table(tmp_path / "flowers" / "all.npz", 0)
    task = own(path)[0]
    assert placed(task, path, tmp_path).name == "all"
    folder = path.parent
    assert placed(replace(task, name="flowers"), folder, tmp_path).name.startswith("flowers-")


def test_names_asked_for_at_once_differ(tmp_path: Path) -> None:
    paths = [table(tmp_path / str(k) / "flowers.npz", k) for k in range(4)]
    made = [(own(path)[0], path) for path in paths]
    with ThreadPoolExecutor(4) as pool:  # flock knows openings of a file, not processes
        names = list(pool.map(lambda one: placed(one[0], one[1], tmp_path / "runs").name, made))
    assert len(set(names)) == 4


# Another comparison on the same task.


def compared(out: Path, *losses: str) -> None:
    changes = {"epochs": 1}
    compare(Comparison(DIGITS, losses, 1, (40,), changes), Place(out), command=" ".join(losses))


def test_another_comparison_leaves_the_one_before_within_reach(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "digits"
    compared(tmp_path, "ce", "penex")
    pictures = (folder / EXAMPLES).read_bytes()
    compared(tmp_path, "ce", "penex")  # the same: nothing to keep, nothing to say
    assert not (folder / KEPT).exists()
    assert capsys.readouterr().err == ""
    compared(tmp_path, "ce", "focal")
    (kept,) = (folder / KEPT).iterdir()
    assert f"penex report {kept}" in capsys.readouterr().err
    assert (kept / EXAMPLES).read_bytes() == pictures
    found = results.load(kept)
    assert [row.label for row in found.rows] == ["ce", "penex"]
    assert found.command == "ce penex"
    assert all(row.done and not row.missing for row in found.rows)
    assert [row.label for row in results.load(folder).rows] == ["ce", "focal"]
    for losses in (("ce", "penex"), ("ce", "focal"), ("ce", "penex")):
        compared(tmp_path, *losses)
    assert len(list((folder / KEPT).iterdir())) == 2  # one each, however often


@pytest.mark.parametrize("content", ["[", '{"runs": 3}', '{"format": 9}'])
def test_a_list_that_cannot_be_read_is_kept_too(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "digits"
    folder.mkdir()
    (folder / LISTING).write_text(content)
    compared(tmp_path, "ce")
    (kept,) = (folder / KEPT).iterdir()
    assert (kept / LISTING).read_text() == content
    assert [row.label for row in results.load(folder).rows] == ["ce"]
