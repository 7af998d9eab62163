"""Which examples pull on a model: those that look wrong, or those that look right (a figure).

Digits with three tenths of the training labels wrong on purpose. PENEX weighs an example by
exp(-alpha f_y): for alpha above 0 the more, the more wrong its label looks, for alpha below 0 the
less. Cross-entropy's weight is 1 - p_y. Drawn are the mean weight of the wrong labels over that of
the right ones, and the accuracy on clean test labels, while the model trains.

    python examples/other_sign.py [--epochs 60] [--out docs/images/other_sign.png]
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import scienceplots  # noqa: F401  (registers the style)
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from penex import registry

SHOWN = {"penex": 0.1, "ce": 0.0, "penex_negative": -0.5}
WRONG, TRAIN, BATCH = 0.3, 900, 50


def data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images, clean labels, labels with some wrong ones, and which examples are for training."""
    images, clean = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(clean), generator=generator)
    given = clean.clone()
    flipped = order[: int(WRONG * TRAIN)]
    given[flipped] += torch.randint(1, 10, (len(flipped),), generator=generator)
    return images.float() / 16, clean, given % 10, order[:TRAIN]


def train(name: str, alpha: float, epochs: int) -> tuple[list[float], list[float]]:
    """After each epoch: the weight of wrong labels over that of right ones; the test accuracy."""
    images, clean, given, training = data()
    testing = torch.ones(len(clean), dtype=torch.bool).index_fill_(0, training, False)
    wrong = (given != clean)[training]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    loss = registry.make(name, **({"alpha": alpha} if alpha else {}))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    ratios, accuracies = [], []
    for _ in range(epochs):
        for batch in torch.split(training[torch.randperm(TRAIN)], BATCH):
            optimizer.zero_grad()
            loss(model(images[batch]), given[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            logits = model(images)
            own = logits[training].gather(1, given[training, None])[:, 0]
            p = logits[training].softmax(1).gather(1, given[training, None])[:, 0]
            weight = torch.exp(-alpha * own) if alpha else 1 - p
            ratios.append((weight[wrong].mean() / weight[~wrong].mean()).item())
            right = logits.argmax(1) == clean
            accuracies.append(right[testing].float().mean().item())
    return ratios, accuracies


def main() -> None:
    """Train the losses, print the last numbers, and save the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("docs/images/other_sign.png"))
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error(f"--epochs must be at least 1; got {arguments.epochs}")
    if not arguments.out.parent.is_dir():
        parser.error(f"the folder {arguments.out.parent} does not exist")

    torch.set_num_threads(1)  # a network this small only waits for a second thread
    print("                   weight of wrong over right labels   test accuracy")
    with plt.style.context(["science", "no-latex"]):
        plt.rcParams.update({"font.size": 11})
        figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.6), layout="constrained")
        for name, alpha in SHOWN.items():
            ratios, accuracies = train(name, alpha, arguments.epochs)
            title = f"PENEX, α = {alpha:g}" if alpha else registry.find(name).title
            print(f"{title:<19}{ratios[-1]:>33.2f}{accuracies[-1]:>16.3f}", flush=True)
            epochs = range(1, arguments.epochs + 1)
            for axes, values in ((left, ratios), (right, accuracies)):
                axes.plot(epochs, values, color=registry.colour(name), linewidth=1.8, label=title)
        left.axhline(1, color="0.6", linewidth=0.8)
        left.set(
            yscale="log",
            xlabel="epoch",
            ylabel="weight of wrong over right labels",
            title="Who pulls",
        )
        right.set(xlabel="epoch", ylabel="accuracy on clean labels", title="What comes of it")
        right.legend()
        figure.savefig(arguments.out, dpi=140)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
