"""A lone learner's network, compiled where a run is long enough to pay for it.

torch's compiler joins what is between products (norms, activations, dropout's masks), which is a
fifth of a step of ResNet-18 or a vision transformer on a GPU. It takes half a minute.
"""

import sys

import torch
from torch import Tensor

from penex.lab.data import Data
from penex.lab.engine.learner import Learner
from penex.lab.engine.recording import in_a_line, unchanged
from penex.lab.engine.replayed import is_known
from penex.lab.ground import chance, ranks

LONG = 10_000  # micro-batches of a run that pays
_IMAGE = 3  # axes of one
_NETWORKS = 1000  # that a process may compile; it would else stop to do so, and say nothing


def compile_network(learner: Learner, data: Data, micros: int) -> None:
    """Compile the forward pass of whole micro-batches, if a run of so many of them pays for it.

    Others stay as they are: each size would be compiled anew. Where the compiler fails, a line says
    so and nothing is compiled.
    """
    if micros >= LONG and _may_compile(learner, data):
        size = learner.recipe.batch_size // learner.recipe.accumulate
        inputs = torch.zeros(size, *data.shape, dtype=learner.dtype, device=learner.device)
        attempt(learner, inputs)


def _may_compile(learner: Learner, data: Data) -> bool:
    """Whether the compiler is known to gain: on one GPU, with networks of ours, of images."""
    return (
        learner.device.type == "cuda"
        and ranks.world() == 1
        and len(data.shape) == _IMAGE
        and all(is_known(part) for part in learner.module.modules())
    )


def attempt(learner: Learner, inputs: Tensor, backend: str = "inductor") -> None:
    """Have the learner compute inputs of this size compiled from now on, if that works.

    Args:
        learner: is not moved.
        inputs: a micro-batch's, whatever is in it.
        backend: of torch.compile.
    """
    from torch._dynamo import config  # it takes a second

    offset = torch.zeros((), dtype=torch.int64, device=learner.device)
    for layer in learner.dropouts:
        layer.offset = offset
    try:
        with (
            chance.sown(learner.device),
            unchanged(list(learner.tensors().values())),
            config.patch(recompile_limit=_NETWORKS, accumulated_recompile_limit=_NETWORKS),
        ):
            network = torch.compile(learner.model, dynamic=False, backend=backend)
            learner.compiled[len(inputs)] = network
            torch.autograd.backward(learner.logits(inputs).sum())
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the compiler fails in all kinds of ways
        learner.compiled.clear()
        for layer in learner.dropouts:
            layer.offset = None  # for a compiler alone
        print(f"The network is not compiled: {in_a_line(error)}", file=sys.stderr)
    learner.zero_grad()
