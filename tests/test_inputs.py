"""Whatever torch's cross-entropy accepts is accepted, what it rejects is rejected, by any loss.

The shared reading of the inputs is checked twice: PENEX against torch's verdict and output shape,
and a cross-entropy written on top of `penex.targets` against torch's very values.
"""

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from penex import functional as F
from penex import targets

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DEFAULTS = {"ignore_index": -100, "label_smoothing": 0.0}
ODD_DTYPES = [torch.int8, torch.int32, torch.bool, torch.float32, torch.complex64]


def cross_entropy(logits: Tensor, target: Tensor, reduction: str, **options: Any) -> Tensor:
    """torch's cross-entropy, written with `penex.targets`."""
    batch = targets.read(logits, target, **options)
    log_p = torch.log_softmax(batch.logits, dim=batch.dim)
    return targets.reduce(batch.expect(torch.neg, log_p), batch.total, reduction)


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
        options["weight"] = torch.rand(classes, generator=generator).to(dtype)

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
        options["weight"] = torch.rand(wrong, dtype=draw(st.sampled_from(FLOATS)))
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


@settings(max_examples=1500)
@given(call=calls(), reduction=st.sampled_from(["mean", "sum", "none"]))
@example(call=(torch.zeros(3), torch.tensor([1]), DEFAULTS), reduction="none")
@example(call=(torch.zeros(()), torch.tensor(1.0), DEFAULTS), reduction="mean")
def test_same_verdict_shape_and_value_as_torch(
    call: tuple[Tensor, Tensor, dict[str, Any]], reduction: str
) -> None:
    logits, target, options = call
    if torchs_own_slips(logits, target, options):
        return
    try:
        expected = torch.nn.functional.cross_entropy(logits, target, reduction=reduction, **options)
    except Exception as error:
        with pytest.raises(type(error)):
            F.penex(logits, target, 0.1, 0.2, reduction=reduction, **options)
        return
    loss = F.penex(logits, target, 0.1, 0.2, reduction=reduction, **options)
    assert loss.shape == expected.shape
    assert loss.isfinite().all()
    value = cross_entropy(logits, target, reduction, **options)
    # torch rounds to half precision on the way: compare with what it says in float64.
    expected = torch.nn.functional.cross_entropy(
        logits.double(),
        target.double() if target.is_floating_point() else target,
        weight=None if options.get("weight") is None else options["weight"].double(),
        ignore_index=options["ignore_index"],
        label_smoothing=options["label_smoothing"],
        reduction=reduction,
    )
    torch.testing.assert_close(
        value, expected, check_dtype=False, equal_nan=True, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("target", "error", "sentence"),
    [
        (torch.tensor([0, 4]), IndexError, "Target 4 is out of bounds: with 4 classes"),
        (torch.tensor([0, -1]), IndexError, "Target -1 is out of bounds"),
        (torch.tensor([0, 1, 2]), ValueError, r"indices of shape \(2,\).*got.*shape \(3,\)"),
        (torch.tensor([[0], [1]]), RuntimeError, r"got a target of shape \(2, 1\)"),
        (torch.tensor([0, 1]).int(), RuntimeError, "must be int64.*got torch.int32"),
        (torch.zeros(2, 4).long(), RuntimeError, "floating point; got torch.int64"),
        ([0, 1], TypeError, "must be tensors; got Tensor and list"),
    ],
)
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, torch.ones(4)])
def test_a_bad_target_is_named(
    target: Any,
    error: type[Exception],
    sentence: str,
    label_smoothing: float,
    weight: Tensor | None,
) -> None:
    options: dict[str, Any] = {"label_smoothing": label_smoothing, "weight": weight}
    with pytest.raises(error, match=sentence):
        F.penex(torch.zeros(2, 4), target, 0.1, 0.2, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"weight": torch.ones(3)}, r"each of the 4 classes; got shape \(3,\)"),
        ({"weight": torch.ones(4).double()}, "dtype of the logits, torch.float32; got"),
        ({"label_smoothing": 1.1}, "between 0 and 1; got 1.1"),
        ({"label_smoothing": -0.1}, "between 0 and 1; got -0.1"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RuntimeError, match=sentence):
        F.penex(torch.zeros(2, 4), torch.tensor([0, 1]), 0.1, 0.2, **options)


def test_bad_logits_are_named() -> None:
    with pytest.raises(NotImplementedError, match=r"got torch\.int64"):
        F.penex(torch.zeros(2, 4).long(), torch.tensor([0, 1]), 0.1, 0.2)
    with pytest.raises(RuntimeError, match="ignore_index=0 with class probabilities"):
        F.penex(torch.zeros(2, 4), torch.rand(2, 4), 0.1, 0.2, ignore_index=0)


def test_a_byte_target_of_156_is_not_the_ignored_minus_100() -> None:
    logits, target = torch.randn(1, 200), torch.tensor([156])
    assert F.penex(logits, target.byte(), 0.1, 0.2) == F.penex(logits, target, 0.1, 0.2)


def test_gradient_reaches_probabilities() -> None:
    logits = torch.randn(3, 4)
    target = torch.rand(3, 4, requires_grad=True)
    F.penex(logits, target, 0.1, 0.2, reduction="sum").backward()  # type: ignore[no-untyped-call]
    expected = torch.exp(-0.1 * logits) + 0.2 * logits.exp().sum(1, keepdim=True)
    torch.testing.assert_close(target.grad, expected)
