"""Other ways to walk over the classes than `penex.kernels.linear` takes, for benchmarks.linear.

Each is a `walk` of the same arguments, so that what is timed is the whole loss: `taken` puts one in
its place for a while. None of them knows label smoothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from penex.kernels import linear
from penex.kernels.head import Batch
from penex.kernels.linear import Walk

Way = Callable[..., Walk]


@contextmanager
def taken(way: Way | None) -> Iterator[None]:
    """The loss with another walk; None for its own."""
    usual = linear.walk
    linear.walk = way or usual
    try:
        yield
    finally:
        linear.walk = usual


def stored(batch: Batch, wanted: list[bool], rho: None = None) -> Walk:
    """A chunk's product for dH is stored in bfloat16, and then added in float32."""
    device = batch.mass.device
    known = linear._WIDE.get(device)
    linear._WIDE[device] = False
    try:
        return _USUAL(batch, wanted, rho)
    finally:
        linear._WIDE.pop(device)
        if known is not None:
            linear._WIDE[device] = known


def narrow(batch: Batch, wanted: list[bool], rho: None = None) -> Walk:
    """A chunk's product is added to dH where it is made, in bfloat16: rounded once a chunk."""
    return _walk(batch, narrow=True)


def overlapped(batch: Batch, wanted: list[bool], rho: None = None) -> Walk:
    """The exponentials of one chunk are made beside the logits of the next, on another stream."""
    return _walk(batch, overlapped=True)


def in_the_product(batch: Batch, wanted: list[bool], rho: None = None) -> Walk:
    """A product of our own (Triton) makes exponentials of the sums that it has in registers."""
    return _walk(batch, fused=True)


def nested(batch: Batch, wanted: list[bool], rho: None = None) -> Walk:
    """Logits and exponentials of a few classes at a time, while they are in the cache.

    The two other products take a whole chunk: dH would else be read and written too often.
    """
    return _walk(batch, step=max(256, _CACHE // (2 * len(batch.mass)) // 256 * 256))


_USUAL = linear.walk
_CACHE = 2**25  # bytes; an H200's second level has 50 MiB


def _walk(
    batch: Batch, *, narrow: bool = False, overlapped: bool = False, fused: bool = False,
    step: int | None = None,
) -> Walk:  # fmt: skip
    h, mass = batch.hidden, batch.mass
    assert h is not None
    classes, chunk = len(batch.weight), batch.chunk
    se = torch.zeros_like(mass)
    d_hidden = torch.zeros(h.shape, dtype=h.dtype if narrow else mass.dtype, device=h.device)
    d_weight = torch.empty_like(batch.weight)
    starts = range(0, classes, chunk)
    memory = [h.new_empty(len(h), chunk) for _ in range(2 if overlapped else 1)]
    cuda = h.is_cuda and overlapped
    main = torch.cuda.current_stream() if cuda else None
    side = _side(h.device) if cuda else None
    made: dict[int, torch.cuda.Event] = {}

    def begin(k: int) -> Tensor:
        """The logits of a chunk and then their exponentials."""
        rows = batch.weight[starts[k] : starts[k] + chunk]
        f = memory[k % len(memory)][:, : len(rows)]
        if fused:
            from benchmarks.linear_product import powers

            powers(h, rows, mass, se, batch.limit, f)
            return f
        if side is None or main is None:
            for some, out in zip(
                torch.split(rows, step or chunk), torch.split(f, step or chunk, 1), strict=True
            ):
                torch.mm(h, some.t(), out=out)
                _exponentials(out, batch, se)
            return f
        torch.mm(h, rows.t(), out=f)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            _exponentials(f, batch, se)
            made[k] = side.record_event()
        return f

    ahead = begin(0)
    for k, start in enumerate(starts):
        f, rows = ahead, batch.weight[start : start + chunk]
        if overlapped and k + 1 < len(starts):
            ahead = begin(k + 1)
        if main is not None:
            main.wait_event(made[k])
        torch.mm(f.t(), h, out=d_weight[start : start + chunk])
        linear._add_product(d_hidden, f, rows)
        if not overlapped and k + 1 < len(starts):
            ahead = begin(k + 1)
    return Walk(se, torch.zeros_like(se), d_hidden.to(mass.dtype), d_weight, None)


def _exponentials(f: Tensor, batch: Batch, se: Tensor) -> None:
    batch.kernels.powers(f, None, batch.mass, se, batch.limit)


_STREAMS: dict[torch.device, torch.cuda.Stream] = {}


def _side(device: torch.device) -> torch.cuda.Stream:
    if device not in _STREAMS:
        _STREAMS[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return _STREAMS[device]
