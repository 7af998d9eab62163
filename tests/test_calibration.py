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


def test_what_has_no_minimum_gets_an_end_of_the_range() -> None:
    always_right = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    assert fit_temperature(always_right, torch.tensor([0, 1])).item() == pytest.approx(1e-4)
    assert fit_temperature(always_right, torch.tensor([1, 0])).item() == pytest.approx(1e4)


@pytest.mark.parametrize(
    ("logits", "target"),
    [(torch.zeros(0, 3), torch.zeros(0).long()), (torch.zeros(2, 3), torch.zeros(3).long())],
)
def test_what_cannot_be_fitted_is_a_value_error(logits: torch.Tensor, target: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"fitted|Expected"):
        fit_temperature(logits, target)
