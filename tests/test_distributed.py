"""Real processes over gloo: many ranks with parts of a batch equal one process with the whole."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import penex

import distributed_worker as worker


def run_ranks(ranks: int, cases: tuple[str, ...], folder: Path) -> list[dict[str, Any]]:
    script = Path(worker.__file__)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(ranks), folder, *cases],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in range(ranks)]


# The ranks start once for several losses: their start takes longer than their training.
TWO = ("accumulated", "probabilities", "negative", "fixed", "unnormalised", "conex_penalty")
FOUR = ("plain", "weighted", "scaled", "conex_lagrangian")


@pytest.mark.parametrize(
    ("ranks", "cases"),
    [
        pytest.param(2, ("plain",), id="2-plain"),
        pytest.param(2, TWO, id="2-others", marks=pytest.mark.slow),
        pytest.param(4, FOUR, id="4", marks=pytest.mark.slow),
    ],
)
def test_ranks_together_equal_one_process(
    ranks: int, cases: tuple[str, ...], tmp_path: Path
) -> None:
    made = run_ranks(ranks, cases, tmp_path)
    for case in cases:
        check_ranks(case, [one[case] for one in made])


def check_ranks(case: str, results: list[dict[str, Any]]) -> None:
    model, loss = worker.make_model(), worker.CASES[case]()
    alone = worker.train(model, loss, case, 0, 1)
    for result in results:
        torch.testing.assert_close(result["states"], alone["states"], rtol=1e-6, atol=0)
        for ours, one in zip(result["gradients"], alone["gradients"], strict=True):
            # The Lagrangian's steps, unlike PENEX's, feed rounding back: eight of them add up.
            assert (ours - one).norm() <= (3e-6 if "conex" in case else 1e-6) * one.norm()

    p = torch.stack([result["shown"].softmax(1).clamp(1e-4, 1 - 1e-4) for result in results])
    p = 0.5 * p / p.sum(2, keepdim=True)
    for result in results:
        torch.testing.assert_close(result["memory"], torch.cat([p[:, 0].mean(0)[None], p[:, 1]]))

    mean = torch.stack([result["values"] for result in results]).mean(0)
    torch.testing.assert_close(mean, alone["values"], rtol=1e-5, atol=1e-6)

    weights: dict[str, torch.Tensor] = results[0]["weights"]
    model.load_state_dict(weights)
    x, y = worker.batch(99, case)
    torch.testing.assert_close(results[0]["eval"], loss.eval()(model(x), y))
    by_itself, paired = penex.PENEX(0.1), penex.PENEX(0.1)
    by_itself(model(x), y)
    torch.testing.assert_close(results[0]["alone"], by_itself.rho)
    x, y = worker.batch(98, "plain")
    paired(model(x), y)
    for result in results[:2]:
        torch.testing.assert_close(result["paired"], paired.rho)


@pytest.mark.slow
def test_logits_that_lie_apart_are_read_whole(tmp_path: Path) -> None:
    """Or their model is sharded, or computed again: the rho and gradients of one process."""
    weight = worker.make_model().get_parameter("weight").detach().requires_grad_()
    x, y = worker.batch(0, "plain")
    loss = penex.PENEX(0.1)
    loss(x @ weight.T, y).backward()
    assert weight.grad is not None
    expected = torch.cat([loss.rho.view(1), weight.grad.flatten()])
    for result in (made["sharded"] for made in run_ranks(2, ("sharded",), tmp_path)):
        assert len(result) == 4
        torch.testing.assert_close(result, dict.fromkeys(result, expected))
