"""What a network remembers: tensors, which are saved, and Python values, which are not."""

import pickle
from collections.abc import Iterator

import torch
from torch import Tensor, nn

_TORCHS = frozenset(vars(nn.Module()))  # what every module has


def of(network: nn.Module) -> dict[str, Tensor]:
    """The state_dict, and the buffers that it leaves out: live tensors.

    >>> layer = nn.Identity()
    >>> layer.register_buffer("seen", torch.zeros(1), persistent=False)
    >>> list(layer.state_dict()), list(of(layer))
    ([], ['seen'])
    """
    return {**dict(network.named_buffers()), **network.state_dict()}


def take(network: nn.Module, tensors: dict[str, Tensor], *, assign: bool = False) -> None:
    """Give a network the values that `of` gave, in place; a ValueError if they are another's.

    A buffer outside of the state_dict may be missing: it stays as the network made it.

    Args:
        network: whose state it is.
        tensors: by name.
        assign: True to make the tensors themselves the network's, which need have no memory.
    """
    kept, mine = network.state_dict(), of(network)
    odd = [name for name in (*kept, *tensors) if name not in tensors or name not in mine]
    if odd:
        raise ValueError(f"{odd[0]} does not belong to both the network and the file")
    for name, tensor in tensors.items():
        if nn.parameter.is_lazy(mine[name]):
            continue  # it takes what comes
        if mine[name].shape != tensor.shape or mine[name].dtype != tensor.dtype:
            raise ValueError(f"{name} has another shape or type in the network")
    network.load_state_dict({name: tensors[name] for name in kept}, assign=assign)
    with torch.no_grad():
        for name in tensors.keys() - kept.keys():
            mine[name].copy_(tensors[name])


def python_values(network: nn.Module) -> dict[str, object]:
    """A stamp of each plain attribute of a network and its layers: another after it changed."""
    return dict(_stamps(network))


def _stamps(network: nn.Module) -> Iterator[tuple[str, object]]:
    for place, module in network.named_modules():
        for name, value in vars(module).items():
            if name not in _TORCHS:
                yield f"{place}.{name}".lstrip("."), _stamp(value)


def _stamp(value: object) -> object:
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    try:
        return pickle.dumps(value)  # never loaded
    except Exception:  # a function, an open file: it is what it is
        return id(value)
