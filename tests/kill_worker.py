"""Kill a command at random moments until it was hit often enough; print what happened.

Usage: kill_worker.py FOLDER KILLS SEED compare|tune|texts|images. It forks, so that a killed
command dies while it trains and not while it imports torch. FOLDER/whole is what an undisturbed one
leaves, FOLDER/0, FOLDER/1, ... what those leave that were killed again and again and then
completed.
"""

import os
import random
import select
import signal
import sys
import time
from pathlib import Path

import optuna  # noqa: F401  (imported before the fork)
import sklearn.datasets  # noqa: F401
import torch

from penex import cli
from penex.lab import tasks
from penex.report import figures, terminal  # noqa: F401
from small_trees import small_task

COMMANDS = {
    "compare": [
        "compare", "--losses", "ce", "penex", "ex:alpha=500", "--seeds", "1",  # ex diverges
        "--train-size", "97", "--epochs", "10", "--save-seconds", "0",
    ],
    "tune": [
        "tune", "--loss", "penex", "focal", "--trials", "15", "--batch", "5", "--train-size", "40",
        "--epochs", "3", "--save-seconds", "0",
    ],
    "texts": [
        "train", "--data", "reviews.csv", "--text-column", "body", "--label-column", "stars",
        "--encoder", "encoder", "--loss", "penex", "--epochs", "20", "--batch-size", "8",
        "--accumulate", "2", "--device", "cpu", "--save-seconds", "0",
    ],
    "images": [
        "train", "small_tree", "--loss", "penex", "--epochs", "12", "--device", "cpu",
        "--save-seconds", "0",
    ],
}  # fmt: skip


def start(command: str, out: Path) -> int:
    """A child process that carries out the command; its number."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(out.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        code = 1
        try:
            cli.main([*COMMANDS[command], "--out", str(out)])
            code = 0
        finally:
            os._exit(code)
    return child


def ends_within(child: int, seconds: float | None) -> bool:
    """Whether a child ends by itself in this time."""
    handle = os.pidfd_open(child)
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def main(folder: Path, kills: int, seed: int, command: str) -> None:
    torch.set_num_threads(1)
    if command == "texts":
        from transformers import AutoModelForSequenceClassification  # noqa: F401
    if command == "images":
        tasks.register(small_task(folder / "tree"))
    moments = random.Random(seed)
    began = time.monotonic()
    whole = start(command, folder / "whole")
    ends_within(whole, None)
    assert os.waitpid(whole, 0)[1] == 0, (folder / "whole.log").read_text()
    length = time.monotonic() - began
    hit, number = 0, 0
    while True:
        child = start(command, folder / str(number))
        delay = moments.uniform(0, length / 4) if hit < kills else None
        if ends_within(child, delay):
            status = os.waitpid(child, 0)[1]
            assert status == 0, (folder / f"{number}.log").read_text()
            if hit == kills:
                break
            number += 1
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            hit += 1
    print(hit, number + 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
