"""The theory of PENEX as numbers: margins, their tail bounds, the generalisation bound.

With f the logits, y the target, b = alpha / (1 + alpha), EX and SE the means over n examples:

    P(m <= gamma) <= e^(b gamma) EX^(1 - b) SE^b <= e^(b gamma) rho^(-b) (EX + rho SE).

The target's own logit is part of SE, so EX^(1 - b) SE^b >= E[(SE / e^(f_y))^b] >= 1: for gamma
above 0 no form of the bound is ever below e^(b gamma) > 1. It says which way is better, not how
good one is.

All of it is for alpha above 0. Below 0, b is negative, and Chernoff's inequality has nothing to say
of small margins: exp(-alpha f_y) then grows with the margin, and a mean of it bounds none from
below. What is left for both signs is in `penex.functional`: the minimiser, and that rho* is the
penalty under which no common shift of the logits helps.

Everything is computed in float64 and through logarithms, so that a bound of 1e300 is a number.
Logits have shape (N, C), targets are class indices of shape (N).
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from penex.base import NON_NEGATIVE, POSITIVE, Legal


def margins(logits: Tensor, target: Tensor) -> Tensor:
    r"""m(x, y) = f_y(x) - max_{j != y} f_j(x) of each example: above 0 where it is right.

    Args:
        logits: f, of shape (N, C) with at least two classes.
        target: class indices, of shape (N).

    >>> margins(torch.tensor([[2.0, 0.5, -1.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2]))
    tensor([ 1.5000, -2.0000], dtype=torch.float64)
    """
    f = _checked(logits, target)
    own = target.unsqueeze(1)
    rival = f.scatter(1, own, -torch.inf).amax(dim=1)
    return f.gather(1, own).squeeze(1) - rival


def margin_tail_bound(
    logits: Tensor, target: Tensor, gamma: float, alpha: float, rho: float
) -> Tensor:
    r"""P(m <= gamma) <= e^(b gamma) rho^(-b) (EX + rho SE), the paper's theorem:margin_max.

    Chernoff with b in (0, 1): P(m <= gamma) <= e^(b gamma) E[exp(b (max_{j != y} f_j - f_y))];
    max f_j <= log SE and Hölder with alpha = b / (1 - b) give e^(b gamma) EX^(1 - b) SE^b;
    AM-GM on EX^(1 - b) (rho SE)^b gives (1 - b) EX + b rho SE <= EX + rho SE, times rho^(-b).

    Args:
        logits: f, of shape (N, C).
        target: class indices, of shape (N).
        gamma: the margin asked about.
        alpha: the sensitivity, above 0.
        rho: the penalty, above 0; `optimal_rho` gives the tightest bound.

    >>> f, y = torch.tensor([[3.0, 0.0]]), torch.tensor([0])
    >>> margin_tail_bound(f, y, gamma=1.0, alpha=1.0, rho=0.05)
    tensor(8.1406, dtype=torch.float64)
    """
    return torch.exp(_log_tail_bound(logits, target, gamma, alpha, rho))


def sharp_margin_tail_bound(logits: Tensor, target: Tensor, gamma: float, alpha: float) -> Tensor:
    r"""P(m <= gamma) <= e^(b gamma) EX^(1 - b) SE^b: the theorem before its last inequality.

    It needs no rho, does not change when a constant is added to all logits, and is smaller than
    `margin_tail_bound` at any rho: at rho* by the factor b^b (1 - b)^(1 - b), for
    EX + rho* SE = (1 + alpha) EX and rho*^(-b) = (alpha EX / SE)^(-b), with alpha = b / (1 - b).

    >>> f, y = torch.tensor([[3.0, 0.0]]), torch.tensor([0])
    >>> sharp_margin_tail_bound(f, y, gamma=1.0, alpha=1.0)
    tensor(1.6893, dtype=torch.float64)
    """
    log_ex, log_se = _log_means(logits, target, alpha)
    b = alpha / (1 + alpha)
    return torch.exp(b * gamma + (1 - b) * log_ex + b * log_se)


def optimal_rho(logits: Tensor, target: Tensor, alpha: float) -> Tensor:
    r"""rho* = alpha EX / SE, which minimises `margin_tail_bound` (prop:optimal_penalty).

    The logarithm of the bound is -b log rho + log(EX + rho SE) plus what does not depend on rho;
    its derivative -b / rho + SE / (EX + rho SE) vanishes where (1 - b) rho SE = b EX, and only
    there: the bound falls before and rises after (it is convex in log rho, though not in rho).

    >>> optimal_rho(torch.zeros(1, 4), torch.tensor([0]), alpha=0.1)
    tensor(0.0250, dtype=torch.float64)
    """
    log_ex, log_se = _log_means(logits, target, alpha)
    return alpha * torch.exp(log_ex - log_se)


def generalization_bound(
    logits: Tensor,
    target: Tensor,
    gamma: float,
    alpha: float,
    rho: float,
    *,
    rademacher: float,
    delta: float,
) -> Tensor:
    r"""A bound on the error rate that holds with probability 1 - delta (cor:generalization_bound).

    e^(b gamma) rho^(-b) (EX + rho SE) + (4 K / gamma) R + sqrt(log(1 / delta) / (2 n)):
    Mohri et al.'s Theorem 9.2 bounds the error by the share of margins up to gamma, plus the
    last two terms, for a gamma fixed beforehand; `margin_tail_bound` bounds that share.
    R is the Rademacher complexity of the function class, which the caller must know. The first
    term alone is above 1, so of the error itself the bound says nothing.

    Args:
        logits: f on the training set, of shape (N, C).
        target: class indices, of shape (N).
        gamma: the margin, above 0. `optimal_gamma` gives the best one, but the theorem then
            holds for a gamma that was not looked up in the same data.
        alpha: the sensitivity, above 0.
        rho: the penalty, above 0.
        rademacher: the Rademacher complexity R, at least 0.
        delta: the probability that the bound fails, above 0 and at most 1.

    >>> f, y = torch.tensor([[3.0, 0.0]]).repeat(1000, 1), torch.zeros(1000).long()
    >>> generalization_bound(f, y, 1.0, 1.0, 0.05, rademacher=0.01, delta=0.05)
    tensor(8.2593, dtype=torch.float64)
    """
    POSITIVE.checked("gamma", gamma)
    Legal(high=1.0, above=True).checked("delta", delta)
    NON_NEGATIVE.checked("rademacher", rademacher)
    tail = margin_tail_bound(logits, target, gamma, alpha, rho)
    examples, classes = logits.shape
    capacity = 4 * classes / gamma * rademacher
    return tail + capacity + math.sqrt(math.log(1 / delta) / (2 * examples))


def optimal_gamma(
    logits: Tensor, target: Tensor, alpha: float, rho: float, *, rademacher: float
) -> Tensor:
    r"""The gamma that minimises `generalization_bound`.

    The bound is A e^(b gamma) + C / gamma plus a constant, with A = rho^(-b) (EX + rho SE) and
    C = 4 K R. Its derivative vanishes where gamma^2 e^(b gamma) = C / (A b), that is, where
    x e^x = (b / 2) sqrt(C / (A b)) for x = b gamma / 2: gamma = (2 / b) W(...), Lambert's W.

    Args:
        logits: f on the training set, of shape (N, C).
        target: class indices, of shape (N).
        alpha: the sensitivity, above 0.
        rho: the penalty, above 0.
        rademacher: the Rademacher complexity R, above 0.

    >>> f, y = torch.tensor([[3.0, 0.0]]).repeat(1000, 1), torch.zeros(1000).long()
    >>> optimal_gamma(f, y, 1.0, 0.05, rademacher=0.01)
    tensor(0.1724, dtype=torch.float64)
    """
    POSITIVE.checked("rademacher", rademacher)
    log_a = _log_tail_bound(logits, target, 0.0, alpha, rho)
    b = alpha / (1 + alpha)
    log_c = math.log(4 * logits.shape[1] * rademacher)
    # x + log x = log(b / 2) + (log C - log A - log b) / 2 has one root; Newton's method in log x
    # is monotone after one step, for the left side is convex and increasing in log x.
    goal = math.log(b / 2) + (log_c - log_a - math.log(b)) / 2
    log_x = torch.where(goal > 1, goal.clamp(min=1.0).log(), goal)
    for _ in range(50):
        x = log_x.exp()
        log_x = log_x - (x + log_x - goal) / (x + 1)
    return 2 / b * log_x.exp()


def adaboost_margin_bound(errors: Iterable[float], gamma: float) -> float:
    r"""P(m <= gamma) <= prod_m 2 sqrt(eps_m^(1 - gamma) (1 - eps_m)^(1 + gamma)): AdaBoost's bound.

    Schapire et al.'s Theorem 5, beside ours: with weights eta_m = log((1 - eps_m) / eps_m) / 2 and
    normalised margin m = y sum_m eta_m g_m / sum_m eta_m, the event m <= gamma means
    exp(gamma sum eta_m - y sum eta_m g_m) >= 1; the mean of the second factor is prod_m Z_m, with
    Z_m = 2 sqrt(eps_m (1 - eps_m)), and exp(gamma eta_m) = ((1 - eps_m) / eps_m)^(gamma / 2).
    It needs two classes, the AdaBoost algorithm and margins in [-1, 1]; ours needs none of these.

    Args:
        errors: the weighted training errors eps_m of the rounds, each below 1/2; of a fitted
            `SAMMEClassifier`, ``model.estimator_errors_[: len(model.estimators_)]``.
        gamma: the normalised margin asked about.

    >>> round(adaboost_margin_bound([0.3, 0.35, 0.4], gamma=0.0), 4)
    0.8566
    """
    log_bound = 0.0
    for eps in errors:
        if not 0 <= eps < 0.5:
            raise ValueError(f"A weighted error must be at least 0 and below 1/2; got {eps}.")
        log_eps = math.log(eps) if eps > 0 else -math.inf
        tail = 0.0 if gamma == 1 else (1 - gamma) * log_eps
        log_bound += math.log(2) + (tail + (1 + gamma) * math.log1p(-eps)) / 2
    return math.exp(log_bound) if log_bound < 709 else math.inf


def _log_tail_bound(
    logits: Tensor, target: Tensor, gamma: float, alpha: float, rho: float
) -> Tensor:
    POSITIVE.checked("rho", rho)
    log_ex, log_se = _log_means(logits, target, alpha)
    b = alpha / (1 + alpha)
    log_rho = math.log(rho)
    return b * (gamma - log_rho) + torch.logaddexp(log_ex, log_rho + log_se)


def _log_means(logits: Tensor, target: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """The logarithms of EX and SE."""
    if alpha < 0:
        raise ValueError(
            "The margin bounds hold for alpha above 0 only, where b = alpha / (1 + alpha) is above "
            f"0 as Chernoff's inequality needs it; got alpha={alpha}."
        )
    POSITIVE.checked("alpha", alpha)
    f = _checked(logits, target)
    own = f.gather(1, target.unsqueeze(1)).squeeze(1)
    log_n = math.log(len(f))
    return torch.logsumexp(-alpha * own, 0) - log_n, torch.logsumexp(f, (0, 1)) - log_n


def _checked(logits: Tensor, target: Tensor) -> Tensor:
    if logits.dim() != 2 or logits.shape[0] < 1 or logits.shape[1] < 2:
        raise ValueError(
            "Margins need logits of shape (N, C) with at least one example and two classes; got "
            f"{tuple(logits.shape)}."
        )
    if target.shape != logits.shape[:1]:
        raise ValueError(
            f"Margins need class indices of shape ({len(logits)},); got {tuple(target.shape)}."
        )
    if target.dtype != torch.int64:
        raise ValueError(f"Margins need int64 class indices; got {target.dtype}.")
    bad = target[(target < 0) | (target >= logits.shape[1])]
    if len(bad):
        raise IndexError(
            f"Target {bad[0].item()} is out of bounds: with {logits.shape[1]} classes, a target is "
            f"a class index from 0 to {logits.shape[1] - 1}. Leave ignored examples out."
        )
    return logits.double()
