"""The networks that tasks train, by name; a user's own as module:factory."""

import copy
import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from penex.lab.errors import LabError, unknown
from penex.lab.models.cnn import cnn
from penex.lab.models.mlp import mlp
from penex.lab.models.resnet import resnet18

Build = Callable[[Sequence[int], int], nn.Module]

MODELS: dict[str, Build] = {"cnn": cnn, "resnet18": resnet18, "mlp": mlp}

_CNN_SIDE = 64  # the paper's network up to this many pixels, ResNet-18 above


def default(shape: Sequence[int]) -> str:
    """The network for inputs of a shape.

    >>> default((3, 32, 32)), default((3, 128, 128)), default((4,))
    ('cnn', 'resnet18', 'mlp')
    """
    if len(shape) != 3 or min(shape[1:]) < 8:
        return "mlp"
    return "cnn" if max(shape[1:]) <= _CNN_SIDE else "resnet18"


def find(name: str) -> Build:
    """The network of a name: (shape of an input, number of logits) -> nn.Module."""
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
            if (*shape, n_out) not in tried:  # once, not for every run
                _try(model, inputs, n_out)
                tried.add((*shape, n_out))
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


def _try(model: nn.Module, inputs: torch.Tensor, n_out: int) -> None:
    """A step of training with a copy of a model, which leaves no trace."""
    trial = copy.deepcopy(model).train()
    with torch.random.fork_rng([]):
        logits = trial(inputs)
        _check(logits, n_out)
        if not logits.requires_grad:
            raise ValueError("its logits have no gradient")
        torch.autograd.backward(logits.sum())


def source(name: str) -> str | None:
    """A checksum of a user's own model file: when it changes, so do the runs."""
    if ":" not in name:
        return None
    find(name)
    path = getattr(sys.modules[name.partition(":")[0]], "__file__", None)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if path else None
