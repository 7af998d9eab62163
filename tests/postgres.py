"""A real PostgreSQL server for tests, on a socket of its own."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Server:
    """A server that can be stopped and started.

    Attributes:
        binaries: where initdb and pg_ctl are.
        folder: of its data and its socket; with a short path, as sockets need.
    """

    binaries: Path
    folder: Path
    _user: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if os.geteuid() == 0:  # it refuses to run as root
            shutil.chown(self.folder, "postgres")
            self._user = {"user": "postgres"}
        data = str(self.folder / "data")
        self._run("initdb", "-D", data, "-A", "trust", "-U", "penex", "--no-sync")
        hosts = "local all penex trust\nlocal all all scram-sha-256\n"
        (self.folder / "data" / "pg_hba.conf").write_text(hosts)

    def _run(self, *command: str) -> None:
        subprocess.run(
            [str(self.binaries / command[0]), *command[1:]], check=True, cwd=self.folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._user,
        )  # fmt: skip

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-c listen_addresses='' -k {self.folder} -F"
        data, log = str(self.folder / "data"), str(self.folder / "log")
        self._run("pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        """Stop it at once, whoever is connected."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def address(self, database: str, user: str = "penex") -> str:
        """The URL of a database."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    @property
    def url(self) -> str:
        """The URL of the first database."""
        return self.address("studies")

    def execute(self, statement: str, url: str = "") -> list[tuple[Any, ...]]:
        """What a statement gives."""
        import psycopg

        address = url or self.address("postgres")
        with psycopg.connect(address, autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return found.fetchall() if found.description else []

    def database(self, name: str) -> str:
        """The URL of a new database."""
        self.execute(f"CREATE DATABASE {name}")
        return self.address(name)


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


def _binaries() -> Path | None:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found = shutil.which("initdb")
    return places[-1] if places else Path(found).parent if found else None


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that runs, with an empty database."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("needs PostgreSQL's initdb and pg_ctl")
    with tempfile.TemporaryDirectory(prefix="penex-") as name:
        found = Server(binaries, Path(name))
        found.start()
        try:
            found.database("studies")
            yield found
        finally:
            found.stop()
