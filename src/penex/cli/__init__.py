"""The command line: one function a command; it parses, calls and prints."""

import sys
from collections.abc import Sequence
from typing import Annotated

from penex.cli import given
from penex.cli.benchmarking import bench
from penex.cli.caching import cache
from penex.cli.collecting import data
from penex.cli.options import hinted
from penex.cli.parsing import Command, call_of
from penex.cli.reporting import report
from penex.cli.reproducing import reproduce
from penex.cli.suspecting import suggest, suspects
from penex.cli.training import compare, train
from penex.cli.tuning import tune
from penex.cli.using import export, predict
from penex.lab.ground.errors import told


def doctor(storage: Annotated[str | None, hinted("URL")] = None) -> None:
    """Say what is installed, which device there is, and what is missing for which command.

    Args:
        storage: a PostgreSQL server, as postgresql://user@host/name: say also whether workers can
            share studies and runs there. Nothing is written to it.
    """
    from penex.lab.ground import health
    from penex.lab.workers import checkup

    found = [checkup.report(storage)] if storage is not None else []
    print("\n\n".join([health.report(), *found]))


COMMANDS: dict[str, Command] = {
    "compare": compare,
    "train": train,
    "tune": tune,
    "report": report,
    "suspects": suspects,
    "suggest": suggest,
    "predict": predict,
    "export": export,
    "data": data,
    "cache": cache,
    "bench": bench,
    "reproduce": reproduce,
    "doctor": doctor,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The `penex` command."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    with given.words(words), told(given.command_line, words):
        call_of(COMMANDS, words)()
