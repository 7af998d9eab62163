"""A trained model on its own: two files, and how to load them with torch alone."""

import json
import math
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penex.conex import ZeroSumHead
from penex.lab import files
from penex.lab.data import normalise
from penex.lab.errors import RecordError
from penex.lab.models import find, source

CARD, TENSORS = "model.json", "model.safetensors"
_FORMAT = 1
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
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
        result: Tensor = self.network(normalise(inputs, self.mean, self.std, dtype))
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


def load(folder: str | Path, *, own_code: bool = False) -> Exported:
    """The model that a run left in its folder, ready to predict.

    It needs torch and this package; no other library.

    Args:
        folder: of a completed run.
        own_code: True to import the module of a model of one's own: that runs its code.
    """
    folder = Path(folder)
    try:
        card = json.loads((folder / CARD).read_bytes())
        _check(folder, card)
        if ":" in card["model"]:
            _check_own(folder, card, own_code)
        n_out = len(card["classes"])
        head = card["zero_sum_head"]
        network = find(card["model"])(card["shape"], n_out - 1 if head else n_out)
        if head:
            network = nn.Sequential(network, ZeroSumHead())
        tensors = read_safetensors(folder / TENSORS)
        kind = next((v.dtype for v in tensors.values() if v.is_floating_point()), torch.float32)
        network = network.to(kind)
        network.load_state_dict(tensors)
        return Exported(network, card).eval()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RecordError(
            f"{folder} holds no trained model ({error.filename} is missing): give the folder of a "
            "completed run, runs/<task>/<loss>/<hash>/seed-<n>."
        ) from error
    except (ValueError, KeyError, TypeError, RuntimeError, struct.error) as error:
        raise RecordError(f"The model in {folder} is damaged: {error}.") from error


def _check(folder: Path, card: Any) -> None:
    """A ValueError if a card does not say what a model needs, in the form it needs it."""
    if not isinstance(card, dict):
        raise ValueError("model.json is no object")
    if card.get("format") != _FORMAT:
        raise RecordError(
            f"{folder / CARD} was written by another version of penex (format "
            f"{card.get('format')!r}; this one has {_FORMAT})."
        )
    shape, classes, temperature = (card.get(k) for k in ("shape", "classes", "temperature"))
    if not isinstance(shape, list) or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ValueError(f"the shape {shape!r} is none")
    if classes is None or not _names(classes) or len(set(classes)) != len(classes):
        raise ValueError("the classes are no list of different names")
    if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        raise ValueError(f"the temperature {temperature!r} is none")
    preprocessing = card.get("preprocessing")
    needs = {"images": "image_size", "table": "columns", "arrays": "kind"}
    if not isinstance(preprocessing, dict) or preprocessing.get("kind") not in needs:
        raise ValueError("the preprocessing is of no known kind")
    if needs[preprocessing["kind"]] not in preprocessing:
        raise ValueError(f"the preprocessing lacks {needs[preprocessing['kind']]}")
    if preprocessing["kind"] == "table" and not _names(preprocessing["columns"]):
        raise ValueError("the columns are no list of names")
    for name, least in (("mean", -math.inf), ("std", 0.0)):
        values = preprocessing.get(name)
        if not isinstance(values, list) or len(values) not in (1, shape[0]):
            raise ValueError(f"the {name} is not one number for each channel")
        if not all(isinstance(v, int | float) and least < v < math.inf for v in values):
            raise ValueError(f"the {name} holds what is no {name}")
    if not isinstance(card.get("model"), str):
        raise ValueError("the model has no name")


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _check_own(folder: Path, card: dict[str, Any], own_code: bool) -> None:
    if not own_code:
        raise RecordError(
            f"The model in {folder} is made by {card['model']}, code outside penex: say --own-code "
            "(in Python, own_code=True) to import it."
        )
    if source(card["model"]) != card.get("model_source"):
        raise RecordError(
            f"The file of {card['model']} is not the one that the model in {folder} was trained "
            "with: it would compute something else."
        )


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
