"""What every framework trains in `framework_worker.py`, and the plain loop that says the outcome.

One linear model on the same rows in the same order: seven batches an epoch, two to a step of the
optimiser, which seven is no multiple of.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import penex

FEATURES, CLASSES, ALPHA, RATE = 5, 3, 0.4, 0.5
BATCH, WINDOW, EPOCHS = 4, 2, 4
BATCHES = 7  # an epoch
KILLED_AT = 17  # of the batches: in the third epoch, and in the middle of a window

X = torch.randn(BATCHES * BATCH, FEATURES, generator=torch.Generator().manual_seed(0))
Y = torch.arange(len(X)) % CLASSES


class Model(nn.Module):
    """The loss is part of the model, so that what saves, moves and evaluates it does so too.

    Args:
        window: how many batches make a step of the optimiser.
    """

    def __init__(self, window: int = WINDOW) -> None:
        super().__init__()
        self.layer = layer()
        self.loss = penex.PENEX(ALPHA, accumulate=window)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x)
        return logits


def layer() -> nn.Linear:
    """The weights that all begin with."""
    made = nn.Linear(FEATURES, CLASSES)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return made


def plain_loop(how: str) -> dict[str, np.ndarray]:
    """The outcome, by hand.

    Args:
        how: ``single``, every batch makes a step; ``cut``, the end of an epoch makes a step of a
            window that is not full, and its gradient is divided as that of a full one; ``mean``,
            the same, divided by what it has; ``carried``, such a window goes on in the next epoch.
    """
    model = Model(1 if how == "single" else WINDOW)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for window, full in _windows(how):
        for x, y in window:
            share = len(window) if how == "mean" else 1 if how == "single" else WINDOW
            (model.loss(model(x), y) / share).backward()
        if full:
            optimizer.step()
            optimizer.zero_grad()
            model.loss.end_step()
    return outcome(model.layer.weight, model.layer.bias, model.loss.rho, model.loss)


def _windows(how: str) -> Iterator[tuple[list[tuple[Tensor, Tensor]], bool]]:
    """The batches of each step, and whether the optimiser does make one."""
    epoch = [*zip(torch.split(X, BATCH), torch.split(Y, BATCH), strict=True)]
    size = 1 if how == "single" else WINDOW
    for batches in [epoch * EPOCHS] if how == "carried" else [epoch] * EPOCHS:
        for start in range(0, len(batches), size):
            window = batches[start : start + size]
            yield window, how != "carried" or len(window) == size


def outcome(
    weight: Any, bias: Any, rho: Any, loss: Any, probabilities: Any = None
) -> dict[str, np.ndarray]:
    """What is compared: the weights, rho and the probabilities of all rows.

    Args:
        weight: of the model.
        bias: of the model.
        rho: of the loss.
        loss: whose probabilities they are.
        probabilities: what the framework predicts; None to compute them here.
    """
    weight, bias, rho = (torch.as_tensor(np.array(_plain(one))) for one in (weight, bias, rho))
    if probabilities is None:
        probabilities = loss.probabilities(X @ weight.T + bias)
    found = {"weight": weight, "bias": bias, "rho": rho, "probabilities": _plain(probabilities)}
    return {name: np.asarray(value) for name, value in found.items()}


def _plain(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, Tensor) else value


def assert_same(found: Path, expected: dict[str, np.ndarray], tolerance: float = 2e-6) -> None:
    """That a framework has the outcome of the plain loop, to float32's rounding."""
    with np.load(found) as saved:
        assert set(saved) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(
                saved[name], value, rtol=10 * tolerance, atol=tolerance, err_msg=name
            )


def write(folder: Path, found: dict[str, np.ndarray], rank: int = 0) -> None:
    """Leave the outcome for the test to read."""
    np.savez(folder / f"rank-{rank}.npz", **found)  # type: ignore[arg-type]


def rows(ranks: int = 1, rank: int = 0) -> DataLoader[Any]:
    """A rank's share of each batch."""
    share = BATCH // ranks
    x, y = (torch.cat(torch.split(part, share)[rank::ranks]) for part in (X, Y))
    return DataLoader(TensorDataset(x, y), batch_size=share)


batches: Iterator[int] = iter(())  # their numbers, in a process that is to be killed


def count() -> None:
    """A batch was trained on: it may be the last one."""
    if next(batches, None) == KILLED_AT:
        os.kill(os.getpid(), signal.SIGKILL)


def count_calls() -> None:
    """Count what PENEX is called with in train() mode, in any framework."""
    forward = penex.PENEX.forward

    def counted(self: penex.PENEX, input: Any, target: Any) -> Any:
        value = forward(self, input, target)
        if self.training:
            count()
        return value

    penex.PENEX.forward = counted  # type: ignore[method-assign, assignment]


def start(framework: str, folder: Path, how: str, launcher: Sequence[str] = ()) -> None:
    """Run `framework_worker.py`, to its end."""
    worker = Path(__file__).with_name("framework_worker.py")
    command = [sys.executable, *launcher, str(worker), framework, str(folder), how]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
