"""PENEX in Lightning: two lines more than cross-entropy.

python examples/lightning_module.py [--epochs 5]
"""

import argparse
import tempfile

import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import penex
from penex.integrations.lightning import PenexCallback, PredictsProbabilities


class Digits(PredictsProbabilities, LightningModule):
    """`predict_step` comes from the mix-in: probabilities at the loss's temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.loss = penex.PENEX(alpha=0.1)  # an attribute: saved and evaluated with the module

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        logits: Tensor = self.layers(x)
        return logits

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        """The loss of a batch; rho moves."""
        value: Tensor = self.loss(self(batch[0]), batch[1])
        return value

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        """The loss of a batch; rho stays, since Lightning calls eval()."""
        self.log("valid_loss", self.loss(self(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main() -> None:
    """Train with an accumulation of three batches, which an epoch is no multiple of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args().epochs

    torch.manual_seed(0)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train, test = random_split(TensorDataset(x, y), [1200, len(y) - 1200])
    held = DataLoader(test, batch_size=256)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            default_root_dir=folder, max_epochs=epochs, accumulate_grad_batches=3,
            callbacks=[PenexCallback()], accelerator="cpu", logger=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        model = Digits()
        trainer.fit(model, DataLoader(train, batch_size=32, shuffle=True), held)
        probabilities = torch.cat(trainer.predict(model, held))
    right = (probabilities.argmax(1) == y[test.indices]).float().mean()
    print(f"rho {model.loss.rho:.4f}, accuracy {right:.3f}")


if __name__ == "__main__":
    main()
