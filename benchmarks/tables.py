"""The tables: every loss with the authors' tuned value, packed, as small records.

Run it with `python -m benchmarks.tables TASK --data FOLDER --out runs --slim results`. It is
`penex compare TASK` with these losses, for machines that have torch, numpy and Pillow alone. The
small records have the scores of single test examples for the first seed only.
"""

import argparse
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks._main import positive, run
from penex.lab import environment, files, tasks
from penex.lab.compare import LISTING, Comparison, compare
from penex.lab.data.noise import LabelNoise
from penex.lab.records import Record
from penex.lab.reproduction import TABLE1, authors
from penex.lab.runs import Run, Treatment
from penex.lab.scores import slim
from penex.lab.training import Hooks


def command(words: list[str]) -> str:
    """The command line, with the folders of one machine left open."""
    folders = ("--data", "--out", "--slim")
    kept = ["FOLDER" if k and words[k - 1] in folders else word for k, word in enumerate(words)]
    return shlex.join(["python", "-m", "benchmarks.tables", *kept])


def main() -> None:
    """Train what is missing, then keep the small form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TABLE1)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--slim", type=Path)
    parser.add_argument("--name", help="of the folder in the small form (default: the task's)")
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--train-size", type=int)
    parser.add_argument("--noise-kind", choices=("flip", "resample"), default="flip")
    parser.add_argument("--losses", nargs="*")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--pack", type=positive)
    parser.add_argument("--save-seconds", type=float, default=120.0)
    options = parser.parse_args()
    task = tasks.find(options.task)
    collection = task.collect(options.data)
    task = replace(task, collect=lambda: collection)
    treatment = Treatment()
    if options.noise_kind != "flip":
        treatment = Treatment(LabelNoise(0.1, options.noise_kind))
    comparison = Comparison(
        task,
        tuple(options.losses or authors(task)),
        options.seeds,
        (options.train_size,) if options.train_size else (),
        {"epochs": options.epochs} if options.epochs else {},
        treatment,
    )
    began = time.monotonic()

    def epoch(run: Run, line: dict[str, float]) -> None:
        first = (comparison.losses[0], 0)
        if line["epoch"] % 10 == 0 and (str(run.loss), run.seed) == first:
            print(f"epoch {line['epoch']} after {time.monotonic() - began:.0f} s", flush=True)

    def done(run: Run, record: Record, reused: bool) -> None:
        end = record.done()
        test = end.get("test", {"accuracy": None})
        print(run.loss, run.seed, end["status"], test["accuracy"], flush=True)

    listing = compare(
        comparison,
        options.out,
        environment.device_of(options.device),
        command=command(sys.argv[1:]),
        hooks=Hooks(epoch=epoch, save_seconds=options.save_seconds),
        done=done,
        pack=options.pack,
    )
    print(f"{len(listing['runs'])} runs in {time.monotonic() - began:.0f} s")
    if options.slim:
        source, target = options.out / task.name, options.slim / (options.name or task.name)
        for run in listing["runs"]:
            first = run["seed"] == 0
            slim(Record(source / run["folder"]), target / run["folder"], scores=first)
        files.write_json(target / LISTING, listing)


if __name__ == "__main__":
    run(main)
