"""Cross-entropy and PENEX in a training loop of your own: a table of the metrics on digits.

`penex compare` does this and more; here every line is in sight.
"""

import argparse
import time
from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from penex import registry
from penex.metrics import bootstrap, scores, summary

METRICS = {
    "accuracy": "higher is better",
    "cross_entropy": "lower is better",
    "brier": "lower is better",
    "ece": "lower is better",
}
LOSSES = {"cross-entropy": "ce", "PENEX": "penex"}


def split(seed: int, train_size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A random training set of `train_size` digits; the other ones are the test set."""
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    train, test = order[:train_size], order[train_size:]
    return x[train], y[train], x[test], y[test]


def small_network() -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 128), nn.ReLU(),
        nn.Linear(128, 10),
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], nn.Module], float]] = {
    "network": (small_network, 1e-3),
    "linear": (lambda: nn.Linear(64, 10), 1e-2),
}


def train(kind: str, loss: nn.Module, x: Tensor, y: Tensor, epochs: int, seed: int) -> nn.Module:
    """Train with Adam: the same start and the same batches whatever the loss."""
    torch.manual_seed(seed)
    make_model, rate = MODELS[kind]
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(y)), 32):
            optimizer.zero_grad()
            loss(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    """Train each loss with each seed, then print means, seed spreads and bootstrap spreads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train-size", type=int, default=200, help="training digits of 1,797")
    parser.add_argument("--seeds", type=int, default=5, help="splits and initialisations to try")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--model", choices=MODELS, default="network", help="(default: network)")
    arguments = parser.parse_args()
    if not 1 <= arguments.train_size < 1797 or arguments.seeds < 2 or arguments.epochs < 1:
        parser.error("--train-size must be from 1 to 1796, --seeds at least 2, --epochs at least 1")

    start = time.perf_counter()
    results: dict[str, dict[str, list[float]]] = {}
    spreads: dict[str, dict[str, Tensor]] = {}
    for name, loss_name in LOSSES.items():
        results[name] = {metric: [] for metric in METRICS}
        for seed in range(arguments.seeds):
            x, y, x_test, y_test = split(seed, arguments.train_size)
            loss = registry.make(loss_name)
            model = train(arguments.model, loss, x, y, arguments.epochs, seed)
            temperature = loss.temperature
            with torch.no_grad():
                logits = model(x_test)
            cached = scores(logits, y_test, temperature=temperature)
            for metric in METRICS:
                results[name][metric].append(summary(cached)[metric].item())
            spreads[name] = bootstrap(logits, y_test, temperature=temperature)
            print(f"{name}: seed {seed + 1} of {arguments.seeds} done", flush=True)

    elapsed = time.perf_counter() - start
    print(
        f"\nDigits, {arguments.train_size} for training, {len(y_test)} for testing, "
        f"{arguments.model}, {arguments.seeds} seeds, {arguments.epochs} epochs, {elapsed:.0f} s.\n"
        "mean ± standard deviation over seeds [bootstrap spread of the last seed's test set]\n"
    )
    print(f"{'':15}" + "".join(f"{name:>26}" for name in LOSSES))
    for metric, direction in METRICS.items():
        cells = []
        for name in LOSSES:
            values = torch.tensor(results[name][metric])
            spread = spreads[name][metric].item()
            cells.append(f"{values.mean():.4f} ± {values.std():.4f} [{spread:.4f}]")
        print(f"{metric:15}" + "".join(f"{cell:>26}" for cell in cells) + f"   {direction}")


if __name__ == "__main__":
    main()
