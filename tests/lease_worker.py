"""Three workers share a study, of whom one is killed and one is stopped for too long.

Usage: lease_worker.py URL FOLDER SEPARATE OPTION... It forks, so that a worker is hit while it
trains and not while it imports torch. Each writes what it says to FOLDER/ROLE.log, and its runs to
FOLDER/runs, or, if SEPARATE is 1, to FOLDER/ROLE. The exit code is 0 if both that were left ended
well.
"""

import os
import signal
import sys
import time
from pathlib import Path

import optuna  # noqa: F401  (imported before the fork)
import psycopg
import sklearn.datasets  # noqa: F401
import torch

from penex import cli
from penex.lab.records import Json, Record
from penex.report import studies, terminal  # noqa: F401


def stop_in_the_middle() -> None:
    """Stop this process when the first epoch of its first run was written."""
    add = Record.add_metrics

    def troubled(self: Record, line: Json) -> None:
        Record.add_metrics = add  # type: ignore[method-assign]
        add(self, line)
        os.kill(os.getpid(), signal.SIGSTOP)

    Record.add_metrics = troubled  # type: ignore[method-assign]


def start(role: str, url: str, folder: Path, separate: bool, options: list[str]) -> int:
    """A worker; its process."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(folder / f"{role}.log", os.O_WRONLY | os.O_CREAT), 2)
        out = folder / (role if separate else "runs")
        code = 1
        try:
            if role != "steady":
                stop_in_the_middle()
            cli.main(["tune", *options, "--storage", url, "--out", str(out)])
            code = 0
        finally:
            os._exit(code)
    return child


def owners(url: str) -> set[str]:
    """Who has a pack."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT owner FROM penex_packs WHERE owner IS NOT NULL")
        return {owner for (owner,) in found}


def main(url: str, folder: Path, separate: bool, options: list[str]) -> int:
    torch.set_num_threads(1)
    hit = [start(role, url, folder, separate, options) for role in ("killed", "stopped")]
    for child in hit:
        assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    before = owners(url)
    assert len(before) == 2
    killed, stopped = hit
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    steady = start("steady", url, folder, separate, options)
    while owners(url) & before and os.waitpid(steady, os.WNOHANG) == (0, 0):
        time.sleep(0.02)
    os.kill(stopped, signal.SIGCONT)
    return sum(os.waitpid(child, 0)[1] != 0 for child in (steady, stopped))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "1", sys.argv[4:]))
