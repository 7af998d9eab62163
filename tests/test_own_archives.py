"""A user's own archives: opened safely, and never to more than they may become."""

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from penex.lab.data import sizes
from penex.lab.data.read import read
from penex.lab.ground.errors import LabError

from own_files import refuses, run
from pictures import picture, write_folder


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


# What becomes larger than it may.


def zipped(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def taped(path: Path, **members: bytes) -> Path:
    with tarfile.open(path, "w:gz") as tape:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tape.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize(("write", "name"), [(zipped, "x.zip"), (taped, "x.tar.gz")])
def test_an_archive_that_becomes_much_larger_is_asked_about(
    tmp_path: Path,
    own_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    write: Callable[..., Path],
    name: str,
) -> None:
    monkeypatch.setattr(sizes, "UNASKED", 100_000)
    root = write_folder(tmp_path / "set", 2, 6)
    content = {str(p.relative_to(tmp_path)): p.read_bytes() for p in root.rglob("*.*")}
    path = write(tmp_path / name, **content, **{"set/class 0/zeros": bytes(3_000_000)})
    run("data", "check", path, code=2)
    said = capsys.readouterr().err
    assert "--allow-large" in said
    assert sizes.shown(path.stat().st_size) in said
    assert not list(own_cache.iterdir())
    run("data", "check", path, "--allow-large")
    assert "--allow-large would train" in capsys.readouterr().out


def test_a_size_that_lies_is_stopped(tmp_path: Path, own_cache: Path) -> None:
    """Both directories say 10 bytes of a member that has a million."""
    path = zipped(tmp_path / "x.zip", **{"a/x.png": bytes(1_000_000)})
    content = path.read_bytes().replace((1_000_000).to_bytes(4, "little"), b"\x0a\0\0\0")
    path.write_bytes(content)
    with pytest.raises(LabError, match="cannot be taken apart"):
        read(path)
    assert not list(own_cache.iterdir())


def test_holes_count_as_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member with holes says a length that its archive does not have."""
    monkeypatch.setattr(sizes, "UNASKED", 100_000)
    info = tarfile.TarInfo("a/x.png")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398] = b"%011o\0" % 0  # where its first stretch starts, and how long it is
    header[398:410] = b"%011o\0" % 0
    header[483:495] = b"%011o\0" % (1 << 30)  # how long it is with its holes
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    (tmp_path / "x.tar").write_bytes(bytes(header) + bytes(1024))
    with pytest.raises(LabError, match=r"1\.1 GB"):
        read(tmp_path / "x.tar")


def test_a_member_that_lies_too_deep_is_refused(tmp_path: Path, own_cache: Path) -> None:
    path = zipped(tmp_path / "x.zip", **{"a/" * 1500 + "x.png": b"x"})
    with pytest.raises(LabError, match="1501 folders deep"):
        read(path)
    assert not list(own_cache.iterdir())


def test_names_are_read_as_their_writer_meant_them(tmp_path: Path) -> None:
    """UTF-8 that is not declared, as some programs write it, and the slash of another system."""
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as file:
        for label, name in enumerate(("Größe", "b")):
            for number in range(6):
                buffer = io.BytesIO()
                picture(label, number).save(buffer, "PNG")
                file.writestr(f"{name}\\{number}.png", buffer.getvalue())
    raw = path.read_bytes()
    flagged = "Größe".encode()
    content = bytearray(raw)
    for sign, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(sign)
        while start >= 0:
            content[start + flags + 1] &= ~0x08
            start = content.find(sign, start + 1)
    assert flagged in content
    path.write_bytes(content)
    assert set(read(path).classes) == {"Größe", "b"}
