"""The cache: what is kept, how it is known again, checked, limited and cleared."""

import errno
import os
import select
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from penex.lab.data import cache, decoding, unfinished
from penex.lab.data.read import read
from penex.lab.ground import locks

from own_files import run
from pictures import picture, write_folder, write_odd_folder


@pytest.fixture
def odd_folder(tmp_path: Path) -> Path:
    return write_odd_folder(tmp_path / "My Pictures")


def test_a_second_start_decodes_nothing(odd_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[int] = []
    first = read(odd_folder, progress=lambda done, total: ticks.append(done))
    assert ticks[-1] == 75
    monkeypatch.setattr(decoding, "decode", lambda *_: pytest.fail("it is in the cache"))
    again = read(odd_folder)
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert first.facts == again.facts
    assert first.notes == again.notes


def test_another_folder_has_another_cache(tmp_path: Path) -> None:
    """Same names, sizes and times, other pixels: an archive can hold that."""
    for root, swap in (("a", 0), ("b", 1)):
        for label in range(2):
            folder = tmp_path / root / f"c{label}"
            folder.mkdir(parents=True)
            for number in range(6):
                picture(label ^ swap, number).save(folder / f"{number}.bmp")
                os.utime(folder / f"{number}.bmp", ns=(0, 0))
    first, second = read(tmp_path / "a"), read(tmp_path / "b")
    assert not torch.equal(first.train.inputs, second.train.inputs)


@pytest.mark.parametrize("harm", ["array", "facts"])
def test_a_damaged_cache_is_made_again(odd_folder: Path, own_cache: Path, harm: str) -> None:
    first = read(odd_folder)
    path = next(own_cache.glob("*/*.npy" if harm == "array" else "*/*.json"))
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    assert torch.equal(read(odd_folder).train.inputs, first.train.inputs)


def test_a_changed_file_is_seen(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", 2, 6)
    before = read(root)
    picture(1, 99).save(root / "class 0" / "000.png")
    os.utime(root / "class 0" / "000.png", ns=(1, 1))
    assert read(root).facts["sha256"] != before.facts["sha256"]


def only(folder: Path, pattern: str = "images-*") -> Path:
    """The one entry of a cache."""
    (found,) = folder.glob(pattern)
    return found


# Touched, moved, copied.


def test_a_touched_moved_or_copied_folder_is_known_by_its_content(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "set", 2, 6)
    first = read(root)
    entry = only(own_cache)
    monkeypatch.setattr(decoding, "decode", lambda *_: pytest.fail("it is in the cache"))
    for path in root.rglob("*.*"):
        os.utime(path, ns=(1, 1))
    assert torch.equal(read(root).train.inputs, first.train.inputs)
    moved = root.rename(tmp_path / "moved")
    assert torch.equal(read(moved).train.inputs, first.train.inputs)
    shutil.copytree(moved, tmp_path / "copy")
    assert torch.equal(read(tmp_path / "copy").train.inputs, first.train.inputs)
    assert only(own_cache) == entry
    (known,) = cache.entries()
    assert set(known.sources) == {str(moved), str(tmp_path / "copy")}


# Damage, and what another version or program left.


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"facts": 3, "sha256": "x"}', "[" * 9999])
def test_a_card_of_another_form_is_made_again(tmp_path: Path, own_cache: Path, text: str) -> None:
    root = write_folder(tmp_path / "set", 2, 6)
    first = read(root)
    (only(own_cache) / "entry.json").write_text(text)
    run("cache")
    assert torch.equal(read(root).train.inputs, first.train.inputs)
    assert only(own_cache).is_dir()


def test_an_archive_that_lost_or_got_files_is_opened_again(tmp_path: Path, own_cache: Path) -> None:
    root = write_folder(tmp_path / "set", 2, 6)
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as file:
        for path in root.rglob("*.*"):
            file.write(path, path.relative_to(tmp_path))
    first = read(tmp_path / "set.zip")
    for harm in ("lost", "emptied", "added"):
        path = next(only(own_cache, "archive-*").rglob("*.png"))
        if harm == "lost":
            path.unlink()
        else:
            place = path if harm == "emptied" else path.with_name("more.png")
            place.write_bytes(b"")
        again = read(tmp_path / "set.zip")
        assert again.facts["sha256"] == first.facts["sha256"]
        assert again.notes == ()


# Failures that pass.


def test_a_file_that_cannot_be_read_now_is_named_and_read_again(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "set", 2, 7)
    whole = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path.name == "003.bmp":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return whole(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", failing)
        without = read(root)
    assert len(without.train.targets) == 12
    assert any("class 0/003.bmp" in note for note in without.notes)
    assert not list(own_cache.iterdir())
    assert len(read(root).train.targets) == 14


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EMFILE, "Too many open files")])
def test_what_is_wrong_with_the_machine_stops_the_command(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def failing(*_: object) -> None:
        raise error

    root = write_folder(tmp_path / "set", 2, 6)
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "decode", failing)
        run("data", "check", root, code=2)
    assert not list(own_cache.iterdir())
    assert len(read(root).train.targets) == 12


# A killed process.


def test_killed_workers_end_and_what_they_left_is_removed(tmp_path: Path, own_cache: Path) -> None:
    """The worker script decodes with two processes, each of which says its number and waits."""
    root = write_folder(tmp_path / "set", 2, 6)
    ours, theirs = os.pipe()
    script = Path(__file__).with_name("decode_worker.py")
    command = [sys.executable, str(script), str(root), str(theirs)]
    with subprocess.Popen(command, pass_fds=[theirs]) as process, open(ours, "rb", 0) as pipe:
        os.close(theirs)
        numbers = [int(pipe.readline()) for _ in range(2)]
        assert process.pid not in numbers
        read(write_folder(tmp_path / "other", 2, 6))
        assert list(own_cache.glob(".unfinished-*"))  # its maker lives
        process.kill()
        process.wait()
        ended, _, _ = select.select([pipe], [], [], 60)
        assert ended, "a worker lives on"
        assert pipe.read() == b""  # the last holder of the other end is gone
    # A dying process closes its files one by one: the lock may go after the pipe.
    (lock,) = own_cache.glob(".unfinished-*.lock")
    with lock.open("r+") as file:
        assert locks.take(file, wait=True)
    assert list(own_cache.glob(".unfinished-*/array.npy"))
    read(write_folder(tmp_path / "another", 2, 6))
    assert not list(own_cache.glob(".unfinished-*"))


def test_a_folder_being_made_is_never_swept(tmp_path: Path) -> None:
    with unfinished.folder(tmp_path) as first, unfinished.folder(tmp_path) as second:
        assert first != second
        unfinished.sweep(tmp_path)
        assert first.is_dir()
        assert second.is_dir()
    assert not list(tmp_path.iterdir())


# The command, and the limit.


def test_the_command_shows_checks_and_clears(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_folder(tmp_path / "set", 2, 6)
    other = write_folder(tmp_path / "other", 2, 7)
    own_cache.mkdir()
    (own_cache / "mine.txt").write_text("not penex's")
    (own_cache / ("images-" + "0" * 24 + ".npy")).write_bytes(b"of an earlier version")
    read(root)
    read(other)
    capsys.readouterr()
    run("cache")
    shown = capsys.readouterr().out
    assert str(root) in shown
    assert "12 images, 32 pixels" in shown
    assert "limit 20 GB" in shown
    name = next(entry.name for entry in cache.entries() if entry.sources == [str(root)])
    run("cache", "check", name)
    run("cache", "check", code=2)  # the file of an earlier version
    array = own_cache / name / "array.npy"
    content = bytearray(array.read_bytes())
    content[-1] ^= 1
    array.write_bytes(content)
    run("cache", "check", name, code=2)
    run("cache", "clear", name)
    assert {entry.name for entry in cache.entries()} >= {only(own_cache, "images-*-*").name}
    run("cache", "clear", name, code=2)
    run("cache", "clear")
    assert [path.name for path in own_cache.iterdir()] == ["mine.txt"]
    run("cache", "check", "images", code=2)
    run("cache")


def test_past_the_limit_the_longest_unused_goes(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [write_folder(tmp_path / f"set {k}", 2, 6 + k) for k in range(3)]
    for age, root in enumerate(roots[:2]):
        read(root)
        (entry,) = (entry for entry in cache.entries() if entry.sources == [str(root)])
        os.utime(entry.path / "entry.json", (age, age))
    read(roots[0])  # used again: now the second is older
    size = sum(entry.size for entry in cache.entries())
    monkeypatch.setenv("PENEX_CACHE_LIMIT", str(size + 50_000))
    read(roots[2])
    assert {entry.sources[0] for entry in cache.entries()} == {str(roots[0]), str(roots[2])}
    monkeypatch.setenv("PENEX_CACHE_LIMIT", "1")
    assert len(read(roots[1]).train.targets) == 14  # what is in use stays
    assert [entry.sources for entry in cache.entries()] == [[str(roots[1])]]


def test_a_limit_that_is_no_size_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENEX_CACHE_LIMIT", "much")
    run("cache", code=2)
    assert "'much'" in capsys.readouterr().err


def test_an_empty_name_of_the_cache_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the cache would be in whatever folder the command is given in."""
    monkeypatch.setenv("PENEX_CACHE", "")
    assert cache.root().name == "penex"
