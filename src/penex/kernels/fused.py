"""The Triton kernels as a loss that autograd, torch.compile and CUDA graphs can take."""

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penex import functional as F
from penex import targets
from penex.kernels import eager, launch

_TARGETS = torch.int64, *launch.DTYPES

# As operators: torch.compile sees one node each, and traces through the code around them.

_finish_op = torch.library.custom_op("penex::finish", launch.finish, mutates_args=("sums", "rho"))


@torch.library.custom_op("penex::rows", mutates_args=())
def _rows_op(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    alpha: float,
    ignore_index: int,
    smoothing: float,
) -> Tensor:
    if not _holds(*logits.shape):  # which `fits` could not ask
        raise ValueError(
            f"A compiled PENEX cannot do {len(logits)} x {logits.shape[1]} logits at once; "
            "impl='reference' can."
        )
    return launch.rows(logits, target, weight, alpha, ignore_index, smoothing)


@torch.library.custom_op("penex::gradient", mutates_args=())
def _gradient_op(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    sums: Tensor,
    grad: Tensor,
    alpha: float,
    smoothing: float,
) -> Tensor:
    out = torch.empty_like(logits)
    launch.gradient(logits, target, weight, sums, grad, out, alpha, smoothing)
    return out


@_rows_op.register_fake
def _(logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(4 * logits.shape[0] + 2, dtype=torch.float32)


@_finish_op.register_fake
def _(sums: Tensor, *_: Any) -> Tensor:
    return sums.new_empty(())


@_gradient_op.register_fake
def _(logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits)


def rows(logits: Tensor, *rest: Any) -> Tensor:
    """`launch.rows`; one node of the graph while torch.compile looks on."""
    if torch.compiler.is_compiling():
        found: Tensor = _rows_op(logits.detach(), *rest)
        return found
    return launch.rows(logits, *rest)  # reads memory, of which autograd sees nothing


def rows_and_finish(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    rho: Tensor,
    alpha: float,
    ignore_index: int,
    smoothing: float,
    *step: Any,
) -> tuple[Tensor, Tensor]:
    """`launch.rows_and_finish`; two nodes of the graph while torch.compile looks on."""
    given = logits, target, weight
    if not torch.compiler.is_compiling():
        return launch.rows_and_finish(*given, rho, alpha, ignore_index, smoothing, *step)
    sums = rows(*given, alpha, ignore_index, smoothing)
    value: Tensor = _finish_op(sums, rho, alpha, *step)
    return value, sums


class Constants(NamedTuple):
    """What the gradient needs besides tensors.

    Attributes:
        alpha: the sensitivity.
        ignore_index: the class index that takes a row out.
        smoothing: of the labels.
        overwrite: whether to write the gradient over the logits.
    """

    alpha: float
    ignore_index: int
    smoothing: float
    overwrite: bool


class WithGradient(torch.autograd.Function):
    """A value that was computed, with the gradient of the logits that belongs to it."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        value: tuple[Tensor],
        target: Tensor,
        weight: Tensor | None,
        sums: Tensor,
        options: Constants,
    ) -> Tensor:
        """Return the value: a number, or one for each row."""
        ctx.save_for_backward(logits, target, weight, sums)
        ctx.options = options
        return value[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the logits, written over them if that was asked for."""
        return _gradient(ctx, grads[0]), None, None, None, None, None


def _gradient(ctx: Any, grad: Tensor) -> Tensor:
    options: Constants = ctx.options
    rest = options.alpha, options.smoothing
    logits, target, weight, sums = ctx.saved_tensors
    if torch.compiler.is_compiling():
        out: Tensor = _gradient_op(logits, target, weight, sums, grad, *rest)
        return out
    if torch.is_grad_enabled() or eager.is_batched(grad):
        # A row's loss is a function of its own logits: its gradient is a factor.
        outer = grad.unsqueeze(1) if grad.dim() else grad
        return (outer * _gradient_again(logits, target, weight, sums, options)).to(logits.dtype)
    out = logits.detach() if options.overwrite else torch.empty_like(logits)
    grad = grad.resolve_neg()  # a kernel reads what is in memory
    launch.gradient(logits, target, weight, sums, grad, out, *rest)
    if options.overwrite:  # whoever else has saved the logits is told by autograd
        torch.autograd.graph.increment_version(logits)
    return out


_WORKS: dict[torch.device, bool] = {}


def works(device: torch.device) -> bool:
    """Whether Triton runs there: it needs a C compiler, and a GPU that it knows. Says if not.

    It is tried once, and not while a graph is recorded; a compiler would not run without it.
    """
    if torch.compiler.is_compiling():
        return True
    if device not in _WORKS:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return True
        _WORKS[device] = _tried(device)
    return _WORKS[device]


def _tried(device: torch.device) -> bool:
    try:
        logits = torch.zeros(1, 1, device=device)
        launch.rows(logits, logits.long().flatten(), None, 1.0, -100, 0.0)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the compiler and the driver fail in all kinds of ways
        first = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(
            f"PENEX is slower than it could be: Triton does not run ({first}).", stacklevel=3
        )
        return False
    return True


def _gradient_again(
    logits: Tensor, target: Tensor, weight: Tensor | None, sums: Tensor, options: Constants
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
        values = (F.sign(options.alpha) * ex + sums[-2] * se) / sums[-1]
        (found,) = torch.autograd.grad(values.sum(), logits, create_graph=again)
    return found


def fits(logits: Tensor, target: Tensor) -> bool:
    """Whether the kernels can read (N, C) logits and targets: on a GPU, or in the interpreter."""
    return (
        logits.dtype in launch.DTYPES
        and target.dtype in _TARGETS
        and (logits.is_cuda or launch.INTERPRETED)
        # A graph for any size cannot be asked for its size; the operator is, when it runs.
        and (torch.compiler.is_compiling() or _holds(*logits.shape))
    )


def _holds(rows: int, classes: int) -> bool:
    """Whether a batch is within the kernels' 32 bits: places of sums, and numbers of programs."""
    return rows < 2**29 and classes < 2**30 and rows * classes < 2**41
