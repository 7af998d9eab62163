"""The cache: what is kept, how it is known again, checked, limited and cleared."""

import os
from pathlib import Path

import pytest
import torch

from penex.lab.data import decoding
from penex.lab.data.read import read

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
