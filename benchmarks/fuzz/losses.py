"""Random batches through every loss, in every way to compute it.

A loss answers as its formula in float64 does, where that is exact; in other ways (another
implementation, compiled, with other strides, saved and loaded) as it does in this one; and it takes
and refuses what torch's cross-entropy does.
"""

import copy
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as torch_functional

from benchmarks.fuzz import batches, oracle
from benchmarks.fuzz.campaign import Ending, Finding
from benchmarks.fuzz.formulas import Formula, Step, value_rounding
from penex import registry
from penex.base import Loss
from penex.lab.engine.learner import AnyLoss

_UNIT = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 2e-4, torch.float64: 1e-9}
_TRITON = "triton"


class Losses:
    """Losses by name, with random arguments, over a few batches."""

    def __init__(self, folder: Path) -> None:
        self._names = list(registry.LOSSES)

    def case(self, chance: random.Random) -> Ending:
        """A loss over a few batches, some of them wrong."""
        name = chance.choice([*self._names, *["penex"] * len(self._names)])
        made = batches.setting(chance)
        arguments = _arguments(chance, name)
        if chance.random() < 0.3:
            return _verdict(chance, name, arguments, made)
        if made.classes < 2 and (name == "ex" or name.startswith("conex")):
            made.classes = 2
            made.options["weight"] = None
        if name == "nce_rce" and made.options["label_smoothing"] == 1:
            made.options["label_smoothing"] = 0.5  # it is constant there: a gradient of rounding
        base = Twin("plain", _make(name, arguments, made))
        twins = [Twin(way, _make(name, arguments, made, way)) for way in _ways(chance, name)]
        follow = Formula(name, arguments)
        if name == "ce":
            twins = []  # torch's own rounds on the way, otherwise in every way
        for number in range(chance.randint(1, 4)):
            logits, target = batches.batch(chance, made)
            training = chance.random() < 0.8
            found = base.step(logits, target, training)
            where = f"{name} {arguments} {made}, batch {number} of {tuple(logits.shape)}"
            for twin in twins:
                if twin.takes(logits, target):
                    again = twin.step(logits, target, training)
                    rounding = value_rounding(arguments, logits, found[0].dtype)
                    _compare(found, again, f"{twin.way}: {where}", rounding)
                    _compare_states(base, twin, f"{twin.way}: {where}")
                else:
                    twin.loss.load_state_dict(base.loss.state_dict())
            follow.check(base.loss, made, (logits, target), found, where)
        return "harmless"


class Twin:
    """A loss and a way to compute it.

    Args:
        way: in a word.
        loss: the loss.
    """

    def __init__(self, way: str, loss: AnyLoss) -> None:
        self.way, self.loss = way, loss

    def takes(self, logits: Tensor, target: Tensor) -> bool:
        """Whether the batch can be computed in this way."""
        if self.way in ("eager", "triton"):
            try:
                self.loss.implementation(logits, target)  # type: ignore[operator]
            except ValueError:
                return False
        return True

    def step(self, logits: Tensor, target: Tensor, training: bool) -> Step:
        """The value of a batch and its gradient."""
        loss, leaf = self.loss, logits.clone().requires_grad_()
        loss.train(training)
        call: Callable[..., Tensor] = loss
        given = leaf
        if self.way == "compiled":
            torch.compiler.reset()
            call = torch.compile(loss, backend="eager")
        elif self.way == "strided":
            given = torch.stack([leaf, leaf], dim=-1)[..., 0]
        elif self.way == "flat":
            given, target = oracle.flat(leaf, target)
        elif self.way == "loaded":
            loss = self.loss = _reloaded(self.loss)
            call = loss.train(training)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.way == "autocast"):
            value = call(given, target, **loss.asked(_numbers(logits)))
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), gradient


def _reloaded(loss: AnyLoss) -> AnyLoss:
    """The loss as it comes back from its state, into one that was made alike."""
    fresh = copy.deepcopy(loss)
    if isinstance(fresh, Loss):
        fresh.reset_parameters()
    fresh.load_state_dict(copy.deepcopy(loss.state_dict()), strict=True)
    return fresh


def _ways(chance: random.Random, name: str) -> list[str]:
    ways = ["strided", "loaded"]
    if name != "ce":  # torch's own rounds in half precision
        ways += ["autocast"]
    if not registry.find(name).make.wants_index:  # type: ignore[attr-defined]
        ways += ["flat"]
    if name.startswith("penex"):
        ways += ["reference", "eager", _TRITON]
    return [*chance.sample(ways, 2), *(["compiled"] if chance.random() < 0.01 else [])]


def _arguments(chance: random.Random, name: str) -> dict[str, Any]:
    """Arguments of a loss: its parameters within their ranges, and PENEX's others."""
    given: dict[str, Any] = {}
    for one in registry.find(name).parameters:
        low, high = max(abs(one.low), 1e-3), min(abs(one.high), 10.0)
        drawn = math.copysign(low * (high / low) ** chance.random(), one.default)
        given[one.name] = chance.choice([one.default, drawn])
    if name in ("penex", "penex_negative", "unnormalised"):
        given["ema"] = chance.choice([0.1, 0.1, 1.0, 0.5])
        given["order"] = chance.choice(["algorithm", "listing"])
        given["rho"] = chance.choice([None, None, None, 0.5])
        given["rho_min"] = chance.choice([1e-6, 0.05])
        given["rho_max"] = chance.choice([100.0, 0.06])
    if name == "penex":
        given["alpha"] = chance.choice([given["alpha"], -0.05, -0.3, -0.9])
    if name.startswith("penex"):
        given["scale"] = chance.choice(["paper", "cross_entropy"])
    return given


def _make(name: str, arguments: dict[str, Any], made: batches.Setting, way: str = "") -> AnyLoss:
    options = dict(made.options)
    if name == "label_smoothing":
        del options["label_smoothing"]
    if way in ("reference", "eager", _TRITON):
        options["impl"] = way
    loss = registry.make(name, **arguments, **options)
    loss.remember(64, made.classes)
    return loss


def _numbers(logits: Tensor) -> Tensor:
    """The numbers of a batch's positions, in the shape of class indices."""
    shape = logits.shape[:1] + logits.shape[2:] if logits.dim() > 1 else torch.Size()
    return torch.arange(shape.numel()).view(shape)


def _verdict(
    chance: random.Random, name: str, arguments: dict[str, Any], made: batches.Setting
) -> Ending:
    """Whether a loss takes, or refuses, an odd call as torch's cross-entropy does."""
    logits, target = batches.spoil(chance, made, *batches.batch(chance, made))
    if batches.is_torchs_slip(logits, target, made.options):
        return "harmless"
    theirs, ours = None, None
    try:
        expected = torch_functional.cross_entropy(logits, target, **made.options)
    except Exception as error:
        theirs = error
    if name == "label_smoothing" and not 0 <= made.options["label_smoothing"] <= 1:
        return "harmless"  # it has another word for it
    loss = _make(name, arguments, made)
    loss.remember(64, logits.shape[min(1, logits.dim() - 1)] if logits.dim() else 1)
    if name == "label_smoothing":
        loss.epsilon = made.options["label_smoothing"]
    try:
        value = loss(logits, target, **loss.asked(_numbers(logits)))
    except Exception as error:
        ours = error
    where = f"{name} {made}, {logits.dtype} {tuple(logits.shape)}, {target.dtype} {target!r}"
    if theirs is None and ours is None:
        if value.shape != expected.shape:
            raise Finding("silent difference", f"{where}: the shape is {tuple(value.shape)}")
        return "harmless"
    if isinstance(theirs, UnicodeDecodeError):
        theirs = IndexError()  # torch takes a byte out of range for a letter of its own sentence
    few = made.classes < 2 and isinstance(ours, ValueError) and "two classes" in str(ours)
    if type(theirs) is not type(ours) and not few:
        raise Finding("traceback", f"{where}: {ours!r}, torch: {theirs!r}")
    return "refused"


def _compare(one: Step, other: Step, where: str, rounding: float) -> None:
    """Hold two ways against each other: value, which may be off by a rounding, and gradient."""
    pull = 16 * torch.finfo(one[0].dtype).eps  # p - y of a model that is certain is rounding
    for what, a, b, slack in zip(("value", "gradient"), one, other, (rounding, pull), strict=True):
        if not alike(a.reshape(-1), b.reshape(-1), _UNIT[a.dtype] / 10, slack):
            raise Finding("silent difference", f"the {what} is {b}, not {a}; {where}")


def _compare_states(one: Twin, other: Twin, where: str) -> None:
    state = other.loss.state_dict()
    for name, value in one.loss.state_dict().items():
        if not alike(value, state[name], 1e-5):
            raise Finding("silent difference", f"{name} is {state[name]}, not {value}; {where}")


def alike(a: Tensor, b: Tensor, share: float, slack: float = 0.0) -> bool:
    """Whether two tensors differ by no more than a share of their largest number, and a slack."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.double(), b.double()
    finite = a[a.isfinite()].abs()
    size = float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(a, b, rtol=share, atol=share * size + slack + 1e-30, equal_nan=True)
