"""Where tests of Triton kernels run: on a GPU, or on the CPU in Triton's interpreter."""

import os

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
