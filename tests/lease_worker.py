"""Three workers share a study or a comparison: one is killed, one is stopped for too long.

Usage: lease_worker.py URL FOLDER APART COMMAND OPTION... It forks, so that a worker is hit while it
trains and not while it imports torch. Each writes what it says to FOLDER/ROLE.log, and its runs to
FOLDER/runs, but, if APART is 1, the one that is stopped to FOLDER/stopped. The exit code is 0 if
both that were left ended well.
"""

import os
import select
import signal
import sys
from pathlib import Path

import optuna  # noqa: F401  (imported before the fork)
import psycopg
import sklearn.datasets  # noqa: F401
import torch

from penex import cli
from penex.lab.records import Json, Record
from penex.report import figures, studies, terminal  # noqa: F401


def stop_in_the_middle() -> None:
    """Stop this process when the first epoch of its first run was written."""
    add = Record.add_metrics

    def troubled(self: Record, line: Json) -> None:
        Record.add_metrics = add  # type: ignore[method-assign]
        add(self, line)
        os.kill(os.getpid(), signal.SIGSTOP)

    Record.add_metrics = troubled  # type: ignore[method-assign]


def start(role: str, url: str, folder: Path, apart: bool, options: list[str]) -> int:
    """A worker; its process."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(folder / f"{role}.log", os.O_WRONLY | os.O_CREAT), 2)
        out = folder / (role if apart and role == "stopped" else "runs")
        code = 1
        try:
            if role != "steady":
                stop_in_the_middle()
            cli.main([*options, "--storage", url, "--out", str(out)])
            code = 0
        finally:
            os._exit(code)
    return child


def owners(url: str) -> set[str]:
    """Who has a pack."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT owner FROM penex_leases WHERE owner IS NOT NULL")
        return {owner for (owner,) in found}


def main(url: str, folder: Path, apart: bool, options: list[str]) -> int:
    torch.set_num_threads(1)
    figures.write_all = lambda results, folder: []  # they take longer than all the rest
    alive: dict[str, int] = {}
    try:
        for role in ("killed", "stopped"):
            alive[role] = start(role, url, folder, apart, options)
        for child in alive.values():
            assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
        before = owners(url)
        assert len(before) == 2
        os.kill(alive["killed"], signal.SIGKILL)
        os.waitpid(alive.pop("killed"), 0)
        alive["steady"] = start("steady", url, folder, apart, options)
        steady = os.pidfd_open(alive["steady"])
        while owners(url) & before:
            ended = bool(select.select([steady], [], [], 0.02)[0])
            assert not ended, "the worker that was left ended before it had the others' packs"
        os.kill(alive["stopped"], signal.SIGCONT)
        codes = [os.waitpid(alive.pop(role), 0)[1] for role in ("steady", "stopped")]
        return sum(code != 0 for code in codes)
    finally:
        for child in alive.values():
            os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "1", sys.argv[4:]))
