"""Getting official files from a real server: whole, resumed, cut, altered, packed with malice."""

import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from penex import cli
from penex.lab.data import archives, catalogue, download
from penex.lab.data.catalogue import Official
from penex.lab.ground.errors import LabError


@dataclass
class Site:
    """What a server gives, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    cut: int | None = None
    ranges: bool = True
    asked: list[str] = field(default_factory=list)
    address: str = ""


@pytest.fixture
def site() -> Iterator[Site]:
    """A server on this machine that knows ranges and can break off."""
    here = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = here.files.get(self.path.lstrip("/"))
            wanted = self.headers.get("Range", "")
            here.asked.append(wanted)
            if content is None:
                self.send_error(404)
                return
            first = int(wanted[6:-1]) if wanted and here.ranges else 0
            if first >= len(content) and first:
                self.send_error(416)
                return
            self.send_response(206 if first else 200)
            self.send_header("Content-Length", str(len(content) - first))
            self.end_headers()
            stop = len(content) if here.cut is None else first + here.cut
            self.wfile.write(content[first:stop])

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    here.address = f"http://127.0.0.1:{server.server_port}"
    yield here
    server.shutdown()
    thread.join()
    server.server_close()


def packed(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tape:
        for name, content in members.items():
            info = tarfile.TarInfo(f"set/{name}")
            info.size = len(content)
            tape.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def entry(site: Site, content: bytes, folder: str | None = "set") -> Official:
    site.files["set.tar.gz"] = content
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return Official(
        "set", "A set", f"{site.address}/set.tar.gz", "set.tar.gz", md5, "free", folder=folder
    )


def quiet(done: int, total: int) -> None:
    pass


def test_a_set_is_loaded_verified_and_unpacked(site: Site, tmp_path: Path) -> None:
    wanted = entry(site, packed(a=b"1", b=b"22"))
    seen: list[tuple[int, int]] = []
    place, notes = download.get(wanted, tmp_path, lambda done, total: seen.append((done, total)))
    assert (place, notes) == (tmp_path / "set", [])
    assert (place / "b").read_bytes() == b"22"
    assert seen[-1][0] == seen[-1][1] > 0
    download.get(wanted, tmp_path, quiet)
    assert len(site.asked) == 1  # what is there is kept


@pytest.mark.parametrize("ranges", [True, False])
def test_a_load_that_broke_off_goes_on(site: Site, tmp_path: Path, ranges: bool) -> None:
    wanted = entry(site, packed(a=bytes(range(256)) * 900))
    site.cut, site.ranges = 100, ranges
    with pytest.raises(LabError, match=r"after 100 of .* bytes\. What came is kept"):
        download.get(wanted, tmp_path, quiet)
    assert (tmp_path / "set.tar.gz.part").stat().st_size == 100
    assert not (tmp_path / "set.tar.gz").exists()
    site.cut = None
    place, notes = download.get(wanted, tmp_path, quiet)
    assert notes == []
    assert (place / "a").read_bytes() == bytes(range(256)) * 900
    assert site.asked == ["", "bytes=100-"]


def test_a_whole_part_is_only_renamed(site: Site, tmp_path: Path) -> None:
    wanted = entry(site, packed(a=b"1"))
    (tmp_path / "set.tar.gz.part").write_bytes(site.files["set.tar.gz"])
    assert download.get(wanted, tmp_path, quiet)[1] == []


def test_another_checksum_is_said_and_not_refused(site: Site, tmp_path: Path) -> None:
    wanted = entry(site, packed(a=b"1"))
    site.files["set.tar.gz"] = packed(a=b"another")
    place, notes = download.get(wanted, tmp_path, quiet)
    assert (place / "a").read_bytes() == b"another"
    assert "is not the published" in notes[0]


def test_a_server_that_says_no_is_one_sentence(site: Site, tmp_path: Path) -> None:
    wanted = entry(site, b"")
    del site.files["set.tar.gz"]
    with pytest.raises(LabError, match="the server says 404"):
        download.get(wanted, tmp_path, quiet)


def test_no_network_says_where_the_file_goes_and_how_it_is_known(
    site: Site, tmp_path: Path
) -> None:
    wanted = replace(entry(site, b"x"), url="http://127.0.0.1:9/x")
    with pytest.raises(LabError) as refused:
        download.get(wanted, tmp_path, quiet)
    assert str(tmp_path / "set.tar.gz") in str(refused.value)
    assert str(wanted.md5) in str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_what_lies_beside_the_set_stays(site: Site, tmp_path: Path) -> None:
    """An archive that holds more than its set must not write over what is there."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tape:
        for name in ("set/a", "mine/a"):
            info = tarfile.TarInfo(name)
            info.size = 1
            tape.addfile(info, io.BytesIO(b"1"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "b").write_bytes(b"2")
    download.get(entry(site, buffer.getvalue()), tmp_path, quiet)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["b"]
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "set", "set.tar.gz"}


def test_a_mistyped_name_gets_one_line_with_a_suggestion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["data", "get", "cifar1", "--root", str(tmp_path)])
    said = capsys.readouterr().err
    assert "'cifar10'" in said
    assert len(said) < 120


def test_a_member_outside_refuses_the_archive(site: Site, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("set/a", b"1")
        file.writestr("set/../../escaped", b"1")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.zip").write_bytes(buffer.getvalue())
    with pytest.raises(LabError, match="would be written outside"):
        archives.extract(tmp_path / "in" / "x.zip", "set", tmp_path / "in")
    assert [p.name for p in (tmp_path / "in").iterdir()] == ["x.zip"]
    assert not (tmp_path / "escaped").exists()


def test_an_archive_without_its_folder_is_one_sentence(site: Site, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="does not contain the folder other"):
        download.get(entry(site, packed(a=b"1"), "other"), tmp_path, quiet)


def test_the_command_gets_a_set(
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = entry(site, packed(a=b"1"))
    monkeypatch.setattr(catalogue, "official", lambda: {"set": wanted})
    cli.main(["data", "get", "set", "--root", str(tmp_path)])
    shown = capsys.readouterr()
    assert "Licence: free" in shown.out
    assert f"penex data check {tmp_path / 'set'}" in shown.out
    assert "loading: " in shown.err
