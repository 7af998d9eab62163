"""Wrong labels: cross-entropy, PENEX and losses made for it, on digits of which 40 % are wrong.

python examples/noisy_labels.py [--epochs 60]
"""

import argparse
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn

from penex import registry
from penex.metrics import accuracy, cross_entropy

WRONG = 0.4
LOSSES: dict[str, dict[str, Any]] = {
    "ce": {},
    "penex": {"alpha": -0.4, "scale": "cross_entropy"},  # below 0 what is wrong pulls less
    "gce": {"q": 0.7},
}


def main() -> None:
    """Train with each loss on the same wrong labels; the test set has right ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    epochs = parser.parse_args().epochs

    torch.manual_seed(0)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train, test = torch.split(torch.randperm(len(y)), [1200, len(y) - 1200])
    seen = torch.where(torch.rand(len(y)) < WRONG, torch.randint(10, (len(y),)), y)
    for name, options in LOSSES.items():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        loss = registry.make(name, **options)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for _ in range(epochs):
            for batch in torch.split(train[torch.randperm(len(train))], 64):
                optimizer.zero_grad()
                loss(model(x[batch]), seen[batch]).backward()
                optimizer.step()
        with torch.no_grad():
            logits = model(x[test])
        right = accuracy(logits, y[test])
        nll = cross_entropy(logits, y[test], temperature=loss.temperature)
        print(f"{registry.title(name):6} accuracy {right:.3f}, cross-entropy {nll:.3f}")


if __name__ == "__main__":
    main()
