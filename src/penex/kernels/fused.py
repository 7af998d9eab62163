"""The Triton kernels as a loss that autograd, torch.compile and CUDA graphs can take."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from penex import functional as F
from penex import targets
from penex.kernels import eager, triton

# As operators: torch.compile sees one node each, and traces through the code around them.

_rows_op = torch.library.custom_op("penex::rows", triton.launch_rows, mutates_args=())
_finish_op = torch.library.custom_op("penex::finish", triton.launch_finish, mutates_args=("rho",))


@torch.library.custom_op("penex::gradient", mutates_args=())
def _gradient_op(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    sums: Tensor,
    grad: Tensor,
    numbers: Tensor,
    alpha: float,
    limit: float,
    smoothing: float,
) -> Tensor:
    out = torch.empty_like(logits)
    triton.launch_gradient(
        logits, target, weight, sums, grad, numbers, out, alpha, limit, smoothing
    )
    return out


@_rows_op.register_fake
def _(logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(4, logits.shape[0], dtype=torch.float32)


@_finish_op.register_fake
def _(sums: Tensor, *_: Any) -> Tensor:
    return sums.new_empty(3)


@_gradient_op.register_fake
def _(logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits)


def rows(*given: Any) -> Tensor:
    """`triton.launch_rows`; one node of the graph while torch.compile looks on."""
    launch = _rows_op if torch.compiler.is_compiling() else triton.launch_rows
    return launch(*given)


def finish(*given: Any) -> Tensor:
    """`triton.launch_finish`; one node of the graph while torch.compile looks on."""
    launch = _finish_op if torch.compiler.is_compiling() else triton.launch_finish
    return launch(*given)


class Options(NamedTuple):
    """What the gradient needs besides tensors.

    Attributes:
        alpha: the sensitivity.
        limit: up to where exp is exact.
        ignore_index: the class index that takes a row out.
        smoothing: of the labels.
        overwrite: whether to write the gradient over the logits.
    """

    alpha: float
    limit: float
    ignore_index: int
    smoothing: float
    overwrite: bool = False


class Loss(torch.autograd.Function):
    """A value that was computed, with the gradient of the logits that belongs to it."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        value: Tensor,
        target: Tensor,
        weight: Tensor | None,
        sums: Tensor,
        numbers: Tensor,
        options: Options,
    ) -> Tensor:
        """Return the value: a number, or one for each row."""
        ctx.save_for_backward(logits, target, weight, sums, numbers)
        ctx.options = options
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the logits, written over them if that was asked for."""
        logits, target, weight, sums, numbers = ctx.saved_tensors
        options: Options = ctx.options
        rest = options.alpha, options.limit, options.smoothing
        tensors = logits, target, weight, sums, grads[0], numbers
        if torch.compiler.is_compiling():
            out = _gradient_op(*tensors, *rest)
        elif torch.is_grad_enabled() or eager.is_batched(grads[0]):
            unit = _gradient_again(logits, target, weight, numbers, options)
            # A row's loss is a function of its own logits: its gradient is a factor.
            outer = grads[0].unsqueeze(1) if grads[0].dim() else grads[0]
            out = (outer * unit).to(logits.dtype)
        else:
            out = logits.detach() if options.overwrite else torch.empty_like(logits)
            triton.launch_gradient(*tensors, out, *rest)
            if options.overwrite:  # whoever else has saved the logits is told by autograd
                torch.autograd.graph.increment_version(logits)
        return out, None, None, None, None, None, None


def _gradient_again(
    logits: Tensor, target: Tensor, weight: Tensor | None, numbers: Tensor, options: Options
) -> Tensor:
    """The gradient of the rows' sum by the plain formula, which can be differentiated."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        batch = targets.read(
            logits,
            target,
            weight=weight,
            ignore_index=options.ignore_index,
            label_smoothing=options.smoothing,
        )
        ex, se = F.terms(batch, options.alpha)
        values = (ex + numbers[1] * se) / numbers[2]
        (found,) = torch.autograd.grad(values.sum(), logits, create_graph=again)
    return found


def fits(logits: Tensor) -> bool:
    """Whether the kernels can read such logits: on a GPU, or in Triton's interpreter."""
    return logits.dtype in triton.DTYPES and (logits.is_cuda or triton.INTERPRETED)
