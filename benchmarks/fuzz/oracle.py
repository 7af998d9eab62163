"""What every loss of the registry must be, in float64, by its formula and in plain operations.

Only for batches in which nothing is saturated. PENEX's terms come from `penex._reference`; the
weights u and D are computed here a second time, so that an error there cannot hide.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from penex import _reference

Numbers = dict[str, Any]


@dataclass(frozen=True)
class Terms:
    """A batch as (P, K) logits in float64 with the weights of the definition.

    Attributes:
        f: the logits; 0 where a position has no weight.
        u: u_ij of the definition.
        total: D.
    """

    f: Tensor
    u: Tensor
    total: float

    @property
    def divisor(self) -> float:
        """What a mean divides by: D, and 1 if nothing is left."""
        return self.total if bool(self.mass.any()) else 1.0

    @property
    def mass(self) -> Tensor:
        """The weight of each position."""
        return self.u.sum(1)

    def expect(self, phi: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
        """sum_j u_ij phi(values_ij), where 0 times anything is 0."""
        return (self.u * phi(values.masked_fill(self.u == 0, -1.0))).sum(1)


def flat(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(P, K) logits and (P) or (P, K) targets: classes last, positions in order."""
    soft = target.shape == logits.shape
    if logits.dim() == 1:
        return logits[None], target[None] if soft else target.reshape(1)
    classes = logits.shape[1]
    moved = logits.movedim(1, -1).reshape(-1, classes)
    return moved, target.movedim(1, -1).reshape(-1, classes) if soft else target.reshape(-1)


def terms(
    logits: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, smoothing: float
) -> Terms:
    """The definition, for a flat batch."""
    rows, classes = logits.shape
    w = torch.ones(classes, dtype=torch.float64) if weight is None else weight.double()
    if target.dim() == 2:
        q, kept, total = target.double(), torch.ones(rows, dtype=torch.bool), float(rows)
    else:
        kept = target != ignore_index
        safe = target.long().where(kept, 0)
        q = torch.nn.functional.one_hot(safe, classes).double() * kept[:, None]
        total = float((w[safe] * kept).sum())
    u = w * ((1 - smoothing) * q + smoothing / classes) * kept[:, None]
    f = logits.double().masked_fill((u.sum(1) == 0)[:, None], 0.0)
    return Terms(f, u, total)


def _log_p(batch: Terms) -> Tensor:
    return batch.f.log_softmax(1)


def _entropy(batch: Terms) -> Tensor:
    """The entropy of the prediction, where 0 log 0 is 0."""
    log_p = _log_p(batch)
    return -(log_p.exp() * log_p.masked_fill(log_p == -math.inf, 0.0)).sum(1)


def _focal(batch: Terms, a: Numbers) -> Tensor:
    gamma = float(a["gamma"])

    def phi(log_p: Tensor) -> Tensor:
        return -((-torch.expm1(log_p)).clamp(min=1e-30) ** gamma) * log_p

    return batch.expect(phi, _log_p(batch))


def _cross_entropy(batch: Terms) -> Tensor:
    return batch.expect(torch.neg, _log_p(batch))


def _log_se(batch: Terms) -> Tensor:
    return batch.f.logsumexp(1)


def _ex(batch: Terms, a: Numbers) -> Tensor:
    alpha = a.get("alpha") or 1 / (batch.f.shape[1] - 1)
    return batch.expect(lambda f: torch.exp(-alpha * f), batch.f)


def violation(batch: Terms) -> tuple[Tensor, Tensor]:
    """CONEX's h^2 of each position, with its weight, and its mean."""
    h2 = batch.mass * batch.f.sum(1).square()
    return h2, h2.sum() / batch.divisor


def _squared(batch: Terms, a: Numbers) -> Tensor:
    h2, mean = violation(batch)
    rho, lambda_ = float(a["rho"]), float(a.get("lambda_", 0.0))
    return _ex(batch, {}) + (rho / 2 * mean + lambda_) * h2


def _brier(batch: Terms, a: Numbers) -> Tensor:
    p = _log_p(batch).exp()
    miss = p.unsqueeze(1) - torch.eye(p.shape[1], dtype=p.dtype)  # position, label, class
    return (batch.u * miss.square().sum(2)).sum(1)


def _gce(batch: Terms, a: Numbers) -> Tensor:
    return batch.expect(lambda v: -torch.expm1(a["q"] * v) / a["q"], _log_p(batch))


def _nce_rce(batch: Terms, a: Numbers) -> Tensor:
    log_p = _log_p(batch)
    every = log_p.masked_fill(log_p == -math.inf, 0.0).sum(1)
    # A class alone has 0 / 0; of two or more the sum is -2 log 2 at most.
    normalised = batch.expect(lambda v: v, log_p) / every.clamp(max=-1.0)
    reverse = math.log(1e-4) * batch.expect(torch.expm1, log_p)
    return float(a["a"]) * normalised + float(a.get("b", 1.0)) * reverse


def _near(batch: Terms) -> Tensor:
    return _log_p(batch).exp().clamp(1e-4, 1 - 1e-4)


def remembered(batch: Terms, t: Tensor | float, beta: float) -> Tensor:
    """ELR's memory of the positions after a batch, from what it was."""
    near = _near(batch).detach()
    moved = beta * t + (1 - beta) * near / near.sum(1, keepdim=True)
    return torch.where(batch.mass[:, None] > 0, moved, t)


def _elr(batch: Terms, a: Numbers) -> Tensor:
    agreement: Tensor = (_near(batch) * a["t"]).sum(1)
    return _cross_entropy(batch) + float(a["lambda_"]) * batch.mass * (1 - agreement).log()


# The loss of each position, by the arguments of the loss (and lambda, where it has moved).
VALUES: dict[str, Callable[[Terms, Numbers], Tensor]] = {
    "ce": lambda b, a: _cross_entropy(b),
    "label_smoothing": lambda b, a: _cross_entropy(b),
    "confidence_penalty": lambda b, a: _cross_entropy(b) - a["lambda_"] * b.mass * _entropy(b),
    "focal": _focal,
    "ex": _ex,
    "conex_hard": _ex,
    "conex_penalty": _squared,
    "conex_lagrangian": _squared,
    "ce_zloss": lambda b, a: _cross_entropy(b) + a["lambda_"] * b.mass * _log_se(b).square(),
    "ex_log_penalty": lambda b, a: _ex(b, a) + (a.get("rho") or a["alpha"]) * b.mass * _log_se(b),
    "brier": _brier,
    "gce": _gce,
    "nce_rce": _nce_rce,
    "elr": _elr,
}


def penalised(
    batch: Terms, target: Tensor, options: Numbers, a: Numbers, before: float, moves: bool
) -> tuple[Tensor, float]:
    """PENEX, or the unnormalised likelihood (alpha None): the losses, and rho afterwards.

    Args:
        batch: the flat batch with its weights.
        target: flat, of either kind.
        options: weight, ignore_index and label_smoothing.
        a: alpha, rho (None to estimate it), ema, rho_min, rho_max and order, and PENEX's scale.
        before: rho so far; 0 if no batch has come.
        moves: whether the loss is in train() mode.
    """
    weight = options["weight"]
    ex, se, total = _reference.loss_terms(
        batch.f, target, a["alpha"] or 0.0, None if weight is None else weight.tolist(),
        options["ignore_index"], options["label_smoothing"],
    )  # fmt: skip
    alpha = a["alpha"]
    own = torch.stack(ex) if alpha else batch.expect(torch.neg, batch.f)
    penalty = torch.stack(se)
    evidence = float((own if alpha else batch.mass).detach().sum())
    sum_se = float(penalty.detach().sum())
    rho, gain = a["rho"] or before, abs(alpha or 1.0)
    if a["rho"] is None and evidence + sum_se > 0:
        estimate = gain * evidence / (sum_se + 1e-12 * total)
        moved = _moved(before or estimate, estimate, a)
        rho = moved if moves or not before else before
    values = (-own if alpha and alpha < 0 else own) + rho * penalty
    if a.get("scale") == "cross_entropy" and evidence + sum_se > 0:
        mass = float(batch.mass.detach().sum())  # D, but for probabilities with weights
        values = values * mass / max(gain * evidence, rho * sum_se)
        level = math.log(evidence / mass) / alpha + math.log(sum_se / mass)
        short = level * mass - values.detach().sum()
        values = values + batch.mass.detach() * (short / mass)
    return values, rho if moves else before


def _moved(before: float, estimate: float, a: Numbers) -> float:
    low, high, ema = a["rho_min"], a["rho_max"], a["ema"]
    if a["alpha"] and a["alpha"] < 0:  # below, the loss would not be bounded
        low = max(low, -a["alpha"] * math.exp(-45 * (1 + a["alpha"])))
    listing = a["order"] == "listing"
    if listing:
        if before == estimate:
            before = min(max(before, low), high)
        estimate = min(max(estimate, low), high)
    moved = (1 - ema) * before + ema * estimate
    return float(moved if listing else min(max(moved, low), high))
