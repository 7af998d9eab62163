"""PENEX of a linear layer's logits for a given rho, without ever storing them."""

from torch import Tensor

from penex import targets
from penex.kernels import head, linear
from penex.penalty import check_penalty


def linear_penex(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    alpha: float,
    rho: float | Tensor,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    chunk: int | None = None,
) -> Tensor:
    r"""`penex.functional.penex` of the logits h W^T + b, which never exist all at once.

    For models with so many classes that the logits fill the memory, as language models have: it
    grows with the hidden states and the weights instead. Values and gradients are those of
    ``penex.functional.penex(hidden @ weight.T + bias, ...)``, saturation included. Products of
    bfloat16 are summed in float32, and so is everything else; the exponentials that enter the
    gradients' products are bfloat16, as the gradient of bfloat16 logits is. float16, whose range is
    too small for them, is computed in float32. Only first derivatives.

    Args:
        hidden: h, of shape (..., H).
        weight: W, of shape (K, H): a row for each class, as torch.nn.Linear has it.
        target: class indices, of shape (...).
        bias: b, of shape (K).
        alpha: the sensitivity, above 0, or between -1 and 0.
        rho: the penalty, above 0; see `penex.PENEX.linear` for one that is estimated.
        class_weight: a weight for each class.
        ignore_index: the class index that takes a position out.
        label_smoothing: between 0 and 1. With it there are four products instead of three.
        reduction: ``mean`` or ``sum``.
        chunk: how many classes at a time; by default so many that a chunk of the logits is about
            as large as the hidden states, or 96 MiB on a GPU, and as many more as lie in what the
            weights' gradient takes up anyhow.

    >>> import torch
    >>> target = torch.tensor([0, 1, 2, 0])
    >>> linear_penex(torch.zeros(4, 8), torch.randn(3, 8), target, alpha=0.1, rho=0.5)
    tensor(2.5000)
    """
    if not isinstance(rho, Tensor):
        check_penalty(alpha, rho)
    elif rho.requires_grad:
        raise ValueError("Linear PENEX has no gradient for rho: detach it.")

    def settle(sums: Tensor, _: int) -> linear.Decided:
        divisor = targets.divisor(sums[3], sums[2]) if reduction == "mean" else None
        return linear.Decided(rho, divisor, None)

    options = head.Options(
        alpha, class_weight, ignore_index, label_smoothing, reduction, chunk, "auto"
    )
    return linear.loss(hidden, weight, target, bias, options, settle)
