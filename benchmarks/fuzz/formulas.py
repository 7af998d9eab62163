"""A loss held against its formula, and against what the documents promise of it."""

import math
from typing import Any

import torch
from torch import Tensor

from benchmarks.fuzz import oracle
from benchmarks.fuzz.batches import Setting
from benchmarks.fuzz.campaign import Finding
from penex.lab.engine.learner import AnyLoss

_EXACT = 30.0  # up to there no exponential of a loss is saturated
_LARGEST = 1e4  # up to there PENEX is finite
_LOGARITHMS = (
    *("ce", "label_smoothing", "confidence_penalty", "focal", "ce_zloss"),
    *("brier", "gce", "nce_rce", "elr"),
)
_PENALISED = {
    "penex": True,
    "penex_negative": True,
    "unnormalised": False,
}  # with and without alpha
_SHARE = {torch.float32: 3e-4, torch.float64: 1e-8}

Step = tuple[Tensor, Tensor]


def value_rounding(arguments: dict[str, Any], logits: Tensor, dtype: torch.dtype) -> float:
    """How far a value may be off that is a difference of logarithms, as PENEX's usual one is.

    log EX / alpha and log SE are each about as large as the logits, and 1 / alpha times rounding.
    """
    if arguments.get("scale") != "cross_entropy":
        return 0.0
    finite = logits[logits.isfinite()].double()
    largest = float(finite.detach().abs().max()) if finite.numel() else 0.0
    positions = max(1, logits.numel())  # a sum adds their mistakes up
    alpha: float = arguments["alpha"]
    return positions * 4 * torch.finfo(dtype).eps * (largest + 1 / abs(alpha))


class Formula:
    """What a loss must say, batch after batch.

    Args:
        name: in the registry.
        arguments: of the loss.
    """

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self._name, self._arguments = name, arguments
        # rho, or lambda, of a loss that has one
        self._before = (arguments["rho"] or 0.0) if name in _PENALISED else 0.0
        self._memory: Tensor | float = 0.0  # of a loss that has one, of the batch's positions

    def check(
        self, loss: AnyLoss, made: Setting, batch: tuple[Tensor, Tensor], found: Step, where: str
    ) -> None:
        """A `Finding` if value, gradient or state are not the formula's; loss.training counts."""
        logits, target = oracle.flat(*batch)
        leaf = logits.double().requires_grad_()
        options = dict(made.options)
        if self._name == "label_smoothing":
            options["label_smoothing"] = self._arguments["epsilon"]
        given = oracle.terms(
            leaf, target, options["weight"], options["ignore_index"], options["label_smoothing"]
        )
        self._check_promises(loss, given, found, where)
        if self._is_exact(given, made):
            values, after = self._values(given, target, options, loss.training)
            expected = values
            if made.options["reduction"] != "none":
                expected = values.sum() / (given.divisor if options["reduction"] == "mean" else 1.0)
            share = _SHARE[found[0].dtype]
            rounding = value_rounding(self._arguments, logits, found[0].dtype)
            ours = found[0].reshape(-1)
            self._hold("value", ours, expected.reshape(-1), share, given, where, rounding)
            if bool(expected.isfinite().all()) and self._arguments.get("gamma", 1.0) >= 1:
                (gradient,) = torch.autograd.grad(expected.sum(), leaf)
                ours, _ = oracle.flat(found[1], found[1])
                share = max(share, 20 * torch.finfo(made.dtype).eps)
                fits = gradient.abs() < torch.finfo(made.dtype).max / 2
                ours, gradient = ours.where(fits, 0.0), gradient.where(fits, 0.0)
                self._hold("gradient", ours, gradient, share, given, where)
            state = self._state(loss)
            if after is not None and not math.isclose(state, after, rel_tol=1e-4):
                raise Finding("silent difference", f"the state is {state}, not {after}; {where}")
        self._before = self._state(loss)
        if self._name == "elr":
            self._memory = loss.memory.double().clone()  # type: ignore[operator]

    def _is_exact(self, given: oracle.Terms, made: Setting) -> bool:
        """Whether the formula in float64 is what a loss in its precision must say."""
        if self._name == "ce" and (
            made.dtype != torch.float32 or made.soft or not bool((given.mass > 0).all())
        ):
            return False  # torch's own rounds there, and takes what is ignored for a number
        if self._name.startswith("conex_") and made.dtype != torch.float64:
            return False  # a sum of many logits, squared twice
        f = given.f.detach()
        if bool((f.isnan() | (f == math.inf)).any()) or given.total == 0:
            return False
        counted = f[given.u > 0]
        largest = float(f[f.isfinite()].abs().max()) if f.isfinite().any() else 0.0
        if self._name in _LOGARITHMS:
            return largest <= _LARGEST and bool(counted.isfinite().all())
        low = float(counted.abs().max()) if counted.numel() else 0.0
        return low <= _EXACT and float(f.max() if f.numel() else 0.0) <= _EXACT

    def _values(
        self, given: oracle.Terms, target: Tensor, options: dict[str, Any], training: bool
    ) -> tuple[Tensor, float | None]:
        """The losses of the positions, and the state afterwards, if there is one."""
        if self._name in _PENALISED:
            if not len(given.f):
                return given.mass, self._before
            numbers = {"alpha": None, **self._arguments}
            return oracle.penalised(given, target, options, numbers, self._before, training)
        numbers = {**self._arguments}
        after = None
        if self._name == "elr":
            t = self._memory[: len(given.f)] if isinstance(self._memory, Tensor) else self._memory
            numbers["t"] = oracle.remembered(given, t, numbers["beta"]) if training else t
        if self._name == "conex_lagrangian":
            numbers["lambda_"] = self._before
            step = numbers["rho"] / numbers["nu"] * float(oracle.violation(given)[1].detach())
            after = self._before + step if training and math.isfinite(step) else self._before
        return oracle.VALUES[self._name](given, numbers), after

    def _state(self, loss: AnyLoss) -> float:
        name = {"conex_lagrangian": "lambda_"}.get(self._name, "rho")
        value = getattr(loss, name, None)
        return float(value) if isinstance(value, Tensor) else 0.0

    def _check_promises(self, loss: AnyLoss, given: oracle.Terms, found: Step, where: str) -> None:
        """What holds for PENEX wherever its logits are."""
        if not self._name.startswith("penex"):
            return
        value, gradient = found
        f = given.f.detach()[given.mass > 0]
        broken = bool((f.isnan() | (f == math.inf)).any())
        finite = bool(value.isfinite().all())
        if broken and finite:
            raise Finding("silent difference", f"a broken logit does not show; {where}")
        rho = self._state(loss)
        if broken and rho != self._before:
            raise Finding("silent difference", f"a broken batch moved rho to {rho}; {where}")
        if not math.isfinite(rho) or rho < 0:
            raise Finding("silent difference", f"rho is {rho}; {where}")
        small = bool((f.abs() <= _LARGEST).all()) and given.total > 0
        wide = gradient.dtype.itemsize > 2
        if small and not (finite and (not wide or bool(gradient.isfinite().all()))):
            raise Finding("silent difference", f"not finite: {value}, {gradient}; {where}")

    def _hold(
        self,
        what: str,
        ours: Tensor,
        theirs: Tensor,
        share: float,
        given: oracle.Terms,
        where: str,
        rounding: float = 0.0,
    ) -> None:
        f = given.f.detach()
        size = float(f[f.isfinite()].abs().max()) if f.isfinite().any() else 1.0
        slack = max(1.0, size) * max(1.0, float(given.mass.max()) if len(f) else 1.0)
        ours, theirs = ours.double(), theirs.detach().double()
        numbers = theirs[theirs.isfinite()].abs()
        largest = float(numbers.max()) if numbers.numel() else 0.0
        slack = share * (largest + slack / 10) + rounding
        if not torch.allclose(ours, theirs, rtol=share, atol=slack, equal_nan=True):
            raise Finding("silent difference", f"the {what} is {ours}, should be {theirs}; {where}")
