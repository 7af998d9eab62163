"""Random arguments of cross-entropy: mostly right, sometimes extreme, sometimes wrong."""

import math
import random
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ODD = (torch.int8, torch.int32, torch.bool, torch.float32, torch.complex64, torch.uint8)
_SIZES = (1.0, 1.0, 1.0, 5.0, 20.0, 90.0, 1e3, 1e4)
_BROKEN = (math.nan, math.inf, -math.inf, 1e30, -1e30, torch.finfo(torch.float16).max)


@dataclass
class Setting:
    """What all batches of a case share.

    Attributes:
        classes: how many.
        dtype: of the logits.
        options: weight, ignore_index, label_smoothing and reduction.
        size: about how large logits are.
        soft: whether targets are probabilities.
    """

    classes: int
    dtype: torch.dtype
    size: float
    soft: bool
    options: dict[str, Any] = field(default_factory=dict)


def setting(chance: random.Random) -> Setting:
    """What the batches of a case share: in a third of them what nearly everyone has."""
    if chance.random() < 0.3:
        options = {"weight": None, "ignore_index": -100, "label_smoothing": 0.0}
        size = chance.choice(_SIZES[:5])
        return Setting(4, torch.float32, size, False, {**options, "reduction": "mean"})
    classes = chance.choice([1, 2, 2, 3, 4, 7, 33])
    made = Setting(classes, chance.choice(FLOATS), chance.choice(_SIZES), chance.random() < 0.35)
    weight = None
    if chance.random() < 0.4:
        # In eighths, which half precision holds exactly; sometimes 0.
        weight = torch.tensor([chance.randint(0, 24) / 8 for _ in range(classes)]).to(made.dtype)
    made.options = {
        "weight": weight,
        "ignore_index": chance.choice([-100, -100, -1, *([] if made.soft else [0, 1, 255])]),
        "label_smoothing": chance.choice([0.0, 0.0, 0.1, 0.5, 1.0]),
        "reduction": chance.choice(["mean", "mean", "sum", "none"]),
    }
    return made


def batch(chance: random.Random, made: Setting) -> tuple[Tensor, Tensor]:
    """Logits and target, as torch's cross-entropy takes them."""
    positions = chance.choice([[], [0], [1], [2], [5], [17], [3, 2], [2, 3], [2, 0], [2, 2, 3]])
    shape = [made.classes] if not positions else [positions[0], made.classes, *positions[1:]]
    generator = torch.Generator().manual_seed(chance.getrandbits(40))
    logits = torch.randn(shape, generator=generator, dtype=torch.float64) * made.size / 2
    logits = logits.clamp(-made.size, made.size)
    if made.soft:
        target = torch.rand(shape, generator=generator).to(chance.choice([made.dtype, *FLOATS[2:]]))
        if chance.random() < 0.3:
            target = target * (torch.rand(shape, generator=generator) < 0.5)
    else:
        target = torch.randint(made.classes, positions, generator=generator)
        ignored = torch.rand(positions, generator=generator) < chance.choice([0, 0, 0.3, 1])
        target = target.masked_fill(ignored, made.options["ignore_index"])
    if logits.numel() and chance.random() < 0.25:
        logits.view(-1)[chance.randrange(logits.numel())] = chance.choice(_BROKEN)
    if logits.numel() and chance.random() < 0.2:  # a mask, here and there
        masked = torch.rand(shape, generator=generator) < 0.3
        logits = logits.masked_fill(masked, chance.choice([-math.inf, -1e9]))
    return logits.to(made.dtype), target


def spoil(
    chance: random.Random, made: Setting, logits: Tensor, target: Tensor
) -> tuple[Tensor, Tensor]:
    """Make the arguments wrong, or odd, in one way."""
    way = chance.choice(["shape", "dtype", "value", "weight", "smoothing", "logits", "ignore"])
    if way == "shape":
        wrong = [chance.randint(0, 5) for _ in range(chance.randint(0, 4))]
        target = torch.zeros(wrong, dtype=target.dtype)
    elif way == "dtype":
        target = target.to(chance.choice(_ODD))
    elif way == "value" and not made.soft and target.numel():
        target = target.clone()
        target.view(-1)[0] = chance.choice([made.classes, made.classes + 7, -3, 2**40, -(2**62)])
    elif way == "weight":
        wrong = chance.choice([[made.classes + 1], [1, made.classes], [made.classes], []])
        made.options["weight"] = torch.ones(wrong, dtype=chance.choice(FLOATS))
    elif way == "smoothing":
        made.options["label_smoothing"] = chance.choice([1.5, -0.1, math.nan, 1 + 1e-9])
    elif way == "logits":
        logits = logits.to(chance.choice([torch.int64, torch.bool, torch.complex64]))
    else:
        made.options["ignore_index"] = chance.choice([0, 2, 2**40, -(2**40)])
    return logits, target


def is_torchs_slip(logits: Tensor, target: Tensor, options: dict[str, Any]) -> bool:
    """Calls that torch treats in one combination otherwise than in all its neighbours.

    Smoothing below 0 for probabilities; a target of one element for (C) logits only under
    smoothing; bytes only in images, or under smoothing with weights; weights of another shape only
    where none is looked up; any dtype for logits or targets of which there are none.
    """
    weight, smooth = options["weight"], options["label_smoothing"]
    if smooth < 0 or math.isnan(smooth):
        return True
    if smooth > 0 and logits.dim() == 1 and target.shape == (1,):
        return True
    if target.dtype == torch.uint8 and (logits.dim() > 2 or (smooth > 0 and weight is not None)):
        return True
    if logits.numel() == 0 and logits.dtype not in FLOATS:
        return True
    if target.numel() == 0 and target.dtype != torch.int64 and target.shape != logits.shape:
        return True
    return weight is not None and logits.dim() > 2 and weight.dim() != 1
