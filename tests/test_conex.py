"""The ablations: what they converge to, how the dual variable moves, where they diverge."""

import pytest
import torch
from torch import Tensor

from penex import functional as F
from penex import registry
from penex.conex import (
    AugmentedLagrangianLoss,
    ExponentialLoss,
    SquaredPenaltyLoss,
    ZeroSumHead,
)


def test_a_dual_variable_never_becomes_infinite() -> None:
    loss = AugmentedLagrangianLoss(754, 8.8)
    loss(torch.tensor([[3e18, 3e18]]), torch.tensor([0]))
    assert loss.lambda_.isfinite()
    assert loss(torch.zeros(2, 2), torch.tensor([-100, -100])) == 0


def test_the_lagrangian_moves_its_dual_variable_after_use() -> None:
    loss = AugmentedLagrangianLoss(rho=0.5, nu=4.0)
    expected = 0.0
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(6, 4, generator=generator, dtype=torch.float64)
        target = torch.randint(4, (6,), generator=generator)
        h2 = logits.sum(1).square().mean().item()
        ex = F.exponential(logits, target, 1 / 3).mean().item()
        value = loss(logits, target).item()
        assert value == pytest.approx(ex + 0.25 * h2**2 + expected * h2)
        expected += 0.5 / 4.0 * h2
        assert loss.lambda_.item() == pytest.approx(expected)


def conex_distance(loss: SquaredPenaltyLoss, rounds: int) -> tuple[float, float]:
    """Minimise over free logits; the distance from CONEX's optimum, and E[h^2].

    Under Sum f = 0 and alpha = 1 / (K - 1), the minimiser of E[exp(-alpha f_y)] is
    f_k = (K - 1)(log p_k - mean_j log p_j) (Zhu et al., 2009).
    """
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
    known = 3 * (p.log() - p.log().mean(1, keepdim=True))
    f = torch.zeros_like(p, requires_grad=True)
    loss.double()
    for _ in range(rounds):
        optimizer = torch.optim.LBFGS(
            [f],
            max_iter=500,
            tolerance_grad=1e-12,
            tolerance_change=0,
            line_search_fn="strong_wolfe",
        )
        loss.eval()  # the dual variable rests while f moves

        def closure(optimizer: torch.optim.LBFGS = optimizer) -> Tensor:
            optimizer.zero_grad()
            value: Tensor = loss(f, p)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        loss.train()
        loss(f.detach(), p)
    return (f.detach() - known).abs().max().item(), f.detach().sum(1).square().mean().item()


def test_the_squared_penalty_approaches_conex_as_rho_grows() -> None:
    distances = [conex_distance(SquaredPenaltyLoss(rho), 1)[0] for rho in (1e0, 1e2, 1e4, 1e6)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.1 * distances[0]


def test_the_augmented_lagrangian_reaches_conex() -> None:
    # lambda multiplies h^2, not h: it must go to infinity, and nu this small takes it there soon.
    distance, violation = conex_distance(AugmentedLagrangianLoss(rho=10.0, nu=1e-5), 40)
    assert violation < 1e-8
    assert distance < 1e-3


def test_exponential_loss_with_a_zero_sum_head_reaches_conex() -> None:
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=torch.float64)
    free = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    head, loss = ZeroSumHead(), ExponentialLoss()
    optimizer = torch.optim.LBFGS([free], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = loss(head(free), p)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    known = 3 * (p.log() - p.log().mean(1, keepdim=True))
    torch.testing.assert_close(head(free).detach(), known, rtol=1e-4, atol=1e-4)


def test_the_head_sums_many_halves() -> None:
    assert ZeroSumHead()(torch.full((1, 999), 100.0).half()).isfinite().all()


@pytest.mark.parametrize("shape", [(3,), (5, 3), (5, 3, 2, 2)])
def test_the_head_sums_to_zero(shape: tuple[int, ...]) -> None:
    outputs = torch.randn(shape, requires_grad=True, dtype=torch.float64)
    dim = min(1, len(shape) - 1)
    logits = ZeroSumHead()(outputs)
    assert logits.shape[dim] == 4
    torch.testing.assert_close(logits.sum(dim), torch.zeros_like(logits.sum(dim)))
    assert torch.autograd.gradcheck(ZeroSumHead(), outputs)


def test_the_ablations_are_never_saturated() -> None:
    logits = torch.tensor([[-1000.0, 1000.0]])
    for name in ("ex", "conex_penalty", "conex_lagrangian", "conex_hard"):
        assert registry.make(name)(logits, torch.tensor([0])).isinf()
