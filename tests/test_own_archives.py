"""A user's own archives: opened safely, and never to more than they may become."""

import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from penex.lab.data.read import read
from penex.lab.errors import LabError

from own_files import refuses
from pictures import write_folder


def test_an_archive_is_opened(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "flowers", 2, 6)
    archive = tmp_path / "flowers.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in root.rglob("*.*"):
            file.write(path, path.relative_to(tmp_path))
    assert read(archive).classes == ("class 0", "class 1")
    with tarfile.open(tmp_path / "flowers.tar.gz", "w:gz") as tape:
        tape.add(root, "flowers")
    assert read(tmp_path / "flowers.tar.gz").facts["sha256"] == read(root).facts["sha256"]


def test_a_failed_extraction_leaves_nothing(tmp_path: Path, own_cache: Path) -> None:
    path = cut_zip(tmp_path)
    for _ in range(2):
        with pytest.raises(LabError, match="cannot be taken apart"):
            read(path)
    assert not own_cache.exists() or not list(own_cache.iterdir())


def outside(root: Path) -> Path:
    path = root / "data.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/x.png", b"x")
        file.writestr("../escaped.png", b"x")
    return path


def linked(root: Path) -> Path:
    path = root / "data.tar"
    with tarfile.open(path, "w") as tape:
        link = tarfile.TarInfo("a/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tape.addfile(link)
    return path


def cut_zip(root: Path) -> Path:
    write_folder(root / "x", 2, 3)
    path = root / "data.zip"
    with zipfile.ZipFile(path, "w") as file:
        for picture_file in (root / "x").rglob("*.*"):
            file.write(picture_file)
    path.write_bytes(path.read_bytes()[:900])
    return path


def encrypted(root: Path) -> Path:
    path = root / "data.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/x.png", b"x" * 50)
    content = bytearray(path.read_bytes())
    content[6] |= 1  # says of its member that it is encrypted
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    return path


def damaged_tar(root: Path) -> Path:
    """An archive whose middle was overwritten: tarfile alone would take it for its end."""
    write_folder(root / "x", 2, 30)
    path = root / "data.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=0) as tape:
        tape.add(root / "x", "x")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 600] = bytes(600)
    path.write_bytes(content)
    return path


def zipped_table(root: Path) -> Path:
    with zipfile.ZipFile("zipped.zip", "w") as archive:
        archive.writestr("a.csv", "a,label\n1,x\n")
    return Path("zipped.zip")


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (zipped_table, [], "There are no images to train on in zipped.zip"),
        (encrypted, [], "cannot be taken apart"),
        (damaged_tar, [], "cannot be taken apart"),
        (outside, [], "its member '../escaped.png' would be written outside"),
        (linked, [], "its member 'a/link' is a link"),
        (cut_zip, [], "cannot be taken apart"),
    ],
)  # fmt: skip
def test_one_sentence_and_exit_code_2(
    make: Callable[[Path], Path],
    options: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refuses(make(tmp_path), options, words, tmp_path, capsys)
