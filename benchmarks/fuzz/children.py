"""A command in a process of its own that can be waited for, signalled and followed to its end."""

import os
import select
import signal
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import NoReturn

import torch

from benchmarks.fuzz.campaign import Finding
from benchmarks.fuzz.commands import without_pictures
from penex import cli

STOPPED = 130  # the exit code of a command that was told to stop


class Child:
    """A command that runs.

    Args:
        words: after `penex`.
        log: the file for all that it says.
        forked: True for a fork of this process, which has imported all there is to import; False
            for a new Python.
    """

    def __init__(self, words: list[str], log: Path, *, forked: bool) -> None:
        self.code: int | None = None
        with log.open("wb") as file:
            self._process = None if forked else _started(words, file.fileno())
            self.number = self._process.pid if self._process else _forked(words, file.fileno())
        self._handle = os.pidfd_open(self.number)

    def wait(self, seconds: float) -> int | None:
        """Its exit code, if it ends in that time (below 0: the signal that ended it); else None."""
        if self.code is None and select.select([self._handle], [], [], seconds)[0]:
            if self._process:
                self.code = self._process.wait()
            else:
                self.code = os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])
            os.close(self._handle)
        return self.code

    def end(self, seconds: float) -> int:
        """Its exit code; a `Finding` if it does not end in time, or leaves processes behind."""
        code = self.wait(seconds)
        if code is None:
            os.killpg(self.number, signal.SIGKILL)
            self.wait(seconds)
            raise Finding("left behind", f"the command did not end within {seconds:.0f} s")
        try:
            os.killpg(self.number, signal.SIGKILL)
        except ProcessLookupError:
            return code
        raise Finding("left behind", "a process outlived the command")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self.wait(0) is None:
            os.kill(self.number, number)


def _started(words: list[str], log: int) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "penex", *words]
    return subprocess.Popen(command, stdout=log, stderr=log, env=environment, process_group=0)


def _forked(words: list[str], log: int) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, of which none runs here
        child = os.fork()
    if child:
        os.setpgid(child, child)
        return child
    _be(words, log)


def _be(words: list[str], log: int) -> NoReturn:
    """The life of a fork."""
    code = 1
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        torch.set_num_threads(1)
        with without_pictures():
            cli.main(words)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:  # before the command could take it: `python -m penex` does so
        code = STOPPED
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
