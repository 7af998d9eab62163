"""Whatever torch's cross-entropy accepts is accepted, what it rejects is rejected, by any loss.

The shared reading of the inputs is checked twice: PENEX against torch's verdict and output shape,
and a cross-entropy written on top of `penex.targets` against torch's very values.
"""

import ast
import functools
import importlib.util
import itertools
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from penex import functional as F
from penex import registry, targets

from strategies import DEFAULTS, calls, make, torchs_own_slips


def cross_entropy(logits: Tensor, target: Tensor, reduction: str, **options: Any) -> Tensor:
    """torch's cross-entropy, written with `penex.targets`."""
    batch = targets.read(logits, target, **options)
    log_p = torch.log_softmax(batch.logits, dim=batch.dim)
    return targets.reduce(batch.expect(torch.neg, log_p), batch.total, reduction)


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


def torchs_module_inputs() -> list[Any]:
    """What torch tests its own CrossEntropyLoss with.

    The function is taken from torch's source: to import its module wants another package, takes
    seconds and forbids setting torch.backends for good.
    """
    spec = importlib.util.find_spec("torch.testing._internal.common_modules")
    assert spec is not None
    assert spec.origin is not None
    name = "module_inputs_torch_nn_CrossEntropyLoss"
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    known: dict[str, Any] = {
        "torch": torch,
        "make_tensor": torch.testing.make_tensor,
        "partial": functools.partial,
        "product": itertools.product,
        "FunctionInput": lambda *given, **named: (given, named),
        "ModuleInput": types.SimpleNamespace,
        "no_batch_dim_reference_fn": print,  # never called
    }
    exec(compile(tree, spec.origin, "exec"), known)
    inputs: list[Any] = known[name](
        None, device="cpu", dtype=torch.float64, requires_grad=True, training=True
    )
    return inputs


def test_every_loss_takes_what_torch_tests_its_own_with() -> None:
    inputs = torchs_module_inputs()
    assert len(inputs) > 50
    for case in inputs:
        _, options = case.constructor_input
        (logits, target), _ = case.forward_input
        expected = torch.nn.CrossEntropyLoss(**options)(logits, target)
        for name in registry.LOSSES:
            named = dict(options)
            if name == "label_smoothing" and "label_smoothing" in named:
                named["epsilon"] = named.pop("label_smoothing")
            value = make(name, **named)(logits, target)
            assert value.shape == expected.shape, (case.desc, name)
            assert value.dtype == expected.dtype
            if name == "ce":  # torch's own, NaN where all is ignored
                torch.testing.assert_close(value, expected, rtol=0, atol=0, equal_nan=True)
                continue
            assert value.isfinite().all(), (case.desc, name)
            (gradient,) = torch.autograd.grad(value.sum(), logits, retain_graph=True)
            assert gradient.shape == logits.shape
            assert gradient.isfinite().all(), (case.desc, name)


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
    with pytest.raises(RuntimeError, match=r"got torch\.int64"):  # NotImplementedError from 2.11 on
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
