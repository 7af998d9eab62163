"""`penex reproduce` and `penex tune` where the libraries of a command line are not installed.

    python -m penex.paper table1 --data FOLDER --out runs --slim results
    python -m penex.paper tune cifar10 --all --data FOLDER --minutes 9

They need torch, numpy, Pillow and safetensors (tune: Optuna too; bbc_news: transformers);
what needs more is left out, and said. The options are those of penex reproduce and penex tune.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from penex.lab import tasks
from penex.lab.data.noise import Kind
from penex.lab.ground.errors import told, writes
from penex.lab.records.views import Select, View
from penex.lab.training.session import Lines, Silent, Watcher
from penex.lab.tuning.search import Tuning
from penex.paper import studies
from penex.paper.reproduction import reproduce
from penex.paper.request import WHAT, Request
from penex.streams import outlive_readers


def main(arguments: Sequence[str] | None = None) -> None:
    """Carry out what the command line asks for."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = shlex.join(["python", "-m", "penex.paper", *words])
    options: dict[str, Any] = {"command": command, "watch": _watcher}
    for name, value in vars(_parser().parse_args(words)).items():
        options[name] = tuple(value) if isinstance(value, list) else value
    with told(lambda: command, words):
        if options["what"] == "tune":
            _tune(options)
        else:
            reproduce(Request(**options))


def _watcher(total: int) -> Watcher:
    return Lines(total, sys.stderr) if writes() else Silent()


def _tune(options: dict[str, Any]) -> None:
    del options["what"]
    task = tasks.find(options.pop("task"))
    if "data" in options:
        task = tasks.placed(task, options.pop("data"))
    if "encoder" in options:
        task = tasks.encoded(task, options.pop("encoder"))
    losses = studies.losses_of(options.pop("loss", ()), options.pop("all", False))
    changes = {"epochs": options.pop("epochs")} if "epochs" in options else {}
    known = ("trials", "batch", "seed", "train_size", "along")
    what: dict[str, Any] = {name: options.pop(name) for name in known if name in options}
    what["view"] = View(options.pop("select", "last"), options.pop("calibrate", False))
    studies.tune(Tuning(task, losses, changes=changes, **what), studies.Way(**options))


def _parser() -> argparse.ArgumentParser:
    """A parser that says nothing of what was not given: the defaults are in one place."""
    parser = argparse.ArgumentParser(
        "python -m penex.paper",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="what", required=True)
    for what in (*WHAT, "tune"):
        command = commands.add_parser(what, argument_default=argparse.SUPPRESS)
        for name in ("data", "out", "slim"):
            command.add_argument(f"--{name}", type=Path)
        for name in ("epochs", "train-size"):
            command.add_argument(f"--{name}", type=int)
        command.add_argument("--device")
        command.add_argument("--encoder")
        command.add_argument("--save-seconds", type=float)
        command.add_argument("--pack")
        if what == "tune":
            command.add_argument("task", choices=tasks.NAMES)
            command.add_argument("--loss", nargs="+")
            command.add_argument("--all", action="store_true")
            for name in ("trials", "batch", "seed"):
                command.add_argument(f"--{name}", type=int)
            command.add_argument("--minutes", type=float)
            command.add_argument("--with", dest="along", nargs="+")
            command.add_argument("--select", choices=get_args(Select))
            command.add_argument("--calibrate", action="store_true")
        else:
            command.add_argument("--task", nargs="+")
            command.add_argument("--losses", nargs="+")
            command.add_argument("--seeds", type=int)
            for name in ("tuned", "authors", "read-only", "smoke"):
                command.add_argument(f"--{name}", action="store_true")
            if what in ("fair", "all"):
                command.add_argument("--trial-epochs", type=int)
            if what in ("resnet", "all"):
                command.add_argument("--augment")
            if what in ("figures", "all"):
                command.add_argument("--only", nargs="+")
            if what == "all":
                command.add_argument("--plan", action="store_true")
            command.add_argument("--noise-kind", choices=get_args(Kind))
    return parser


if __name__ == "__main__":
    outlive_readers()
    main()
