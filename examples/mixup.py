"""PENEX on mixed examples: targets that are probabilities need nothing special.

python examples/mixup.py [--epochs 10]
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import penex


def mixed(x: Tensor, target: Tensor, strength: float = 0.4) -> tuple[Tensor, Tensor]:
    """Each example with another one, in a share drawn for the batch."""
    share = torch.distributions.Beta(strength, strength).sample()
    other = torch.randperm(len(x))
    return share * x + (1 - share) * x[other], share * target + (1 - share) * target[other]


def main() -> None:
    """Train on mixtures of digits, evaluate on digits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs

    torch.manual_seed(0)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    soft = nn.functional.one_hot(y, 10).float()
    train, test = torch.split(torch.randperm(len(y)), [1200, len(y) - 1200])
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    loss = penex.PENEX(alpha=0.1)
    metric = loss.frozen()  # the same loss, which evaluating does not move
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in torch.split(train[torch.randperm(len(train))], 64):
            inputs, target = mixed(x[batch], soft[batch])
            optimizer.zero_grad()
            loss(model(inputs), target).backward()
            optimizer.step()
    with torch.no_grad():
        logits = model(x[test])
    right = (logits.argmax(1) == y[test]).float().mean()
    print(f"loss {metric(logits, y[test]):.4f}, rho {loss.rho:.4f}, accuracy {right:.3f}")


if __name__ == "__main__":
    main()
