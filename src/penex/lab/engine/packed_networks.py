"""Many networks of any kind at once, by torch.func: the general way.

`packed_layers` knows a few layers and is several times faster; whatever else a network has comes
here. A network that draws random numbers, or asks for the value of a number, cannot be computed so.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from penex.lab.engine.packed_layers import CannotPack
from penex.lab.models.layers import seed_all

Tensors = dict[str, Tensor]


def forward(module: nn.Module, tensors: Tensors, x: Tensor, seeds: Tensor, count: Tensor) -> Tensor:
    """What a module does, for M models.

    Args:
        module: whose code decides; its own parameters and buffers are not used.
        tensors: parameters and buffers by name, (M, ...); buffers are moved in place.
        x: (M, B, ...).
        seeds: of the dropouts, (M).
        count: the number of the step, for the dropouts.
    """

    def one(own: Tensors, x: Tensor, seed: Tensor) -> Tensor:
        seed_all(module, seed, count)
        found: Tensor = functional_call(module, own, (x,))
        return found

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # the fused kernels know no axis of models
    try:
        with sdpa_kernel(SDPBackend.MATH):
            found: Tensor = vmap(one)(tensors, x, seeds)
    except Exception as error:
        raise CannotPack(f"a network of this kind cannot be packed ({_first(error)})") from error
    finally:
        seed_all(module, seeds, count)  # no transform may stay in what a copy of it would copy
        torch.backends.mha.set_fastpath_enabled(fast)
    return found


def _first(error: Exception) -> str:
    """The first sentence of an error."""
    words = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0].rstrip(".")
    return "it draws random numbers" if "called random operation" in words else words
