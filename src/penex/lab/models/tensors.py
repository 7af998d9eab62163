"""The tensors of a safetensors file, read with torch alone."""

import math
import struct
from typing import Any

import torch
from torch import Tensor

from penex.lab.ground import files

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


def parse(content: bytes) -> dict[str, Tensor]:
    """The tensors in the bytes of a file: a length, a JSON header, and the numbers.

    A ValueError says what is wrong with them.
    """
    if len(content) < 8:
        raise ValueError("it is cut off")
    (length,) = struct.unpack("<Q", content[:8])
    if length > len(content) - 8:
        raise ValueError("it is cut off")
    try:
        header = files.loads(content[8 : 8 + length])
    except ValueError as error:
        raise ValueError("its header is no JSON") from error
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    body = memoryview(bytearray(content))[8 + length :]
    return {
        name: _tensor(name, entry, body) for name, entry in header.items() if name != "__metadata__"
    }


def _tensor(name: str, entry: Any, body: memoryview) -> Tensor:
    if not isinstance(entry, dict):
        raise ValueError(f"its header does not describe {name}")
    shape: Any = entry.get("shape")
    place: Any = entry.get("data_offsets")
    kind: Any = entry.get("dtype")
    dtype = _TYPES.get(kind) if isinstance(kind, str) else None
    if dtype is None or not _are_counts(shape) or not _are_counts(place) or len(place) != 2:
        raise ValueError(f"its header does not describe {name}")
    start, stop = place
    if stop > len(body):
        raise ValueError(f"{name} is cut off")
    if stop - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has not the size of its shape")
    if start == stop:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(body[start:stop], dtype=dtype).clone().reshape(shape)


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)
