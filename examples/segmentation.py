"""PENEX for every pixel: logits (N, C, H, W), labels (N, H, W), and 255 where nobody knows.

python examples/segmentation.py [--steps 60]
"""

import argparse

import torch
from torch import Tensor, nn

import penex

UNKNOWN = 255


def pictures(n: int) -> tuple[Tensor, Tensor]:
    """Noisy pictures with a bright square; inside it is class 1, its edge is not labelled."""
    labels = torch.zeros(n, 16, 16, dtype=torch.int64)
    for label in labels:
        top, left = torch.randint(1, 7, (2,)).tolist()
        label[top : top + 8, left : left + 8] = UNKNOWN
        label[top + 1 : top + 7, left + 1 : left + 7] = 1
    images = 0.5 * torch.randn(n, 1, 16, 16) + (labels == 1).unsqueeze(1)
    return images, labels


def main() -> None:
    """Train a few convolutions; the share of right pixels among those with a label."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2), nn.ReLU(),
        nn.Conv2d(8, 2, 1),
    )  # fmt: skip
    loss = penex.PENEX(alpha=0.1, ignore_index=UNKNOWN)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        images, labels = pictures(16)
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()
    images, labels = pictures(64)
    with torch.no_grad():
        probabilities = loss.probabilities(model(images))  # over dimension 1, for every pixel
    known = labels != UNKNOWN
    right = (probabilities.argmax(1) == labels)[known].float().mean()
    print(f"rho {loss.rho:.4f}, accuracy {right:.3f} of the labelled pixels")


if __name__ == "__main__":
    main()
