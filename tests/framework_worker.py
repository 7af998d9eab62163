"""Train the model of `framework_task.py` in a framework, for test_killed.py and test_ranks.py.

Usage: framework_worker.py FRAMEWORK FOLDER killed | RANKS. What is trained goes on from the
checkpoint of FOLDER, if there is one, in the framework's own way, and writes FOLDER/rank-0.npz and
so on.

``killed``: one process kills itself in the middle of an epoch, and of a window; then another trains
what is left. RANKS: as many processes share each batch. The framework starts them, or torchrun did,
or they are started here, with torchrun's variables. Processes are forked where that is possible, so
that a framework is imported once.
"""

import importlib
import itertools
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

import framework_loops as loops
import framework_task as task
import framework_trainers as trainers

import vision_here

# What trains, what to import before a fork, and whether it starts its ranks itself.
FRAMEWORKS: dict[str, tuple[Callable[[Path, int], None], str, bool]] = {
    "accelerate": (loops.accelerate, "accelerate", False),
    "fastai": (trainers.fastai, "fastai.distributed", False),
    "ignite": (loops.ignite, "ignite.handlers", True),
    "jax": (loops.jax, "optax", True),
    "keras": (trainers.keras, "keras", True),
    "lightning": (trainers.lightning, "lightning.pytorch", True),
    "sklearn": (trainers.sklearn, "penex.integrations.sklearn", True),
    "skorch": (trainers.skorch, "skorch.hf", False),
    "timm": (loops.timm, "timm.models", False),
    "transformers": (trainers.transformers, "transformers.trainer", False),
}


def forked(train: Callable[[], None], **environment: str) -> int:
    """The number of a process that trains."""
    child = os.fork()
    if child == 0:
        os.environ.update(environment)
        code = 1
        try:
            train()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def ended(child: int) -> int:
    """How a process ended: its exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_and_resume(train: Callable[[], None], folder: Path) -> None:
    """One process is killed; this one, which has trained nothing, goes on from what it left."""
    task.batches = itertools.count(1)
    task.count_calls()
    assert ended(forked(train)) == -signal.SIGKILL
    task.batches = iter(())
    assert [*folder.iterdir()], "no checkpoint"
    assert not [*folder.glob("rank-*")]
    train()


def start_ranks(train: Callable[[], None], ranks: int) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": f"{ranks}", "MASTER_ADDR": "localhost", "MASTER_PORT": f"{port}"}
    children = [forked(train, RANK=f"{i}", LOCAL_RANK=f"{i}", **shared) for i in range(ranks)]
    assert [ended(child) for child in children] == [0] * ranks


def main(framework: str, folder: Path, how: str) -> None:
    torch.set_num_threads(1)
    os.environ["KERAS_BACKEND"] = "torch"
    if framework in ("fastai", "timm"):
        vision_here.declare()
    train, module, starts = FRAMEWORKS[framework]
    importlib.import_module(module)
    if how == "killed":
        kill_and_resume(lambda: train(folder, 1), folder)
    elif starts or "RANK" in os.environ:
        train(folder, int(how))
    else:
        start_ranks(lambda: train(folder, int(how)), int(how))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
