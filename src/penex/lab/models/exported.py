"""A trained model on its own: two files, and how to load them with torch alone."""

import json
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penex.conex import ZeroSumHead
from penex.lab import files
from penex.lab.errors import RecordError
from penex.lab.models import find

CARD, TENSORS = "model.json", "model.safetensors"
_FORMAT = 1
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class Exported(nn.Module):
    """A trained network from raw inputs to calibrated probabilities.

    Args:
        network: from normalised inputs to logits.
        card: what model.json holds.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, card: dict[str, Any]) -> None:
        super().__init__()
        self.network = network
        self.card = card
        self.classes: tuple[str, ...] = tuple(card["classes"])
        self.temperature: float = card["temperature"]
        shape = (-1, *[1] * (len(card["shape"]) - 1))
        for name in ("mean", "std"):
            value = torch.tensor(card["preprocessing"][name], dtype=torch.float64)
            self.register_buffer(name, value.reshape(shape), persistent=False)

    def logits(self, inputs: Tensor) -> Tensor:
        """The logits of raw inputs (N, ...), uint8 or floating point, as the network gives them."""
        dtype = next(self.network.parameters()).dtype
        normal = inputs.to(dtype).sub(self.mean.to(dtype)).div(self.std.to(dtype))
        result: Tensor = self.network(normal)
        return result

    def forward(self, inputs: Tensor) -> Tensor:
        """The probability of each class: softmax(logits / temperature)."""
        return torch.softmax(self.logits(inputs) / self.temperature, dim=1)


def save(folder: Path, network: nn.Module, card: dict[str, Any]) -> None:
    """Write model.safetensors and model.json."""
    import safetensors.torch

    tensors = {
        name: value.detach().cpu().clone().contiguous()
        for name, value in network.state_dict().items()
    }
    files.write(folder / TENSORS, safetensors.torch.save(tensors))
    files.write_json(folder / CARD, {"format": _FORMAT, **card})


def load(folder: str | Path) -> Exported:
    """The model that a run left in its folder, ready to predict.

    It needs torch and this package; no other library.
    """
    folder = Path(folder)
    try:
        card = json.loads((folder / CARD).read_bytes())
        if card["format"] != _FORMAT:
            raise RecordError(
                f"{folder / CARD} was written by another version of penex (format "
                f"{card['format']!r}; this one has {_FORMAT})."
            )
        n_out = len(card["classes"])
        head = card["zero_sum_head"]
        network = find(card["model"])(card["shape"], n_out - 1 if head else n_out)
        if head:
            network = nn.Sequential(network, ZeroSumHead())
        tensors = read_safetensors(folder / TENSORS)
        for value in tensors.values():
            if value.is_floating_point():
                network = network.to(value.dtype)
                break
        network.load_state_dict(tensors)
        return Exported(network, card).eval()
    except FileNotFoundError as error:
        raise RecordError(
            f"{folder} holds no trained model ({error.filename} is missing): give the folder of a "
            "completed run, runs/<task>/<loss>/<hash>/seed-<n>."
        ) from error
    except (ValueError, KeyError, TypeError, RuntimeError, struct.error) as error:
        raise RecordError(f"The model in {folder} is damaged: {error}.") from error


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file: a length, a JSON header, and the bytes."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    body = bytearray(content[8 + length :])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, stop = entry["data_offsets"]
        dtype, shape = _TYPES[entry["dtype"]], entry["shape"]
        size = torch.empty((), dtype=dtype).element_size()
        count = (stop - start) // size
        if stop > len(body) or count != torch.Size(shape).numel():
            raise ValueError(f"{name} is cut off")
        flat = (
            torch.frombuffer(body, dtype=dtype, count=count, offset=start).clone()
            if count
            else torch.empty(0, dtype=dtype)
        )
        tensors[name] = flat.reshape(shape)
    return tensors
