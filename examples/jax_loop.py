"""PENEX in JAX: rho goes into a step and comes out of it.

python examples/jax_loop.py [--epochs 10]
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

from penex.integrations.jax import penex, probabilities

ALPHA, RATE, BATCH = 0.1, 0.5, 100


def logits(parameters: Any, x: Any) -> Any:
    """A network with one hidden layer."""
    return jax.nn.relu(x @ parameters["in"]) @ parameters["out"]


@jax.jit
def step(parameters: Any, rho: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """One step of gradient descent, and of rho."""

    def loss(parameters: Any) -> Any:
        return penex(logits(parameters, x), y, rho, alpha=ALPHA)

    gradient, rho = jax.grad(loss, has_aux=True)(parameters)
    return jax.tree.map(lambda p, g: p - RATE * g, parameters, gradient), rho


def main() -> None:
    """Train on digits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs

    draw = np.random.default_rng(0)
    digits = load_digits()
    order = draw.permutation(len(digits.target))
    x, y = jnp.asarray(digits.data[order] / 16), jnp.asarray(digits.target[order])
    parameters: Any = {
        "in": jnp.asarray(draw.normal(size=(64, 64)) / 8),
        "out": jnp.asarray(draw.normal(size=(64, 10)) / 8),
    }
    rho: Any = jnp.zeros(())
    for _ in range(epochs):
        for start in range(0, 1200, BATCH):
            parameters, rho = step(
                parameters, rho, x[start : start + BATCH], y[start : start + BATCH]
            )
    p = probabilities(logits(parameters, x[1200:]), ALPHA)
    print(f"rho {rho:.4f}, accuracy {(p.argmax(1) == y[1200:]).mean():.3f}")


if __name__ == "__main__":
    main()
