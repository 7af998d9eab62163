"""Arguments of cross-entropy, right and wrong, for the tests of every loss."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from penex import registry
from penex.rivals import EarlyLearning

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DEFAULTS = {"ignore_index": -100, "label_smoothing": 0.0}
ODD_DTYPES = [torch.int8, torch.int32, torch.bool, torch.float32, torch.complex64]


class Numbered(EarlyLearning):
    """A loss that wants the examples' numbers, called as the others are: they are 0, 1, 2, ..."""

    def forward(self, input: Tensor, target: Tensor, index: Tensor | None = None) -> Tensor:
        shape = input.shape[:1] + input.shape[2:] if input.dim() > 1 else torch.Size()
        if input.dim() and input.shape[min(1, input.dim() - 1)] != self.memory.shape[1]:
            self.remember(1000, input.shape[min(1, input.dim() - 1)])
        ones = torch.ones(shape, dtype=torch.int64, device=input.device)
        return super().forward(input, target, ones.view(-1).cumsum(0).view(shape) - 1)


def make(name: str, classes: int = 4, **options: Any) -> Any:
    """A loss of the registry, ready to be called with logits and targets alone."""
    loss = registry.make(name, **options)
    if loss.wants_index:
        loss.__class__ = Numbered
        loss.remember(1000, classes)
    return loss


@st.composite
def calls(draw: st.DrawFn) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Arguments of cross-entropy: mostly right, sometimes wrong in one way or another."""
    classes = draw(st.integers(1, 5))
    rank = draw(st.integers(1, 4))
    positions = [draw(st.integers(0, 3)) for _ in range(rank - 1)]
    shape = [classes] if rank == 1 else [positions[0], classes, *positions[1:]]
    dtype = draw(st.sampled_from(FLOATS))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    logits = torch.randn(shape, generator=generator).to(dtype)
    options: dict[str, Any] = {
        "ignore_index": draw(st.sampled_from([-100, -1, 0, 2])),
        "label_smoothing": draw(st.sampled_from([0.0, 0.1, 1.0])),
    }
    if draw(st.booleans()):
        # Above 0: rounded to bfloat16 a weight may be 0, and torch then divides by 0.
        options["weight"] = (0.1 + torch.rand(classes, generator=generator)).to(dtype)

    kind = draw(st.sampled_from(["index", "index", "probabilities"]))
    if kind == "index":
        target = torch.randint(classes, positions, generator=generator)
        ignored = torch.rand(positions, generator=generator) < 0.3
        target = target.masked_fill(ignored, options["ignore_index"])
    else:
        target = torch.rand(shape, generator=generator).to(draw(st.sampled_from(FLOATS)))

    fault = draw(st.sampled_from([None, None, None, "shape", "dtype", "value", "weight", "smooth"]))
    if fault == "shape":
        wrong = draw(st.lists(st.integers(0, 5), max_size=4))
        target = torch.zeros(wrong, dtype=target.dtype)
    elif fault == "dtype":
        target = target.to(draw(st.sampled_from([*ODD_DTYPES, torch.uint8])))
    elif fault == "value" and kind == "index" and target.numel():
        target.view(-1)[0] = draw(st.sampled_from([classes, classes + 7, -3]))
    elif fault == "weight":
        wrong = draw(st.sampled_from([[classes + 1], [1, classes], [classes]]))
        kind_of_weight = draw(st.sampled_from(FLOATS))
        weight = 0.1 + torch.rand(wrong, generator=generator)
        options["weight"] = weight.to(kind_of_weight)
    elif fault == "smooth":
        options["label_smoothing"] = 1.5
    return logits, target, options


def torchs_own_slips(logits: Tensor, target: Tensor, options: dict[str, Any]) -> bool:
    """Calls that torch treats in one combination otherwise than in all its neighbours.

    It rejects a target of one element for (C) logits only under smoothing, bytes only under
    smoothing and weights; it accepts weights of shape (1, C) only for class indices in images,
    and bytes in images, or (torch 2.11) any dtype, only if there are none.
    """
    weight = options.get("weight")
    if options["label_smoothing"] > 0 and (
        (logits.dim() == 1 and target.shape == (1,))
        or (target.dtype == torch.uint8 and weight is not None)
    ):
        return True
    if target.numel() == 0 and target.dtype != torch.int64 and target.shape != logits.shape:
        return True
    image = logits.dim() > 2
    return image and ((weight is not None and weight.dim() == 2) or target.dtype == torch.uint8)
