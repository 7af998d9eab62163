"""Where a loss's state comes from: construction, the meta device, a checkpoint, a reset."""

import copy
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import penex
from penex import registry
from penex.base import Legal, Loss, Settings
from penex.conex import AugmentedLagrangianLoss

from strategies import make

STATEFUL = {"penex": {"accumulate": 2}, "unnormalised": {}, "conex_lagrangian": {}, "elr": {}}


@pytest.fixture
def nan_in_empty_memory() -> Iterator[None]:
    """Under deterministic algorithms torch fills memory that nobody has written to with NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


class Classifier(nn.Module):
    """A model with its loss inside."""

    def __init__(self, name: str = "penex") -> None:
        super().__init__()
        self.head = nn.Linear(3, 4)
        self.loss: Any = make(name, **STATEFUL[name])

    def train_a_batch(self, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        x, y = torch.randn(8, 3, generator=generator), torch.arange(8) % 4
        loss: Tensor = self.loss(self.head(x), y)
        return loss


def statistics(loss: Any) -> dict[str, Tensor]:
    return {name: getattr(loss, name).clone() for name in loss.statistics}


def on_meta(name: str) -> Classifier:
    with torch.device("meta"):
        model = Classifier(name)
    assert all(value.is_meta for value in statistics(model.loss).values())
    return model


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.usefixtures("nan_in_empty_memory")
def test_to_empty_makes_a_state_as_at_construction(name: str) -> None:
    model = on_meta(name).to_empty(device="cpu")
    assert model.head.weight.isnan().all(), "the memory was meant to be anything"
    assert same(statistics(model.loss), statistics(Classifier(name).loss))


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize(("emptied", "assign"), [(True, False), (True, True), (False, True)])
@pytest.mark.usefixtures("nan_in_empty_memory")
def test_a_loaded_state_is_kept_and_a_missing_one_is_at_its_beginning(
    name: str, emptied: bool, assign: bool
) -> None:
    saved = Classifier(name)
    for seed in range(3):
        saved.train_a_batch(seed)
    for known in (True, False):
        model = on_meta(name)
        if emptied:
            model.to_empty(device="cpu")
        state = {k: v for k, v in saved.state_dict().items() if known or k.startswith("head.")}
        model.load_state_dict(state, assign=assign, strict=known)
        if known:
            assert same(statistics(model.loss), statistics(saved.loss))
        fresh = Classifier(name)
        fresh.load_state_dict(state, strict=known)
        assert model.train_a_batch(9).item() == fresh.train_a_batch(9).item()
        assert same(statistics(model.loss), statistics(fresh.loss))


@pytest.mark.usefixtures("nan_in_empty_memory")
def test_a_fixed_rho_survives_the_meta_device() -> None:
    with torch.device("meta"):
        loss = penex.PENEX(rho=0.25)
    assert loss.to_empty(device="cpu").rho.item() == 0.25


def test_a_loss_on_the_meta_device_begins_where_its_first_logits_are() -> None:
    with torch.device("meta"):
        loss = penex.PENEX(0.1)
    loss(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
    assert loss.rho.item() == pytest.approx(0.1 / 3)


@pytest.mark.parametrize("name", STATEFUL)
def test_reset_parameters_goes_back_to_construction(name: str) -> None:
    model = Classifier(name)
    model.train_a_batch()
    places = {key: getattr(model.loss, key).data_ptr() for key in model.loss.statistics}
    assert not same(statistics(model.loss), statistics(Classifier(name).loss))
    model.loss.reset_parameters()
    assert same(statistics(model.loss), statistics(Classifier(name).loss))
    for key, place in places.items():  # a captured graph knows addresses
        assert getattr(model.loss, key).data_ptr() == place


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -1.0])
@pytest.mark.parametrize("options", [{}, {"impl": "reference"}, {"accumulate": 2}])
@pytest.mark.parametrize("training", [True, False])
def test_a_rho_that_is_none_is_never_used(
    broken: float, options: dict[str, Any], training: bool
) -> None:
    """Such a state counts as unset, whoever has made it."""
    loss = penex.PENEX(0.1, **options)
    clean = penex.PENEX(0.1, **options)
    loss.rho.fill_(broken)
    if loss.accumulate > 1 and broken != -1:
        loss.window.fill_(broken)
    for seed in range(3):
        logits, target = torch.randn(6, 3), torch.arange(6) % 3
        if seed == 0:
            target = torch.full((6,), -100)
        value = loss.train(training)(logits, target)
        assert value.item() == clean.train(training)(logits, target).item()
    if training:
        assert torch.equal(loss.rho, clean.rho)
        assert torch.equal(loss.window, clean.window)


def test_a_broken_dual_variable_begins_again() -> None:
    loss, clean = (AugmentedLagrangianLoss(0.3, 2.0) for _ in range(2))
    loss.lambda_.fill_(torch.nan)
    for _ in range(2):
        logits, target = torch.randn(6, 3), torch.arange(6) % 3
        assert loss(logits, target).item() == clean(logits, target).item()
    assert torch.equal(loss.lambda_, clean.lambda_)


@pytest.mark.parametrize("name", registry.LOSSES)
def test_a_load_that_changes_a_setting_says_so(name: str) -> None:
    entry = registry.find(name)
    saved = registry.make(name)
    registry.make(name).load_state_dict(saved.state_dict())  # a warning is an error here
    for parameter in entry.parameters:
        other = (parameter.low + parameter.default) / 2 + 0.1
        loss: Any = registry.make(name, **{parameter.name: other})
        words = f"{parameter.name} is {parameter.default}, not {other}"
        with pytest.warns(UserWarning, match=words) as seen:
            loss.load_state_dict(saved.state_dict())
        assert len(seen) == 1
        assert getattr(loss, parameter.name) == parameter.default
        loss.load_state_dict(saved.state_dict())


def test_a_load_that_fixes_rho_says_so() -> None:
    loss = penex.PENEX(0.1)
    with pytest.warns(UserWarning, match="rho is 0.5, not None"):
        loss.load_state_dict(penex.PENEX(0.1, rho=0.5).state_dict())
    assert loss.fixed_rho == 0.5


class Shifted(Loss):
    """A loss of one's own with a setting below 0."""

    settings: ClassVar[Settings] = {"shift": Legal(low=-10, high=10, optional=True)}

    def __init__(self, shift: float | None) -> None:
        super().__init__()
        self.configure(shift=shift)


@pytest.mark.parametrize("shift", [-1.0, 3.0, None])
def test_every_legal_setting_survives(shift: float | None) -> None:
    loss: Any = Shifted(shift)
    loss.load_state_dict(Shifted(shift).state_dict())
    assert loss.shift == shift


def test_a_state_of_old_has_minus_one_for_none() -> None:
    saved = penex.PENEX(0.1).state_dict()
    saved["_extra_state"] = torch.tensor([0.1, -1.0], dtype=torch.float64)
    loss = penex.PENEX(0.1)
    loss.load_state_dict(saved)
    assert (loss.alpha, loss.fixed_rho) == (0.1, None)


class Inside(Loss):
    """A loss with a loss and a teacher in it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = penex.PENEX(0.1)
        self.teacher = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self.inner(self.teacher(input), target)
        return value


def test_a_view_moves_nothing_inside_a_loss_either() -> None:
    loss = Inside()
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    logits, target = torch.randn(8, 4), torch.arange(8) % 4
    view = loss.frozen()
    assert view(logits, target).equal(view(logits, target))
    after = loss.state_dict()
    assert all(before[name].equal(after[name]) for name in before)
    assert all(module.training for module in loss.modules())


def test_a_view_has_a_reduction_of_its_own_and_reads_the_losss_numbers() -> None:
    loss = penex.PENEX(0.1)
    logits, target = torch.randn(8, 4), torch.arange(8) % 4
    view = loss.frozen()
    assert view.reduction == "mean"
    with view.reducing("none") as each:
        assert each(logits, target).shape == (8,)
    assert view(logits, target).dim() == 0
    view.reduction = "sum"
    with loss.reducing("sum"):
        wanted = loss.frozen()(logits, target)
    torch.testing.assert_close(view(logits, target), wanted)
    assert (loss.reduction, view.alpha) == ("mean", 0.1)
    loss(logits, target)
    assert view.rho.equal(loss.rho)
    torch.testing.assert_close(view.progress(logits, target), loss.progress(logits, target))
    with pytest.raises(ValueError, match="reduction"):
        view.reduction = "most"
    with pytest.raises(AttributeError):
        view.end_step()
    assert copy.deepcopy(view).reduction == "sum"
    assert not view.state_dict()
