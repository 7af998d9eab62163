"""The exponential loss alone lets the logits grow without end; PENEX holds them (a figure).

A small network on three classes that can be separated. EX is lowered by raising all logits at
once, whatever the classes; PENEX's penalty on the sum of exponentials is what stops it. (The
logits of the wrong classes still sink, which costs nothing.) Cross-entropy, for comparison, grows
too on data that can be separated, but slowly.

    python examples/divergence.py [--steps 5000] [--out docs/images/divergence.png]
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import scienceplots  # noqa: F401  (registers the style)
import torch
from torch import Tensor, nn

from penex import registry

SHOWN = {"ex": "-", "ce": "--", "penex": "-"}
READ_AT = (10, 100, 1000, 5000, 10_000, 50_000)


def data() -> tuple[Tensor, Tensor]:
    """Three round clouds, far enough apart for a network to separate them."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(3).repeat(50)
    angle = y * 2 * torch.pi / 3
    centres = 3 * torch.stack([angle.cos(), angle.sin()], dim=1)
    return centres + 0.5 * torch.randn(150, 2, generator=generator), y


def train(name: str, steps: int) -> tuple[list[float], float]:
    """The largest logit after each step, and the final accuracy."""
    x, y = data()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
    loss = registry.make(name)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    largest = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            logits = model(x)
        largest.append(logits.max().item())
    return largest, (logits.argmax(1) == y).float().mean().item()


def main() -> None:
    """Train the losses, print the largest logits, and save the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=Path("docs/images/divergence.png"))
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error(f"--steps must be at least 1; got {arguments.steps}")
    if not arguments.out.parent.is_dir():
        parser.error(f"the folder {arguments.out.parent} does not exist")

    torch.set_num_threads(1)  # a network this small only waits for a second thread
    read_at = [step for step in READ_AT if step <= arguments.steps] or [arguments.steps]
    print("largest logit after" + "".join(f"{step:>10,}" for step in read_at) + "   accuracy")
    with plt.style.context(["science", "no-latex"]):
        plt.rcParams.update({"font.size": 11})
        figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
        for name, line in SHOWN.items():
            colour = registry.colour(name)
            largest, accuracy = train(name, arguments.steps)
            title = registry.find(name).title
            row = "".join(f"{largest[step - 1]:>10.1f}" for step in read_at)
            print(f"{title:<19}{row}{accuracy:>11.3f}", flush=True)
            steps = range(1, arguments.steps + 1)
            axes.plot(steps, largest, color=colour, linestyle=line, linewidth=1.8)
            axes.annotate(
                title, (arguments.steps, largest[-1]), xytext=(6, 0), textcoords="offset points",
                color=colour, va="center", fontsize=12,
            )  # fmt: skip
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="optimiser step (Adam)",
            ylabel="largest logit",
            title="Without its penalty, the exponential loss lets the logits grow",
            xlim=(1, arguments.steps * 4),
        )
        figure.savefig(arguments.out, dpi=140)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
