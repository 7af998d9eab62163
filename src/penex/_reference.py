"""The oracle of the tests: the paper's algorithm and listing, and our definition, in plain loops.

Slow and obvious on purpose. Nothing in the product imports this module, and it imports nothing of
the product, so an error there cannot hide here.
"""

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor


def loss_terms(
    logits: Tensor,
    target: Tensor,
    alpha: float,
    weight: list[float] | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> tuple[list[Tensor], list[Tensor], float]:
    """ex_i and se_i of each row, and D, for (N, C) logits: the definition, term by term.

    >>> ex, se, total = loss_terms(torch.zeros(1, 3), torch.tensor([2]), alpha=0.1)
    >>> ex, se, total
    ([tensor(1.)], [tensor(3.)], 1.0)
    """
    rows, classes = logits.shape
    w = [1.0] * classes if weight is None else weight
    hard = target.dim() == 1
    ex, se, total = [], [], 0.0
    for i in range(rows):
        if hard and int(target[i]) == ignore_index:
            ex.append(logits.new_zeros(()))
            se.append(logits.new_zeros(()))
            continue
        ex_i, mass, sum_exp = logits.new_zeros(()), 0.0, logits.new_zeros(())
        for j in range(classes):
            q = float(int(target[i]) == j) if hard else float(target[i, j])
            u = w[j] * ((1 - label_smoothing) * q + label_smoothing / classes)
            mass += u
            if u != 0:
                ex_i = ex_i + u * torch.exp(-alpha * logits[i, j])
            sum_exp = sum_exp + torch.exp(logits[i, j])
        ex.append(ex_i)
        se.append(mass * sum_exp)
        total += w[int(target[i])] if hard else 1.0
    return ex, se, total


def penex(
    logits: Tensor,
    target: Tensor,
    alpha: float,
    rho: float,
    weight: list[float] | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The mean loss of (N, C) logits for a given rho: sum_i (sign(alpha) ex_i + rho se_i) / D.

    >>> penex(torch.zeros(1, 3), torch.tensor([2]), alpha=0.1, rho=0.5)
    tensor(2.5000)
    """
    ex, se, total = loss_terms(logits, target, alpha, weight, ignore_index, label_smoothing)
    sign = -1 if alpha < 0 else 1
    return torch.stack([sign * e + rho * s for e, s in zip(ex, se, strict=True)]).sum() / total


def algorithm(
    batches: Iterable[tuple[Tensor, Tensor]],
    alpha: float,
    beta: float = 0.1,
    rho_min: float = 1e-6,
    rho_max: float = 100.0,
    eps: float = 1e-12,
) -> Iterator[tuple[float, Tensor]]:
    """Algorithm 1 of the paper: rho_t and the loss of each batch (average, then clip).

    For alpha below 0, which the paper does not have, rho* = |alpha| EX / SE.

    >>> batch = (torch.zeros(1, 3), torch.tensor([2]))
    >>> [(round(rho, 4), loss) for rho, loss in algorithm([batch], alpha=0.1)]
    [(0.0333, tensor(1.1000))]
    """
    rho = math.nan
    for t, (logits, target) in enumerate(batches, start=1):
        ex, se, total = loss_terms(logits, target, alpha)
        ex_mean = sum(float(e) for e in ex) / total
        se_mean = sum(float(s) for s in se) / total
        estimate = abs(alpha) * ex_mean / (se_mean + eps)
        if t == 1:
            rho = estimate
        rho = (1 - beta) * rho + beta * estimate
        rho = min(max(rho, rho_min), rho_max)
        yield rho, penex(logits, target, alpha, rho)


class Listing:
    """The loss object of the paper's appendix: clips the estimate, then averages.

    Its alpha is above 0; the sign for one below is ours.

    >>> Listing()(torch.zeros(1, 3), torch.tensor([2]))
    tensor(1.1000)
    """

    def __init__(
        self,
        alpha: float = 0.1,
        rho_min: float = 1e-6,
        rho_max: float = 100.0,
        ema: float = 0.1,
    ) -> None:
        self.alpha, self.rho_min, self.rho_max, self.ema = alpha, rho_min, rho_max, ema
        self.rho: Tensor | None = None

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """The mean loss of a batch, after moving rho."""
        base = torch.exp(-self.alpha * logits[torch.arange(len(target)), target])
        sumexp = torch.exp(torch.logsumexp(logits, dim=1))
        estimate = abs(self.alpha) * base.detach().mean() / (sumexp.detach().mean() + 1e-12)
        estimate = estimate.clamp(self.rho_min, self.rho_max)
        if self.rho is None:
            self.rho = estimate
        else:
            self.rho = (1 - self.ema) * self.rho + self.ema * estimate
        return (math.copysign(1, self.alpha) * base + self.rho * sumexp).mean()
