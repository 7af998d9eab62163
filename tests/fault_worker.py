"""Carry out runs in forked processes that fail at a chosen write; print what came of each.

Usage: fault_worker.py FOLDER kill|full alone|packed STRIDE. Every process is killed, or told that
the disk is full, before its n-th write: n is 0, STRIDE, 2 STRIDE and so on until one gets through.
Then what is left is completed without faults in FOLDER/n. FOLDER/whole was never disturbed.
"""

import errno
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from penex.lab import tasks, training
from penex.lab.tasks import runs
from penex.lab.training import packing

FAULT = 9
DIGITS = tasks.find("digits")
RUNS = [
    runs.plan(DIGITS, runs.LossSpec.parse(loss), 0, 40, {"epochs": 2})
    for loss in ("ce", "penex", "ex:alpha=1000")  # the last diverges
]
_WRITES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree")


PLACE = training.Place(Path())


class Faults:
    """Fail before the n-th write; a hook for sys.addaudithook."""

    def __init__(self, kind: str, n: int) -> None:
        self.kind, self.left = kind, n

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        writing = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
        if not (writing or event in _WRITES):
            return
        self.left -= 1
        if self.left >= 0:
            return
        if self.kind == "kill":
            os._exit(FAULT)
        if event not in ("os.remove", "os.rmdir", "shutil.rmtree"):  # a full disk can be cleared
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), arguments[0])


def carried_out(out: Path, most: int, faults: Faults | None) -> int:
    """The exit code of a process that trains all runs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if faults is not None:
                sys.addaudithook(faults)
            hooks = training.Hooks(save_seconds=0.0)
            packing.train(RUNS, replace(PLACE, out=out, hooks=hooks), most)
            code = 0
        except OSError as error:
            named = error.filename and not str(error.filename).endswith(".tmp")
            code = FAULT if error.errno == errno.ENOSPC and named else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path, kind: str, how: str, stride: int) -> None:
    torch.set_num_threads(1)
    most = 1 if how == "alone" else 8
    PLACE.data(RUNS[0])  # read once, before the forks
    assert carried_out(folder / "whole", most, None) == 0
    n = 0
    while (code := carried_out(folder / str(n), most, Faults(kind, n))) != 0:
        assert code == FAULT, (n, code)
        assert carried_out(folder / str(n), most, None) == 0, n
        print(n)
        n += stride


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
