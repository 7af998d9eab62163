"""A loss in a real Lightning Trainer: windows, checkpoints, validation, prediction."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import penex

pytest.importorskip("lightning")
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from penex.integrations.lightning import PenexCallback, PredictsProbabilities

pytestmark = pytest.mark.frameworks

X = torch.randn(28, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(28) % 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(5, 3)


class Module(PredictsProbabilities, LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model, self.loss = network(), penex.PENEX(0.3, scale="paper")
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        return logits

    def training_step(self, batch: Any, index: int) -> Tensor:
        value: Tensor = self.loss(self(batch[0]), batch[1])
        return value

    def validation_step(self, batch: Any, index: int) -> None:
        self.seen.append(self.loss(self(batch[0]), batch[1]).item())

    def on_train_batch_end(self, *_: Any) -> None:
        assert self.trainer.callback_metrics["rho"] == self.loss.rho

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


def batches() -> DataLoader[Any]:
    return DataLoader(TensorDataset(X, Y), batch_size=4)  # seven, two to a step


def trainer(folder: Path, epochs: int) -> Trainer:
    return Trainer(
        default_root_dir=folder, max_epochs=epochs, accumulate_grad_batches=2, accelerator="cpu",
        callbacks=[PenexCallback()], logger=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip


def plain_loop(epochs: int) -> tuple[nn.Module, penex.PENEX]:
    model, loss = network(), penex.PENEX(0.3, accumulate=2, scale="paper")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(epochs):
        for window in zip(torch.split(X, 8), torch.split(Y, 8), strict=True):
            optimizer.zero_grad()
            for x, y in zip(*(torch.split(part, 4) for part in window), strict=True):
                (loss(model(x), y) / 2).backward()  # Lightning divides a short window alike
            optimizer.step()
            loss.end_step()
    return model, loss


def test_a_trainer_is_a_plain_loop_and_resumes(tmp_path: Path) -> None:
    """Validation in between moves nothing; a checkpoint has rho; predictions are calibrated."""
    first = trainer(tmp_path, 2)
    first.fit(Module(), batches(), batches())
    path = tmp_path / "checkpoint.ckpt"
    first.save_checkpoint(path)
    module = Module()
    last = trainer(tmp_path, 3)
    last.fit(module, batches(), batches(), ckpt_path=path, weights_only=False)
    model, loss = plain_loop(3)
    torch.testing.assert_close(module.loss.rho, loss.rho, rtol=1e-6, atol=0)
    torch.testing.assert_close(module.model.state_dict(), model.state_dict())
    parts = last.predict(module, batches())
    assert parts is not None
    with torch.no_grad():
        torch.testing.assert_close(torch.cat(parts), torch.softmax(1.3 * model(X), 1))
    assert module.loss.rho == loss.rho


def test_windows_follow_a_schedule_of_accumulation(tmp_path: Path) -> None:
    """Also if the callback that changes it comes after ours."""
    seen: list[int] = []

    class Watched(Module):
        def training_step(self, batch: Any, index: int) -> Tensor:
            seen.append(self.loss.accumulate)
            return super().training_step(batch, index)

    made = Trainer(
        default_root_dir=tmp_path, max_epochs=3, accelerator="cpu", logger=False,
        callbacks=[PenexCallback(), GradientAccumulationScheduler({0: 1, 1: 2, 2: 4})],
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    made.fit(Watched(), batches())
    assert seen == [1] * 7 + [2] * 7 + [4] * 7


def test_a_loss_outside_of_the_module_is_refused(tmp_path: Path) -> None:
    module = Module()
    module.loss = nn.CrossEntropyLoss()
    with pytest.raises(ValueError, match="make it an attribute"):
        trainer(tmp_path, 1).fit(module, batches())
