"""Who else may call a loss: metric code by a view that never moves it, and a recomputed pass."""

import contextlib
import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import penex
from penex import registry


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 3, generator=generator), torch.arange(8) % 3


@pytest.mark.parametrize("name", sorted(registry.LOSSES))
def test_a_frozen_view_never_moves_a_loss(name: str) -> None:
    """In train() mode, where the loss itself would move; its value is that of eval()."""
    loss: Any = registry.make(name)
    loss.remember(8, 3)
    loss(*batch(1), **loss.asked(torch.arange(8)))
    before = copy.deepcopy(loss.state_dict())
    seen = loss.frozen()(*batch(2))
    assert loss.training
    torch.testing.assert_close(dict(loss.state_dict()), dict(before), rtol=0, atol=0)
    torch.testing.assert_close(seen, loss.eval()(*batch(2)), rtol=0, atol=0)
    assert loss.frozen().temperature == loss.temperature


def test_a_view_follows_its_loss() -> None:
    loss = penex.PENEX(0.1)
    view = loss.frozen()
    loss(*batch())
    with pytest.warns(UserWarning, match="alpha is 0.5"):
        loss.load_state_dict(penex.PENEX(0.5, rho=2.0).state_dict())
    torch.testing.assert_close(view(*batch()), loss.eval()(*batch()), rtol=0, atol=0)
    assert view.temperature == 1 / 1.5
    logits = torch.tensor([[0.0, 1.0]])
    assert view.probabilities(logits).equal(loss.probabilities(logits))


def test_a_view_inside_a_model_adds_nothing_to_it() -> None:
    model: Any = nn.Module()
    model.loss = penex.PENEX(0.1)
    keys = set(model.state_dict())
    model.metric = model.loss.frozen()
    assert set(model.state_dict()) == keys
    assert [*model.modules()].count(model.loss) == 1
    model.train()
    model.metric(*batch())
    assert model.loss.rho == 0
    twin = copy.deepcopy(model)
    twin.loss(*batch(1))
    assert twin.metric(*batch()) == twin.loss.eval()(*batch())
    assert model.loss.rho == 0


def steps(loss: nn.Module, how: str, impl: str = "") -> tuple[Tensor, dict[str, Any]]:
    """The gradients of three steps, with the loss computed once or again in the backward pass."""
    torch.manual_seed(0)
    model, grads = nn.Linear(3, 3), []

    def whole(x: Tensor, y: Tensor) -> Tensor:
        value: Tensor = loss(model(x), y, **loss.asked(torch.arange(8)))  # type: ignore[operator]
        return value

    for step in range(3):
        x, y = batch(step)
        if how == "once":
            value = whole(x, y)
        else:
            value = checkpoint(whole, x.requires_grad_(), y, use_reentrant=how == "reentrant")
        model.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        assert model.weight.grad is not None
        grads.append(model.weight.grad)
    return torch.stack(grads), dict(loss.state_dict())


@pytest.mark.parametrize("how", ["reentrant", "hooks"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("penex", {}),
        ("penex", {"impl": "reference"}),
        ("penex", {"scale": "cross_entropy", "order": "listing"}),
        ("penex", {"reduction": "sum", "label_smoothing": 0.1}),
        ("unnormalised", {}),
        ("elr", {}),
        ("focal", {}),
    ],
)
def test_a_batch_that_is_computed_again_moves_nothing(
    name: str, options: dict[str, Any], how: str
) -> None:
    """Activation checkpointing computes a batch once more in the backward pass."""

    def made() -> Any:
        loss: Any = registry.make(name, **options)
        loss.remember(8, 3)
        return loss

    # The older way of checkpointing computes it without gradients first, as who evaluates does.
    warned = how == "reentrant" and name in ("penex", "unnormalised")
    with pytest.warns(UserWarning, match="use_reentrant") if warned else contextlib.nullcontext():
        gradient, state = steps(made(), how)
    expected, expected_state = steps(made(), "once")
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(state, expected_state, rtol=1e-6, atol=0)


def test_micro_batches_that_are_computed_again_count_once() -> None:
    """All but the last of a window have the rho of the first pass; rho itself is always equal."""
    gradient, state = steps(penex.PENEX(0.1, accumulate=2), "hooks")
    expected, expected_state = steps(penex.PENEX(0.1, accumulate=2), "once")
    torch.testing.assert_close(state, expected_state, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient[0], expected[0], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(gradient[2], expected[2], rtol=1e-6, atol=1e-7)


def test_a_dual_variable_that_was_used_before_it_moved_cannot_be_used_again() -> None:
    with pytest.raises(RuntimeError, match="activation checkpointing"):
        steps(registry.make("conex_lagrangian"), "hooks")
