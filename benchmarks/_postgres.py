"""A real PostgreSQL server of one's own, on a socket: for benchmarks, and for tests."""

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Server:
    """A server that can be stopped and started.

    Attributes:
        binaries: where initdb and pg_ctl are.
        folder: of its data and its socket; with a short path, as sockets need.
        durable: whether it waits for the disk; tests do without.
    """

    binaries: Path
    folder: Path
    durable: bool = False
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
        options = f"-c listen_addresses='' -k {self.folder}{'' if self.durable else ' -F'}"
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


def binaries() -> Path | None:
    """Where PostgreSQL's programs are; None if it is not installed."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found = shutil.which("initdb")
    return places[-1] if places else Path(found).parent if found else None
