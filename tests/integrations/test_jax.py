"""PENEX in JAX has the numbers of PENEX in torch."""

from typing import Any

import numpy as np
import pytest
import torch

import penex

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from penex.integrations import jax as ours  # noqa: E402

pytestmark = pytest.mark.frameworks

ROWS, CLASSES = 12, 5


def batch(kind: str, seed: int = 0, size: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = size * torch.randn(ROWS, CLASSES, generator=generator)
    if kind == "probabilities":
        return logits, torch.rand(ROWS, CLASSES, generator=generator).softmax(1)
    labels = torch.randint(CLASSES, (ROWS,), generator=generator)
    if kind == "ignored":
        labels[::3] = -100
        logits[1, (labels[1] + 1) % CLASSES] = -torch.inf  # a legal mask
    return logits, labels


def both(alpha: float, scale: str, kind: str, options: dict[str, Any], size: float = 2.0) -> None:
    """Five steps: values, gradients and rho of one after the other."""
    there = dict(options)
    if "weight" in options:
        there["weight"] = jnp.asarray(options["weight"].numpy())

    @jax.jit
    def step(logits: Any, labels: Any, rho: Any) -> Any:
        def loss(logits: Any) -> Any:
            value, moved = ours.penex(logits, labels, rho, alpha=alpha, scale=scale, **there)
            return value.sum(), (value, moved)

        return jax.grad(loss, has_aux=True)(logits)

    here = penex.PENEX(alpha, scale=scale, **options)
    rho = jnp.zeros(())
    for seed in range(5):
        logits, labels = batch(kind, seed, size)
        given = logits.clone().requires_grad_()
        value = here(given, labels)
        value.sum().backward()
        assert given.grad is not None
        grad, (loss, rho) = step(jnp.asarray(logits.numpy()), jnp.asarray(labels.numpy()), rho)
        np.testing.assert_allclose(loss, value.detach().numpy(), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(rho, here.rho, rtol=1e-6)
        largest = float(given.grad.abs().max())
        np.testing.assert_allclose(grad, given.grad.numpy(), rtol=1e-5, atol=1e-6 * largest)


@pytest.mark.parametrize("scale", ["paper", "cross_entropy"])
@pytest.mark.parametrize("alpha", [0.1, 1.0, -0.5])
@pytest.mark.parametrize("kind", ["indices", "ignored", "probabilities"])
def test_jax_equals_torch(alpha: float, scale: str, kind: str) -> None:
    both(alpha, scale, kind, {})


@pytest.mark.parametrize(
    "options",
    [
        {"weight": torch.linspace(0.5, 2, CLASSES), "label_smoothing": 0.1},
        {"order": "listing", "rho_max": 0.02, "ema": 0.5},
        {"reduction": "sum"},
        {"reduction": "none"},
        {"ema": 1.0},
    ],
)
@pytest.mark.parametrize("scale", ["paper", "cross_entropy"])
def test_jax_has_the_options(scale: str, options: dict[str, Any]) -> None:
    both(0.3, scale, "indices", options)


def test_the_lower_bound_of_rho_goes_with_many_classes() -> None:
    logits, labels = torch.zeros(2, 4000), torch.tensor([0, 1])
    loss = penex.PENEX(1e-5)
    loss(logits, labels)
    _, rho = ours.penex(jnp.zeros((2, 4000)), jnp.asarray([0, 1]), 0.0, alpha=1e-5)
    np.testing.assert_allclose(rho, loss.rho, rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.5, -0.5])
def test_jax_saturates_where_torch_does(alpha: float) -> None:
    both(alpha, "paper", "indices", {}, size=1000.0)


def test_many_batches_at_once() -> None:
    """Under vmap each batch has its own rho."""
    pairs = [batch("indices", seed) for seed in range(3)]
    logits = jnp.stack([x.numpy() for x, _ in pairs])
    labels = jnp.stack([y.numpy() for _, y in pairs])
    rho = jnp.asarray([0.0, 0.1, 0.2])
    values, moved = jax.jit(jax.vmap(ours.penex))(logits, labels, rho)
    for i in range(3):
        value, one = jax.jit(ours.penex)(logits[i], labels[i], rho[i])
        np.testing.assert_allclose(values[i], value, rtol=1e-6)
        np.testing.assert_allclose(moved[i], one, rtol=1e-6)


@pytest.mark.parametrize("scale", ["paper", "cross_entropy"])
def test_windows_are_those_of_accumulate(scale: str) -> None:
    """Two batches to a step, one in the last; one of them has nothing left; jitted, as optax is."""
    here = penex.PENEX(0.3, scale=scale, accumulate=2)
    window = ours.Window()

    @jax.jit
    def step(logits: Any, labels: Any, window: Any, ends: Any) -> Any:
        def loss(logits: Any) -> Any:
            return ours.penex(logits, labels, window, alpha=0.3, scale=scale, ends=ends)

        return jax.value_and_grad(loss, has_aux=True)(logits)

    for number in range(7):
        logits, labels = batch("indices", number)
        if number == 4:
            labels.fill_(-100)
        given = logits.clone().requires_grad_()
        value = here(given, labels)
        value.backward()
        ends = number % 2 == 1 or number == 6
        if number == 6:
            here.end_step()
        assert given.grad is not None
        (loss, window), grad = step(logits.numpy(), labels.numpy(), window, ends)
        np.testing.assert_allclose(loss, value.item(), rtol=1e-6)
        np.testing.assert_allclose(grad, given.grad.numpy(), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(window.rho, here.rho, rtol=1e-6)
        np.testing.assert_allclose(window.sums, here.window[:3], rtol=1e-6)
    held, same = ours.penex(
        logits.numpy(), labels.numpy(), window, alpha=0.3, scale=scale, train=False
    )
    np.testing.assert_allclose(held, here.eval()(logits, labels), rtol=1e-6)
    assert same is window


def test_training_evaluating_and_predicting_as_a_plain_loop_does() -> None:
    x = torch.randn(7 * ROWS, CLASSES, generator=torch.Generator().manual_seed(1))
    y = x.argmax(1)
    model = torch.nn.Linear(CLASSES, CLASSES)
    weight = jnp.asarray(model.weight.detach().numpy().T)
    bias = jnp.asarray(model.bias.detach().numpy())
    loss = penex.PENEX(0.4, scale="cross_entropy")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for part, labels in zip(torch.split(x, ROWS), torch.split(y, ROWS), strict=True):
        optimizer.zero_grad()
        loss(model(part), labels).backward()
        optimizer.step()

    def step(state: Any, rows: Any) -> Any:
        parameters, rho = state

        def value(parameters: Any) -> Any:
            return ours.penex(rows[0] @ parameters[0] + parameters[1], rows[1], rho, alpha=0.4)

        (_, rho), grads = jax.value_and_grad(value, has_aux=True)(parameters)
        return (jax.tree.map(lambda p, g: p - 0.5 * g, parameters, grads), rho), None

    rows = (
        jnp.asarray(x.numpy()).reshape(7, ROWS, CLASSES),
        jnp.asarray(y.numpy()).reshape(7, ROWS),
    )
    begun = (weight, bias), jnp.zeros(())
    half, _ = jax.lax.scan(step, begun, jax.tree.map(lambda a: a[:3], rows))
    ((weight, bias), rho), _ = jax.lax.scan(step, half, jax.tree.map(lambda a: a[3:], rows))
    np.testing.assert_allclose(rho, loss.rho, rtol=1e-5)
    logits = jnp.asarray(x.numpy()) @ weight + bias
    with torch.no_grad():
        expected = loss.probabilities(model(x)).numpy()
        held = loss.eval()(model(x), y)
    np.testing.assert_allclose(ours.probabilities(logits, 0.4), expected, atol=1e-5)
    value, same = ours.penex(logits, jnp.asarray(y.numpy()), rho, alpha=0.4, train=False)
    assert same == rho
    np.testing.assert_allclose(value, held, rtol=1e-5)


def test_devices_that_share_a_batch() -> None:
    """By the sums over an axis: the mean of their losses and gradients is the whole batch's."""
    logits, labels = (jnp.asarray(part.numpy()) for part in batch("ignored"))

    def mean(logits: Any) -> Any:
        def one(f: Any, y: Any) -> Any:
            return ours.penex(f, y, 0.0, axis_name="devices")

        parts = logits.reshape(3, 4, CLASSES), labels.reshape(3, 4)
        values, moved = jax.vmap(one, axis_name="devices")(*parts)
        return values.mean(), moved

    grad, moved = jax.jit(jax.grad(mean, has_aux=True))(logits)
    alone = jax.grad(lambda f: ours.penex(f, labels, 0.0), has_aux=True)
    whole, rho = jax.jit(alone)(logits)
    np.testing.assert_allclose(grad, whole, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(moved, jnp.full(3, rho), rtol=1e-6)


def test_what_is_wrong_is_said_or_not_a_number() -> None:
    logits = jnp.zeros((2, 3))
    with pytest.raises(ValueError, match="alpha must be"):
        ours.penex(logits, jnp.asarray([0, 1]), 0.0, alpha=0.0)
    with pytest.raises(ValueError, match="scale must be"):
        ours.penex(logits, jnp.asarray([0, 1]), 0.0, scale="huge")
    value, rho = ours.penex(logits, jnp.asarray([0, 3]), 0.5)
    assert jnp.isnan(value)
    assert rho == 0.5
    value, rho = ours.penex(logits, jnp.asarray([-100, -100]), 0.5)
    assert value == 0
    assert rho == 0.5
