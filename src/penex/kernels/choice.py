"""Which kernels can do a batch, by its tensors alone."""

import importlib.util
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

from penex import targets

_HAS_TRITON = importlib.util.find_spec("triton") is not None
_PLAIN = (Tensor, nn.Parameter)


def is_common(logits: Tensor, target: Tensor) -> bool:
    """Whether `kernels.eager` may try: class indices of a plain batch on the CPU."""
    return (
        type(logits) in _PLAIN
        and logits.is_cpu
        and not torch.compiler.is_compiling()
        and type(target) is Tensor
        and target.is_cpu
        and logits.dtype in targets.LOGIT_DTYPES
        and target.dtype == torch.int64
        and logits.dim() > 1
        and [logits.shape[0], *logits.shape[2:]] == [*target.shape]
        and not _is_transformed()
    )


def is_fusible(logits: Tensor, target: Tensor, weight: Tensor | None) -> bool:
    """Whether `kernels.fused` can do it: (N, C) logits up to float32 where Triton runs."""
    shape = logits.shape
    return (
        _HAS_TRITON
        and type(logits) in _PLAIN
        and len(shape) == 2
        and logits.numel() > 0
        and _goes_with(target, logits)
        and (
            target.shape == shape[:1]
            if target.dtype == torch.int64
            else target.shape == shape and target.is_floating_point()
        )
        and (
            weight is None
            or (
                _goes_with(weight, logits)
                and weight.shape == shape[1:]
                and weight.dtype == logits.dtype
            )
        )
        and kernels().fits(logits, target)
        and (torch.compiler.is_compiling() or not (_is_transformed() or logits.is_neg()))
    )


def can_launch(hidden: Tensor, weight: Tensor) -> bool:
    """Whether `kernels.linear` may have its exponentials made by Triton."""
    return (
        _HAS_TRITON
        and type(hidden) in _PLAIN
        and type(weight) in _PLAIN
        and not (hidden.is_neg() or weight.is_neg())
        and hidden.numel() > 0
        and hidden.dtype != torch.float64
        and (hidden.is_cuda or launches().INTERPRETED)
        and not _is_transformed()
    )


def launches() -> Any:
    """The kernels of a linear layer's loss; they import triton."""
    from penex.kernels import linear_launch

    return linear_launch


def kernels() -> Any:
    """The fused kernels; they import triton, which is not everywhere and takes a second."""
    import penex.kernels.fused as fused  # `from` would look for it among a package's files

    return fused


def is_disposable(logits: Tensor) -> bool:
    """Whether logits may be overwritten: a result, dense, and no view of someone's parameter."""
    base = logits if logits._base is None else logits._base
    return not base.is_leaf and logits.is_contiguous()


def _goes_with(other: Tensor, logits: Tensor) -> bool:
    """Whether the fused kernels can read a target or a weight beside the logits."""
    return (
        type(other) is Tensor
        and other.device == logits.device
        and other.dtype != torch.float64
        and not other.requires_grad
        and (torch.compiler.is_compiling() or not other.is_neg())
    )


def _is_transformed() -> bool:
    """Whether someone watches or rewrites the operations: then they must be plain ones.

    torch.func, forward-mode differentiation, a dispatch mode (make_fx, fake tensors), jit.trace.
    """
    return (
        forward_ad._current_level >= 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
    )
