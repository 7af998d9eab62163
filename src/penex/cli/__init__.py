"""The command line: one function a command; it parses, calls and prints."""

import io
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from penex.cli import training
from penex.cli.benchmarking import bench
from penex.cli.caching import cache
from penex.cli.reading import data
from penex.cli.reporting import report
from penex.cli.reproducing import reproduce
from penex.cli.training import compare, train
from penex.cli.tuning import tune
from penex.cli.using import export, predict
from penex.lab.errors import told


def doctor() -> None:
    """Say what is installed, which device there is, and what is missing for which command."""
    from penex.lab import health

    print(health.report())


COMMANDS: dict[str, Callable[..., Any]] = {
    "compare": compare,
    "train": train,
    "tune": tune,
    "report": report,
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
    training.given[:] = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our signs is no error
    with told(training.command_line):
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="penex",
            description="A laboratory for losses: PENEX and what it is judged against.",
            args=arguments,
            config=(tyro.conf.OmitArgPrefixes,),
        )
