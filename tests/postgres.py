"""A real PostgreSQL server for tests, and workers in trouble with it."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks._postgres import Server as Server
from benchmarks._postgres import binaries


def in_trouble(url: str, folder: Path, apart: bool, *command: object) -> dict[str, str]:
    """Three workers carry out a command; what each said.

    One is killed in the middle of a pack, one sleeps past its lease and wakes up: all of them in
    one folder or, if `apart`, the sleeper in another.
    """
    worker = Path(__file__).with_name("lease_worker.py")
    words = [url, folder, int(apart), *command]
    done = subprocess.run(
        [sys.executable, str(worker), *map(str, words)], capture_output=True, text=True, timeout=300
    )
    logs = {path.stem: path.read_text() for path in folder.glob("*.log")}
    assert done.returncode == 0, (done.stderr, logs)
    return logs


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that runs, with an empty database."""
    found = binaries()
    if found is None:
        pytest.skip("needs PostgreSQL's initdb and pg_ctl")
    with tempfile.TemporaryDirectory(prefix="penex-") as name:
        server = Server(found, Path(name))
        server.start()
        try:
            server.database("studies")
            yield server
        finally:
            server.stop()
