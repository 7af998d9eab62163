"""Temperatures fitted after the fact: the minimum, its ends, and what it cannot be asked for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from penex.calibration import fit_temperature


@given(st.integers(0, 10**6), st.floats(0.2, 5.0))
def test_the_fitted_temperature_is_a_minimum_and_follows_the_scale(seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    target = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    fitted = fit_temperature(logits, target)
    best = cross_entropy(logits / fitted, target)
    for other in (0.99, 1.01):
        assert cross_entropy(logits / (fitted * other), target) >= best
    if 1e-3 < fitted < 1e3:
        torch.testing.assert_close(fit_temperature(logits * scale, target), fitted * scale)


def test_logits_at_a_known_temperature_are_found_to_be_at_it() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(200_000, 3, generator=generator, dtype=torch.float64)
    target = torch.multinomial(torch.softmax(logits / 2.5, 1), 1, generator=generator).squeeze(1)
    assert fit_temperature(logits, target).item() == pytest.approx(2.5, rel=0.03)


@given(st.integers(1, 500), st.floats(0.1, 50.0), st.integers(2, 12))
def test_logits_that_are_always_right_leave_room_for_a_mistake(
    n: int, margin: float, classes: int
) -> None:
    """Each is right with probability (n + 1) / (n + 2), which one margin makes a closed form."""
    target = torch.arange(n) % classes
    logits = margin * torch.nn.functional.one_hot(target, classes).double()
    seen = torch.softmax(logits / fit_temperature(logits, target), 1).amax(1)
    torch.testing.assert_close(seen, torch.full_like(seen, max((n + 1) / (n + 2), 1 / classes)))


def test_logits_that_are_never_right_get_the_highest_temperature() -> None:
    always_wrong = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    assert fit_temperature(always_wrong, torch.tensor([1, 0])).item() == pytest.approx(1e4)


def test_a_class_that_is_masked_changes_nothing_and_what_is_no_number_is_none() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(500, 3, generator=generator, dtype=torch.float64)
    target = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    out = torch.full((500, 1), -torch.inf, dtype=torch.float64)
    masked = torch.cat([logits, out], 1)
    assert fit_temperature(masked, target).item() == pytest.approx(fit_temperature(logits, target))
    right = 3.0 * torch.eye(3), torch.arange(3)
    wide = torch.cat([right[0], out[:3].float()], 1)
    torch.testing.assert_close(fit_temperature(wide, right[1]), fit_temperature(*right))
    for row, wrong in ((0, torch.nan), (1, torch.inf)):
        spoilt = logits.clone()
        spoilt[row, 0] = wrong
        assert fit_temperature(spoilt, target).isnan()
    assert fit_temperature(masked, target.index_fill(0, torch.tensor(7), 3)).isnan()


def test_an_example_of_which_only_its_class_is_left_says_nothing_of_a_temperature() -> None:
    rows = [[2.0, -torch.inf, -torch.inf], [3.0, 1.0, 0.0], [2.0, 0.0, 1.0], [1.5, 1, -torch.inf]]
    found = []
    for own in (0.0, 2.0, 50.0):
        rows[0][0] = own
        found.append(fit_temperature(torch.tensor(rows), torch.zeros(4).long()).item())
    assert found[1:] == pytest.approx([found[0]] * 2)


@pytest.mark.parametrize(
    ("logits", "target"),
    [(torch.zeros(0, 3), torch.zeros(0).long()), (torch.zeros(2, 3), torch.zeros(3).long())],
)
def test_what_cannot_be_fitted_is_a_value_error(logits: torch.Tensor, target: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"fitted|Expected"):
        fit_temperature(logits, target)
