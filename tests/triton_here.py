"""Where tests of Triton kernels run: on a GPU, or on the CPU in Triton's interpreter."""

import os
import subprocess
import sys

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MARKS = [
    pytest.mark.skipif(
        DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1",
        reason="needs a GPU or TRITON_INTERPRET=1",
    ),
    # The interpreter computes what a mask throws away, and numpy warns of it.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def check_compiles(script: str) -> None:
    """Run a script that compiles kernels, outside of the interpreter; it ends with "compiled"."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "compiled\n", done.stderr[-2000:]
