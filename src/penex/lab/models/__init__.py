"""The networks that tasks train, by name; a user's own as module:factory."""

import copy
import importlib
import os
import sys
from collections.abc import Callable, Sequence

import torch
from torch import nn

from penex.lab.ground import chance
from penex.lab.ground.errors import LabError, unknown
from penex.lab.models import sources, state
from penex.lab.models.cnn import cnn
from penex.lab.models.mlp import mlp
from penex.lab.models.resnet import resnet18
from penex.lab.models.vit import vit_base, vit_small, vit_tiny

Build = Callable[[Sequence[int], int], nn.Module]

MODELS: dict[str, Build] = {
    "cnn": cnn,
    "resnet18": resnet18,
    "mlp": mlp,
    "vit_tiny": vit_tiny,
    "vit_small": vit_small,
    "vit_base": vit_base,
}

_CNN_SIDE = 64  # the paper's network up to this many pixels, ResNet-18 above


def default(shape: Sequence[int]) -> str:
    """The network for inputs of a shape.

    >>> default((3, 32, 32)), default((3, 128, 128)), default((4,))
    ('cnn', 'resnet18', 'mlp')
    """
    if len(shape) != 3 or min(shape[1:]) < 8:
        return "mlp"
    return "cnn" if max(shape[1:]) <= _CNN_SIDE else "resnet18"


def find(name: str, *, trained: bool = False) -> Build:
    """The network of a name: (shape of an input, number of logits) -> nn.Module.

    Args:
        name: of MODELS, or module:factory.
        trained: whether it is trained already; if not, a step is tried with one of the user's own.
    """
    if ":" not in name:
        if name not in MODELS:
            raise unknown("model", name, [*MODELS, "module:factory"])
        return MODELS[name]
    module, _, factory = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # python -m has it, a console script has not
    try:
        made: Build = getattr(importlib.import_module(module), factory)
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        raise LabError(
            f"The model {name!r} cannot be imported: {error!r}. Write module:factory, where "
            "factory(shape, n_out) gives an nn.Module."
        ) from error

    tried = set()

    def build(shape: Sequence[int], n_out: int) -> nn.Module:
        try:
            model = made(shape, n_out)
            if not isinstance(model, nn.Module):
                raise TypeError(f"it gave a {type(model).__name__}, not an nn.Module")
            if not any(parameter.requires_grad for parameter in model.parameters()):
                raise ValueError("it has no parameters to train")
            inputs = torch.zeros(2, *shape, dtype=next(model.parameters()).dtype)
            with torch.no_grad():  # a lazy layer learns its size here
                _check(model.eval()(inputs), n_out)
            if not trained and (*shape, n_out) not in tried:  # once, not for every run
                tried.add((*shape, n_out))
                _warn(name, _try(model, inputs, n_out))
        except (Exception, SystemExit) as error:
            raise LabError(
                f"The model {name} does not work for inputs of shape {tuple(shape)} and {n_out} "
                f"logits: {error}."
            ) from error
        return model.train()

    return build


def _check(logits: object, n_out: int) -> None:
    shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
    if shape != (2, n_out):
        raise ValueError(f"two inputs gave logits of shape {shape}, not {(2, n_out)}")


def _try(model: nn.Module, inputs: torch.Tensor, n_out: int) -> list[str]:
    """A step of training with a copy of a model; which of its plain attributes changed."""
    odd = [k for k, v in model.state_dict().items() if not isinstance(v, torch.Tensor)]
    if odd:
        raise ValueError(f"{odd[0]} of its state_dict is no tensor, so it could not be saved")
    trial = copy.deepcopy(model).train()
    before = state.python_values(trial)
    with chance.sown(inputs.device):
        logits = trial(inputs)
        _check(logits, n_out)
        if not logits.requires_grad:
            raise ValueError("its logits have no gradient")
        torch.autograd.backward(logits.sum())
    after = state.python_values(trial)
    return [name for name in after if after[name] != before.get(name)]


_told: set[str] = set()


def _warn(name: str, changed: list[str]) -> None:
    """Say once that a checkpoint does not hold what a model keeps in plain attributes."""
    if changed and name not in _told:
        _told.add(name)
        print(
            f"The model {name} changes {', '.join(changed[:3])} while it trains, which no "
            "checkpoint holds: a run that is stopped and resumed may end differently. A buffer "
            "(register_buffer) is kept.",
            file=sys.stderr,
        )


def source(name: str) -> str | None:
    """A checksum of the code of a user's own model: when it changes, so do the runs."""
    if ":" not in name:
        return None
    find(name)
    return sources.checksum(name.partition(":")[0])
