"""The losses of many models at once: each as its class has it, over an axis of models.

Losses of one class and one set of options are a family. One of them stands in for all: its
settings and its state become tensors with an axis of models, and torch.func runs it on every
model's batch. So whatever is a `penex.base.Loss` can be packed, a user's own too.
"""

import copy
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from penex.lab.engine.learner import AnyLoss
from penex.lab.engine.packed_layers import CannotPack

State = dict[str, Tensor]

_WINDOW = "window"  # of micro-batches, which are not packed


class Family:
    """Losses of one kind, those of some models of a pack.

    Args:
        losses: one a model; their state is taken, and given back by `scatter`.
        place: their models' places in the pack.
        device: where they are computed.
        dtype: of their numbers.
    """

    def __init__(
        self,
        losses: Sequence[AnyLoss],
        place: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        first = losses[0]
        self.losses = list(losses)
        self.place = torch.tensor(place, device=device)
        # Settings that all have alike stay numbers, which a formula may ask questions about.
        self.numbers = {
            name: torch.tensor(values, dtype=dtype, device=device)
            for name in _settings(first)
            if len(set(values := [getattr(loss, name) for loss in losses])) > 1
        }
        if first.weight is not None:
            weights = [loss.weight.to(device, dtype) for loss in losses if loss.weight is not None]
            self.numbers["weight"] = torch.stack(weights)
        self.state = {
            name: torch.stack([getattr(loss, name).to(device, dtype) for loss in losses])
            for name in getattr(first, "statistics", ())
            if name != _WINDOW
        }
        self._stand_in = copy.deepcopy(first).to(device).train()
        self._dtype = dtype
        self._names = *self.numbers, *self.state
        self._graphs: dict[tuple[int, ...], torch.fx.GraphModule] = {}

    def scatter(self) -> None:
        """Give every loss its state back."""
        for name, values in self.state.items():
            for loss, value in zip(self.losses, values, strict=True):
                buffer = getattr(loss, name)
                buffer.copy_(value.to(buffer.device))

    def values(
        self, logits: Tensor, targets: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, State]:
        """The loss of each model's batch, (m), from (m, B, K) logits; its gradient; where it moves.

        It is for `keep` to move the state, after the backward pass: a compiled one may read a state
        that was moved in the forward pass, and take it for what it was.
        """
        given = logits.detach(), targets, index, *self.numbers.values(), *self.state.values()
        graph = self._graphs.get(tuple(logits.shape))
        values, gradient, *moved = graph(*given) if graph else self._compute(*given)
        return values, gradient, dict(zip(self.state, moved, strict=True))

    def trace(self, logits: Tensor, targets: Tensor, index: Tensor) -> None:
        """Prepare batches of one size for a compiler: as a list of operations without transforms.

        It takes a second or so, hence not where nothing is compiled.
        """
        from torch.fx.experimental.proxy_tensor import make_fx

        given = logits.detach(), targets, index, *self.numbers.values(), *self.state.values()
        self._graphs[tuple(logits.shape)] = make_fx(self._compute)(*given)

    def _compute(self, *given: Tensor) -> list[Tensor]:
        found: list[Tensor] = vmap(self._one)(*given)
        return found

    def _one(self, logits: Tensor, target: Tensor, index: Tensor, *numbers: Tensor) -> list[Tensor]:
        """What `values` gives of one model."""
        own = dict(zip(self._names, numbers, strict=True))

        def loss_of(logits: Tensor) -> tuple[Tensor, State]:
            loss, moved = self._stand_in, dict(own)

            def store(name: str, value: Tensor) -> None:
                moved[name] = value.to(own[name].dtype)
                setattr(loss, name, moved[name])  # a formula may read what it has just stored

            for name, value in own.items():
                setattr(loss, name, value)
            loss.store = store  # type: ignore[method-assign]
            return loss(logits, target, **loss.asked(index)), moved

        gradient, (value, moved) = grad_and_value(loss_of, has_aux=True)(logits)
        return [value, gradient, *(moved[name] for name in self.state)]

    def keep(self, moved: State) -> None:
        """Move the state."""
        for name, value in moved.items():
            self.state[name].copy_(value)

    def rho(self) -> Tensor:
        """The penalty weight of each model; NaN where there is none."""
        for known in (self.state, self.numbers):
            if "rho" in known:
                return known["rho"]
        same = getattr(self._stand_in, "rho", torch.nan)
        return torch.full(
            (len(self.losses),), float(same), dtype=self._dtype, device=self.place.device
        )


def families(
    losses: Sequence[AnyLoss], device: torch.device, dtype: torch.dtype, classes: int = 3
) -> list[Family]:
    """The losses of a pack by kind; a CannotPack if one cannot be computed for many models.

    Args:
        losses: one a model.
        device: where they are computed.
        dtype: of their numbers.
        classes: how many there are; any will do where the losses are only tried.
    """
    found = []
    for places in _alike(losses, range(len(losses)), _options):
        try:
            found.append(_tried(losses, places, device, dtype, classes))
        except Exception as error:  # a formula that asks whether a setting is large, say
            parts = list(_alike(losses, places, _values))
            if len(parts) == 1:
                raise CannotPack(_why(losses[places[0]], error)) from error
            found += [_tried(losses, part, device, dtype, classes) for part in parts]
    return found


def _why(loss: AnyLoss, error: Exception) -> str:
    words = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    return f"a {type(loss).__name__} is not one that can be packed ({words})"


def _tried(
    losses: Sequence[AnyLoss],
    places: Sequence[int],
    device: torch.device,
    dtype: torch.dtype,
    classes: int,
) -> Family:
    """A family that has computed a batch of two examples."""
    family = Family([losses[place] for place in places], places, device, dtype)
    weight = losses[places[0]].weight
    columns = classes if weight is None else len(weight)
    logits = torch.zeros(len(places), 2, columns, dtype=dtype, device=device)
    index = torch.arange(2, device=device).expand(len(places), 2)
    family.values(logits, torch.zeros_like(index), index)
    return family


def _alike(losses: Sequence[AnyLoss], places: Iterable[int], key: Any) -> Iterable[list[int]]:
    """The places whose losses have the same key."""
    groups: dict[Hashable, list[int]] = {}
    for place in places:
        groups.setdefault(key(losses[place]), []).append(place)
    return groups.values()


def _settings(loss: AnyLoss) -> tuple[str, ...]:
    return tuple(getattr(loss, "settings", ()))


def _options(loss: AnyLoss) -> Hashable:
    """All that decides a loss besides its settings' values and its tensors."""
    if getattr(loss, "accumulate", 1) != 1:
        raise CannotPack("micro-batches are not packed")
    settings = _settings(loss)
    rest = [
        (name, value if isinstance(value, Hashable) else id(value))
        for name, value in sorted(vars(loss).items())
        if not name.startswith("_") and name not in settings and name != "training"
    ]
    nothing = tuple(getattr(loss, name) is None for name in settings)
    return type(loss), nothing, loss.weight is None, tuple(rest)


def _values(loss: AnyLoss) -> Hashable:
    return tuple(getattr(loss, name) for name in _settings(loss))
