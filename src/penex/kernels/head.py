"""What a linear layer with a loss on it was given, checked and read once, for `kernels.linear`."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penex import functional as F
from penex import targets
from penex.kernels import choice, linear_plain

# A chunk of the logits has at most the size of the hidden states' gradient in float32, but at least
# this: smaller products leave a GPU's processors waiting, larger ones a CPU's caches. It depends on
# shapes alone and not on what memory is free, so that the same batch gives the same bits.
_ROOM_ON_GPU, _ROOM = 3 * 2**25, 2**23
_LEAST_CHUNK = 256
# Products of an odd number of classes are slow on a GPU.
_EVEN = 64


class Options(NamedTuple):
    """What decides the loss besides the layer and its targets.

    Attributes:
        alpha: the sensitivity.
        class_weight: a weight for each class.
        ignore_index: the class index that takes a position out.
        label_smoothing: between 0 and 1.
        reduction: ``mean`` or ``sum``.
        chunk: how many classes at a time; None for what the shapes say.
        impl: of `penex.PENEX`.
    """

    alpha: float
    class_weight: Tensor | None
    ignore_index: int
    label_smoothing: float
    reduction: str
    chunk: int | None
    impl: str


class Batch(NamedTuple):
    """A linear layer's batch, flat: T positions, H features, K classes.

    Attributes:
        hidden: (T, H) in the products' dtype, 0 at positions without weight; None once used.
        weight: (K, H).
        bias: (K) in the sums' dtype, or None.
        label: the class of each position, 0 where ignored.
        own: its weight u there, 0 where ignored.
        mass: sum_j u_ij, in the sums' dtype: float32, or float64 if the hidden states are.
        total: D.
        spread: the u of every class that label smoothing makes, (K), or None.
        alpha: the sensitivity.
        limit: up to where exp f is exact.
        own_limit: up to where exp(-alpha f) is.
        chunk: how many classes at a time.
        grows: whether there may be more of them while the weights' gradient has room for them.
        fused: whether Triton makes what is no product.
    """

    hidden: Tensor | None
    weight: Tensor
    bias: Tensor | None
    label: Tensor
    own: Tensor
    mass: Tensor
    total: Tensor
    spread: Tensor | None
    alpha: float
    limit: float
    own_limit: float
    chunk: int
    grows: bool
    fused: bool

    @property
    def kernels(self) -> Any:
        """What makes everything but the products: Triton, or plain operations."""
        return choice.launches() if self.fused else linear_plain

    def again(self, hidden: Tensor) -> "Batch":
        """The batch with its hidden states, once more."""
        return self._replace(hidden=_zeroed(hidden.detach(), self.mass, self.fused))


def read(
    hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, options: Options
) -> Batch:
    """The batch of (T, H) hidden states, which `check` has let pass, and T class indices.

    float16 is computed in float32, whose range exp needs.
    """
    alpha, class_weight, smoothing = options.alpha, options.class_weight, options.label_smoothing
    wide = targets.statistics_dtype(hidden)
    classes = len(weight)
    kept = target != options.ignore_index
    index = torch.where(kept, target, 0)
    own = kept.to(wide)
    if target.device.type == "cpu":  # on a GPU the lookup of the weights asserts it
        _check_range(index, classes)
    if class_weight is not None:
        class_weight = class_weight.detach().to(wide)
        own = own * class_weight[index]
    total, mass, spread = own.sum(), own, None
    if smoothing > 0:
        share = smoothing / classes
        spread = torch.full((classes,), share, dtype=wide, device=hidden.device)
        if class_weight is not None:
            spread = spread * class_weight
        own = (1 - smoothing) * own
        mass = own + kept * spread.sum()
    limit = F.exp_limit(len(hidden) * classes, wide)
    fused = _is_fused(hidden, weight, spread, options.impl)
    return Batch(
        hidden=_zeroed(hidden.detach(), mass, fused),
        weight=weight.detach(),
        bias=None if bias is None else bias.detach().resolve_neg().to(wide).contiguous(),
        label=index,
        own=own,
        mass=mass,
        total=total,
        spread=spread,
        alpha=alpha,
        limit=limit,
        own_limit=limit if alpha > 0 else -alpha * limit,
        chunk=min(
            options.chunk or chunk_of(len(hidden), classes, hidden), -(-classes // _EVEN) * _EVEN
        ),
        grows=options.chunk is None and _grows(hidden),
        fused=fused,
    )


def chunk_of(tokens: int, classes: int, hidden: Tensor) -> int:
    """How many classes a chunk has, from the shapes alone: parts that are about equal.

    >>> chunk_of(8192, 128_256, torch.empty(8192, 4096, dtype=torch.bfloat16, device="meta"))
    8192
    """
    size = max(tokens, 1) * _products_dtype(hidden).itemsize
    floor = _ROOM if hidden.is_cpu else _ROOM_ON_GPU
    most = max(_LEAST_CHUNK, max(tokens * hidden.shape[1] * 4, floor) // size)
    share = -(-classes // -(-classes // most))
    return -(-share // _LEAST_CHUNK) * _LEAST_CHUNK


class Part(NamedTuple):
    """A chunk of classes.

    Attributes:
        classes: which.
        ahead: how many of the first ones belong to the next part, and count nothing in this one.
        lent: whether its logits are where the weights' gradient of classes before it will be.
    """

    classes: slice
    ahead: int
    lent: bool


def parts(classes: int, chunk: int, lent: tuple[int, int] | None = None) -> Iterator[Part]:
    """Chunks of classes from the last class to the first.

    Until a class's turn has come, the memory of its weights' gradient is free. So the first chunks,
    the large ones, lie there: each as large as what is before it has room for. Where chunks are
    even, the number of classes need not be: then one chunk reaches into the next one.

    Args:
        classes: how many there are.
        chunk: how many have a memory of their own; a multiple of 64 if anything is lent.
        lent: how many numbers a class has in the weights' gradient and in the logits, if these may
            lie there.

    >>> [part.classes.stop - part.classes.start for part in parts(1000, 128, (8, 8))]
    [448, 256, 128, 128, 64]
    >>> [*parts(100, 64)] == [Part(slice(36, 100), 28, False), Part(slice(0, 64), 0, False)]
    True
    """
    if chunk >= classes:
        yield Part(slice(0, classes), 0, lent=False)
        return
    stop = classes + (-classes % _EVEN if chunk % _EVEN == 0 else 0)
    while stop > 0:
        last, size, room = min(stop, classes), min(stop, chunk), 0
        if lent is not None:
            room = last * lent[0] // max(sum(lent), 1) // _EVEN * _EVEN
            share = -(-stop // -(-stop // chunk))  # what is left over, in parts about equal
            size = room if room > chunk else min(chunk, -(-share // _EVEN) * _EVEN)
        yield Part(slice(last - size, last), stop - last, room > chunk)
        stop -= size


def check(
    hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, options: Options
) -> None:
    """Raise ValueError, in one sentence, for what linear PENEX cannot do."""
    chunk, smoothing = options.chunk, options.label_smoothing

    def demand(fits: bool, sentence: str) -> None:
        if not fits:
            raise ValueError(sentence)

    demand(
        weight.dim() == 2 and hidden.dim() >= 1 and hidden.shape[-1:] == weight.shape[1:],
        "hidden (..., H) and weight (K, H) must have the same number of features; got shapes "
        f"{tuple(hidden.shape)} and {tuple(weight.shape)}.",
    )
    classes = len(weight)
    demand(classes > 0, "weight must have a row for each class; got none.")
    mixed = torch.is_autocast_enabled(hidden.device.type)
    demand(
        hidden.dtype in targets.LOGIT_DTYPES and (hidden.dtype == weight.dtype or mixed),
        "hidden and weight must both be float16, bfloat16, float32 or float64, or autocast be on; "
        f"got {hidden.dtype} and {weight.dtype}.",
    )
    demand(
        not target.is_floating_point(),
        "Linear PENEX takes class indices: probabilities would be as large as the logits that it "
        "never stores.",
    )
    demand(
        target.dtype == torch.int64 and target.shape == hidden.shape[:-1],
        f"target must hold an int64 class index for each of the {tuple(hidden.shape[:-1])} "
        f"positions; got {target.dtype} of shape {tuple(target.shape)}.",
    )
    for name, given in (("weight", weight), ("target", target), ("bias", bias)):
        # A kept kernel takes addresses as they are: another device's would end the process.
        demand(
            given is None or given.device == hidden.device,
            f"{name} must be on the device of hidden, {hidden.device}; got "
            f"{None if given is None else given.device}.",
        )
    for name, given in (("bias", bias), ("the class weights", options.class_weight)):
        demand(
            given is None or given.shape == (classes,),
            f"{name} must hold one number for each of the {classes} classes; got shape "
            f"{None if given is None else tuple(given.shape)}.",
        )
    demand(
        options.class_weight is None or not options.class_weight.requires_grad,
        "Linear PENEX has no gradient for the class weights: detach them.",
    )
    demand(
        0 <= smoothing <= 1,
        f"label_smoothing must be between 0 and 1; got {smoothing}.",
    )
    targets.check_reduction(options.reduction)
    demand(
        options.reduction != "none",
        "Linear PENEX adds up a batch: reduction must be 'mean' or 'sum'; got 'none'.",
    )
    demand(
        chunk is None or (isinstance(chunk, int) and chunk > 0),
        f"chunk must be a whole number of classes from 1 on; got {chunk}.",
    )


def cast(
    hidden: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The tensors in autocast's dtype where it is on, as a linear layer takes them."""
    kind = hidden.device.type
    if not torch.is_autocast_enabled(kind) or hidden.dtype == torch.float64:
        return hidden, weight, bias
    dtype = torch.get_autocast_dtype(kind)
    return hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


def _products_dtype(hidden: Tensor) -> torch.dtype:
    """float32 instead of float16, in which exp f overflows from 11 on."""
    return torch.float32 if hidden.dtype == torch.float16 else hidden.dtype


def _zeroed(hidden: Tensor, mass: Tensor, fused: bool) -> Tensor:
    """The hidden states, 0 at positions that weigh nothing, whatever stands there."""
    dtype = _products_dtype(hidden)
    if fused and hidden.stride(1) == 1:  # torch's own way reads no 16 bytes at once
        kept: Tensor = choice.launches().kept_rows(hidden, mass, dtype)
        return kept
    return torch.where((mass != 0).unsqueeze(1), hidden, 0).to(dtype)


def _grows(hidden: Tensor) -> bool:
    """Whether larger chunks are faster; a CPU has caches."""
    return not hidden.is_cpu


def _check_range(index: Tensor, classes: int) -> None:
    targets.named(lambda: index.new_empty(classes).gather(0, index), index, classes)


def _is_fused(hidden: Tensor, weight: Tensor, spread: Tensor | None, impl: str) -> bool:
    """Whether Triton makes what is no product; without it, or for float64, plain operations do."""
    able = spread is None and weight.stride(1) == 1 and choice.can_launch(hidden, weight)
    if impl == "auto":
        return able and hidden.is_cuda and choice.kernels().works(hidden.device)
    if impl == "triton" and not able:
        raise ValueError(
            "impl='triton' cannot do this batch: for linear() it takes hidden states up to float32 "
            "on a GPU, with Triton installed, weights with a class's features side by side, and no "
            "label smoothing."
        )
    return impl == "triton"
