"""Decodes a folder with two processes, each of which writes its number to a pipe and waits."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from penex.lab.data import decoding
from penex.lab.data.read import read
from penex.lab.ground import environment


def wait(*_: Any) -> Any:
    """Stand for a decoder that is at work."""
    os.write(int(sys.argv[2]), f"{os.getpid()}\n".encode())
    signal.pause()


if __name__ == "__main__":
    decoding._MANY, decoding._CHUNK = 1, 3
    decoding.decode = wait  # type: ignore[assignment, attr-defined]
    environment.cores = lambda: 2
    read(Path(sys.argv[1]))
