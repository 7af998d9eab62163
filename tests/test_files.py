"""Files are whole or absent, whoever else writes and whatever stands in their place."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penex.lab.ground import files, locks
from penex.lab.ground.errors import LabError


@contextmanager
def child(work: Any) -> Iterator[int]:
    """A process that does some work, then waits to be killed; its number."""
    ready, go = os.pipe()
    number = os.fork()
    if number == 0:
        try:
            with work():
                os.write(go, b"x")
                signal.pause()
        finally:
            os._exit(1)
    os.close(go)
    assert os.read(ready, 1) == b"x"
    try:
        yield number
    finally:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
        os.close(ready)


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.glob(".*")]


def test_where_nothing_can_be_written_the_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the one beside it, which nobody knows; and removing that one cannot fail either."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="Read-only") as caught:
        files.write(tmp_path / "a.json", b"x")
    assert caught.value.filename == str(tmp_path / "a.json")


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """But not what a living one writes."""
    path = tmp_path / "page[1].html"
    with child(lambda: files.writing(path)):
        (new,) = hidden(tmp_path)
        files.write(path, b"whole")
        assert hidden(tmp_path) == [new]
    assert hidden(tmp_path) == [new]
    files.write(path, b"whole")
    assert path.read_bytes() == b"whole"
    assert hidden(tmp_path) == []


def test_two_containers_on_one_folder_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have the same host name and the same process numbers."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    path = tmp_path / "a"
    with files.writing(path) as one, files.writing(path) as two:
        assert one.name != two.name
        one.write(b"one")
        two.write(b"two")
    assert path.read_bytes() == b"one"  # the last to end


def test_a_file_taken_for_a_dead_ones_before_its_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = locks.take
    seen: list[str] = []

    def late(number: int, *, wait: bool) -> bool:
        if not seen:  # another process sweeps between the making and the lock
            seen.extend(hidden(tmp_path))
            (tmp_path / seen[0]).unlink()
        return take(number, wait=wait)

    monkeypatch.setattr(locks, "take", late)
    files.write(tmp_path / "a", b"whole")
    assert seen
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert hidden(tmp_path) == []


_LOCKS_FORKS_AND_DIES = """
import os, signal, sys
from pathlib import Path
from penex.lab.ground import locks

read, write = os.pipe()
with locks.held(Path(sys.argv[1]), wait=False):
    if os.fork() == 0:
        os.write(write, b"1")
        os.read(0, 1)  # lives on until the test lets it go
        os._exit(0)
    os.read(read, 1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_lock_ends_with_the_process_that_took_it_and_not_with_its_children(
    tmp_path: Path,
) -> None:
    """Processes that decode images are forked, and end a moment after a parent that is killed."""
    command = [sys.executable, "-c", _LOCKS_FORKS_AND_DIES, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as holder:
        assert holder.wait(60) == -signal.SIGKILL
        with locks.held(tmp_path / "lock", wait=False):
            pass


def test_where_there_are_no_locks_one_can_write_and_a_lock_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    files.write(tmp_path / "a", b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
    with pytest.raises(LabError, match="POSIX file locks"), locks.held(tmp_path / "b", wait=True):
        pass


def test_the_laboratory_is_imported_where_there_are_no_locks() -> None:
    imports = "import penex.lab.tuning, penex.lab.training.compare"
    code = f"import sys; sys.modules['fcntl'] = None; {imports}"
    subprocess.run([sys.executable, "-c", code], check=True)


# What stands where a file is to be written.


def test_a_mode_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o640)
    files.write(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o640)
    before = os.umask(0o027)
    try:
        files.write(tmp_path / "b", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o640


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed(tmp_path: Path, there: bool) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    if there:
        target.write_bytes(b"old")
    link.symlink_to("far/target")
    files.write(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert hidden(tmp_path / "far") == []


def test_a_link_that_leads_nowhere_is_an_error_and_stays(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("link")
    with pytest.raises(OSError, match="Too many levels") as caught:
        files.write(link, b"new")
    assert caught.value.filename == str(link)
    assert link.is_symlink()


def test_a_pipe_and_a_device_are_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    files.write(pipe, b"content")
    reader.join()
    assert got == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    (tmp_path / "null").symlink_to(os.devnull)
    files.write(tmp_path / "null", b"content")
    assert (tmp_path / "null").is_symlink()
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_standard_output_that_goes_to_a_file_is_added_to(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    number = os.fork()
    if number == 0:
        try:
            os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 1)
            files.write(Path("/dev/stdout"), b"content\n")
            os.write(1, b"after\n")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(number, 0)[1] == 0
    assert log.read_bytes() == b"before\ncontent\nafter\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to anything")
def test_a_file_that_may_not_be_written_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(PermissionError):
        files.write(path, b"new")
    assert path.read_bytes() == b"old"


def test_what_may_be_written_to_is_said_before_any_work(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("new")
    for legal in (tmp_path / "pipe", tmp_path / "link", tmp_path / "a", Path(os.devnull)):
        files.check_target(legal)
    (tmp_path / "astray").symlink_to("no/such")
    for wrong in (tmp_path, tmp_path / "no" / "a", tmp_path / "astray"):
        with pytest.raises(LabError, match="folder"):
            files.check_target(wrong)


def test_a_name_of_any_legal_length_is_written(tmp_path: Path) -> None:
    files.write(tmp_path / ("é" * 127), b"x")
    assert len(list(tmp_path.iterdir())) == 1
