"""The loss in accelerate: prepared, accumulated, saved and resumed, without an adapter."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import penex

accelerate = pytest.importorskip("accelerate")

pytestmark = pytest.mark.frameworks

X = torch.randn(28, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(28) % 3
BATCHES = [*zip(torch.split(X, 4), torch.split(Y, 4), strict=True)]


class Model(nn.Module):
    """The loss is part of the model, so that what saves, moves and evaluates it does so too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(5, 3)
        self.loss = penex.PENEX(0.4, accumulate=2, scale="paper")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layer(x)
        return logits


def run(epochs: int, folder: Path, *, resumes: bool) -> Any:
    """Seven batches an epoch, two to a step: accelerate cuts the last window short."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    accelerator = accelerate.Accelerator(gradient_accumulation_steps=2, cpu=True)
    model: Any = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    rows: Any = DataLoader(TensorDataset(X, Y), batch_size=4)
    model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
    loss = accelerator.unwrap_model(model).loss
    if resumes:
        accelerator.load_state(folder)
    for _ in range(epochs):
        model.train()
        for x, y in rows:
            with accelerator.accumulate(model):
                accelerator.backward(loss(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
                if accelerator.sync_gradients:
                    loss.end_step()
        model.eval()
        loss(model(X), Y)
    accelerator.save_state(folder)
    return model


def test_accelerate_is_a_plain_loop_and_resumes(tmp_path: Path) -> None:
    run(1, tmp_path, resumes=False)
    model = run(2, tmp_path, resumes=True)
    twin = Model()
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.5)
    for _ in range(3):
        for start in range(0, 7, 2):
            optimizer.zero_grad()
            for x, y in BATCHES[start : start + 2]:
                (twin.loss(twin(x), y) / 2).backward()
            optimizer.step()
            twin.loss.end_step()
    torch.testing.assert_close(model.loss.rho, twin.loss.rho)
    torch.testing.assert_close(model.layer.state_dict(), twin.layer.state_dict())
    torch.testing.assert_close(model.loss.probabilities(model(X)), torch.softmax(1.4 * twin(X), 1))
