"""What torch.nn.CrossEntropyLoss accepts, read once for every loss.

Shapes, target kinds, class weights, ignored positions and label smoothing all come down to one
table of weights (K classes, w the class weights, e the smoothing, q the one-hot or given targets)

    u_ij = w_j ((1 - e) q_ij + e / K),    and u_ij = 0 where position i is ignored,

so that a loss is written once, for a single class value phi, as sum_j u_ij phi(f_ij).
"""

from collections.abc import Callable
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

REDUCTIONS = ("mean", "sum", "none")

_PLAIN = (Tensor, torch.nn.Parameter)

LOGIT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Batch(NamedTuple):
    """A batch of logits with the weights u, in the cheaper of two forms.

    Attributes:
        logits: the logits in float32 (float64 if they are), 0 at positions without weight, so that
            nothing that stands there reaches a value or a gradient. They decide the precision of
            all the rest, whatever the targets or weights have.
        dim: the class dimension.
        label: the class of each position (0 where ignored), when u has one entry a position.
        u: the weights themselves, when they are spread over classes. One of the two is None.
        mass: sum_j u_ij for each position.
        total: D, what ``reduction="mean"`` divides by: the sum of the targets' weights for class
            indices, the number of positions for probabilities.
    """

    logits: Tensor
    dim: int
    label: Tensor | None
    u: Tensor | None
    mass: Tensor
    total: Tensor

    def expect(
        self,
        phi: Callable[[Tensor], Tensor],
        values: Tensor,
        floor: float | Tensor = -1e9,
        ceiling: float | Tensor | None = None,
    ) -> Tensor:
        """sum_j u_ij phi(values_ij) for each position, with 0 times infinity equal to 0.

        A class with u_ij = 0 may be masked with -inf or with a dtype's lowest number. Where its
        value is below floor, or above ceiling if there is one, phi is taken there, where it is
        finite: 0 times it is 0, not NaN.

        >>> batch = read(torch.zeros(2, 3), torch.tensor([0, -100]))
        >>> batch.expect(torch.exp, batch.logits)
        tensor([1., 0.])
        """
        if self.label is not None:
            return self.mass * phi(_pick(values, self.label, self.dim))
        assert self.u is not None
        legal = values.clamp(min=floor)
        if ceiling is not None:
            legal = legal.clamp(max=ceiling)
        legal = torch.where(self.u == 0, legal, values)
        return (self.u * phi(legal)).sum(self.dim)


def read(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float | Tensor = 0.0,
) -> Batch:
    """Turn the arguments of torch's cross-entropy into `Batch`, or reject them as torch does.

    Args:
        logits: (C), (N, C) or (N, C, d1, ..., dk), of any floating dtype from half to double.
        target: class indices, or probabilities in the shape of the logits.
        weight: a weight for each class.
        ignore_index: the class index that takes a position out.
        label_smoothing: e, between 0 and 1.

    Raises:
        Exception: of the class that torch's cross-entropy raises for the same arguments.

    >>> read(torch.zeros(2, 4), torch.tensor([3, 1]), weight=torch.tensor([1.0, 2, 3, 4])).mass
    tensor([4., 2.])
    """
    _check(logits, target, weight, ignore_index, label_smoothing)
    dim = class_dim(logits)
    if target.shape == logits.shape:
        return _read_probabilities(logits, target, weight, label_smoothing, dim)

    dtype = statistics_dtype(logits)
    classes = logits.shape[dim]
    if logits.dim() == 1:
        target = target.reshape(())  # torch takes a target of one element as a scalar
    target = target.long()
    kept = target != ignore_index
    index = torch.where(kept, target, 0)
    logits = logits.to(dtype)
    if classes == 0 and not kept.any():
        return Batch(logits, dim, None, logits, kept.to(dtype), kept.sum().to(dtype))

    hit = kept.to(dtype)
    if weight is not None:
        weight = weight.to(dtype)
        hit = hit * _pick(weight.expand(index.numel(), classes), index.flatten(), 1).view_as(hit)
    if not _is_smooth(label_smoothing):
        return Batch(_zeroed(logits, hit, dim), dim, index, None, hit, hit.sum())

    spread = torch.ones_like(logits) * (label_smoothing / max(classes, 1)) * kept.unsqueeze(dim)
    if weight is not None:
        spread = spread * _along(weight, logits)
    share = ((1 - label_smoothing) * hit).unsqueeze(dim)
    u = named(lambda: spread.scatter_add(dim, index.unsqueeze(dim), share), index, classes)
    mass = u.sum(dim)
    return Batch(_zeroed(logits, mass, dim), dim, None, u, mass, hit.sum())


def whole(tensor: Tensor) -> Tensor:
    """What all ranks hold of a DTensor, as a plain tensor; any other tensor as it is.

    It waits for the ranks of its mesh, and its gradient goes back to where each part lives. Every
    rank then has the whole batch: nothing is saved by sharding the classes.
    """
    if type(tensor) in _PLAIN or not hasattr(tensor, "full_tensor"):
        return tensor
    gathered: Tensor = tensor.full_tensor()
    return gathered


def reduce(values: Tensor, total: Tensor, reduction: str) -> Tensor:
    """Reduce the losses of the positions as torch's cross-entropy does; ``mean`` divides by total.

    >>> reduce(torch.tensor([1.0, 3.0]), torch.tensor(2.0), "mean")
    tensor(2.)
    """
    if reduction == "none":
        return values
    return values.sum() if reduction == "sum" else values.sum() / total


def divisor(left: Tensor, total: Tensor) -> Tensor:
    """What ``mean`` divides by: total, but 1 if nothing is left of the batch (then 0 / 1 = 0).

    >>> divisor(torch.tensor(0.0), torch.tensor(0.0))
    tensor(1.)
    """
    return torch.where(left == 0, torch.ones_like(total), total)


def class_dim(logits: Tensor) -> int:
    """The dimension of the classes: 0 for one unbatched example, else 1."""
    return 0 if logits.dim() == 1 else 1


def statistics_dtype(logits: Tensor) -> torch.dtype:
    """float64 if the logits are, else float32: half precision never carries an exponential."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def check_reduction(reduction: str) -> None:
    """Raise ValueError unless the reduction is one of `REDUCTIONS`."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}.")


def _read_probabilities(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    label_smoothing: float | Tensor,
    dim: int,
) -> Batch:
    dtype = statistics_dtype(logits)
    logits, u = logits.to(dtype), target.to(dtype)
    if _is_smooth(label_smoothing):
        u = (1 - label_smoothing) * u + label_smoothing / max(logits.shape[dim], 1)
    if weight is not None:
        u = u * _along(weight.to(dtype), logits)
    mass = u.sum(dim)
    # full, not tensor: a fill is legal while a CUDA graph is captured, a host copy is not. And
    # sym_float, not float: the size may be a symbol.
    number: float = torch.sym_float(mass.numel())  # type: ignore[no-untyped-call]
    total = torch.full((), number, dtype=dtype, device=mass.device)
    return Batch(_zeroed(logits, mass, dim), dim, None, u, mass, total)


def _is_smooth(label_smoothing: float | Tensor) -> bool:
    """Whether targets are spread; for a number of each of many models, that they may be."""
    return isinstance(label_smoothing, Tensor) or label_smoothing > 0


def _zeroed(logits: Tensor, mass: Tensor, dim: int) -> Tensor:
    """The logits, 0 at positions that weigh nothing."""
    return torch.where((mass != 0).unsqueeze(dim), logits, 0)


def _along(weight: Tensor, logits: Tensor) -> Tensor:
    """The class weights, shaped to multiply logits."""
    return weight if logits.dim() == 1 else weight.view(-1, *[1] * (logits.dim() - 2))


def _pick(values: Tensor, index: Tensor, dim: int) -> Tensor:
    return named(
        lambda: values.gather(dim, index.unsqueeze(dim)).squeeze(dim), index, values.shape[dim]
    )


def named(lookup: Callable[[], Tensor], index: Tensor, classes: int) -> Tensor:
    """Do a lookup by class; if it fails for a target out of range, say which one.

    The lookup checks its indices anyway, so a good batch pays nothing for this and it works under
    vmap. On a GPU the lookup asserts on the device, as torch's cross-entropy does.
    """
    if torch.compiler.is_compiling():
        return lookup()
    try:
        return lookup()
    except RuntimeError as error:
        try:
            bad = index[(index < 0) | (index >= classes)].tolist()
        except RuntimeError:  # under vmap no single value can be named
            raise error from None
        if not bad:
            raise
        raise IndexError(
            f"Target {bad[0]} is out of bounds: with {classes} classes, a target is a class index "
            f"from 0 to {classes - 1}, or ignore_index."
        ) from None


def _check(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float | Tensor,
) -> None:
    def reject(sentence: str) -> NoReturn:
        """Raise in the class that torch's cross-entropy raises for these very arguments."""
        kind: type[Exception] = RuntimeError
        try:
            torch.nn.functional.cross_entropy(
                logits,
                target,
                weight,
                ignore_index=ignore_index,
                label_smoothing=float(label_smoothing),
            )
        except Exception as error:
            kind = type(error)
        raise kind(sentence)

    if not isinstance(logits, Tensor) or not isinstance(target, Tensor):
        reject(
            f"logits and target must be tensors; got {type(logits).__name__} and "
            f"{type(target).__name__}."
        )
    if logits.dtype not in LOGIT_DTYPES:
        reject(f"logits must be float16, bfloat16, float32 or float64; got {logits.dtype}.")
    if logits.dim() == 0:
        reject("logits need a class dimension: (C), (N, C) or (N, C, d1, ...); got a scalar.")
    shape, classes = tuple(logits.shape), logits.shape[class_dim(logits)]

    probabilities = target.shape == logits.shape
    if probabilities:
        if target.dtype not in LOGIT_DTYPES:
            reject(
                f"A target in the shape of the logits {shape} holds class probabilities and must "
                f"be floating point; got {target.dtype}."
            )
        if ignore_index >= 0:
            reject(
                f"ignore_index works with class indices only; got ignore_index={ignore_index} "
                "with class probabilities."
            )
    else:
        positions = logits.shape[:1] + logits.shape[2:] if logits.dim() > 1 else torch.Size()
        if target.shape != positions and not (logits.dim() == 1 and target.shape == (1,)):
            reject(
                f"logits of shape {shape} want class indices of shape {tuple(positions)} or "
                f"probabilities of shape {shape}; got a target of shape {tuple(target.shape)}."
            )
        if target.dtype != torch.int64 and not (target.dtype == torch.uint8 and logits.dim() < 3):
            reject(f"Class indices must be int64 (torch.long); got {target.dtype}.")

    if weight is not None:
        if weight.shape != (classes,):
            reject(
                f"weight must hold one number for each of the {classes} classes; got shape "
                f"{tuple(weight.shape)}."
            )
        if (
            not probabilities
            and weight.dtype != logits.dtype
            and logits.device.type != "meta"
            and not torch.is_autocast_enabled(logits.device.type)
        ):
            reject(f"weight must have the dtype of the logits, {logits.dtype}; got {weight.dtype}.")
    if not isinstance(label_smoothing, Tensor) and not 0 <= label_smoothing <= 1:
        reject(f"label_smoothing must be between 0 and 1; got {label_smoothing}.")
