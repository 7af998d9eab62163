"""PENEX in a plain loop: accumulation, validation, a checkpoint, and probabilities.

python examples/plain_loop.py [--epochs 10]
"""

import argparse
import io

import torch
from sklearn.datasets import load_digits
from torch import nn

import penex

ACCUMULATE = 2  # micro-batches to a step


class Model(nn.Module):
    """The loss is part of the model, so that it is saved, moved and evaluated with it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.loss = penex.PENEX(alpha=0.1, accumulate=ACCUMULATE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits."""
        logits: torch.Tensor = self.layers(x)
        return logits


def main() -> None:
    """Train on digits, save, load, predict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs

    torch.manual_seed(0)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train, test = torch.split(torch.randperm(len(y)), [1200, len(y) - 1200])
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        model.train()
        batches = torch.split(train[torch.randperm(len(train))], 32)
        for number, batch in enumerate(batches, 1):
            (model.loss(model(x[batch]), y[batch]) / ACCUMULATE).backward()
            if number % ACCUMULATE == 0 or number == len(batches):
                optimizer.step()
                optimizer.zero_grad()
                model.loss.end_step()  # the last window of an epoch may be a short one
        model.eval()  # and with it the loss: rho stays where it is
        with torch.no_grad():
            value = model.loss(model(x[test]), y[test])
        print(f"epoch {epoch + 1}: loss {value:.4f}, rho {model.loss.rho:.4f}")

    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    again = Model().eval()
    again.load_state_dict(torch.load(file, weights_only=True))  # rho and alpha are in it
    with torch.no_grad():
        probabilities = again.loss.probabilities(again(x[test]))
    right = (probabilities.argmax(1) == y[test]).float().mean()
    print(f"accuracy {right:.3f}, mean confidence {probabilities.amax(1).mean():.3f}")


if __name__ == "__main__":
    main()
