"""A matrix product that makes exponentials of its sums while it has them in registers (Triton).

One of the ways that benchmarks.linear times: it spares a chunk's logits a way to memory and back,
and has to make up for being slower than the vendor's product.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

ROWS, COLUMNS, DEPTH, GROUP = 128, 256, 64, 8


@triton.jit
def product(  # type: ignore[no-untyped-def]
    left, right, out, mass, sums, rows, columns, limit,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """One tile of mass exp(left right^T), and the sums of its rows."""
    # Programs that follow each other share tiles of `right`, which stay in the cache.
    place = tl.program_id(0)
    down, across = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
    group = place // (GROUP * across)
    first = group * GROUP
    size = tl.minimum(down - first, GROUP)
    i = first + (place % (GROUP * across)) % size
    j = (place % (GROUP * across)) // size
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(0, WIDTH, DEPTH):
        a = left.load([i * ROWS, k])
        b = right.load([j * COLUMNS, k])
        total = tl.dot(a, b.T, total)
    row = i * ROWS + tl.arange(0, ROWS)
    column = j * COLUMNS + tl.arange(0, COLUMNS)
    slope = tl.exp(tl.minimum(total, limit, propagate_nan=tl.PropagateNan.ALL))
    se = slope * (1.0 + tl.where(total > limit, total - limit, 0.0))
    se = tl.sum(tl.where((column < columns)[None, :], se, 0.0), axis=1)
    tl.store(sums + j.to(tl.int64) * rows + row, se, mask=row < rows)
    own = tl.load(mass + row, mask=row < rows, other=0.0)
    out.store([i * ROWS, j * COLUMNS], (slope * own[:, None]).to(out.dtype))


def powers(h: Tensor, rows: Tensor, mass: Tensor, se: Tensor, limit: float, out: Tensor) -> None:
    """Write mass exp(h rows^T) to `out`, whose rows begin at multiples of 16 bytes; add to se."""
    tokens, classes = len(h), len(rows)
    across = triton.cdiv(classes, COLUMNS)
    sums = torch.empty(across, tokens, dtype=torch.float32, device=h.device)
    product[(triton.cdiv(tokens, ROWS) * across,)](
        TensorDescriptor.from_tensor(h, [ROWS, DEPTH]),
        TensorDescriptor.from_tensor(rows, [COLUMNS, DEPTH]),
        TensorDescriptor(out, [tokens, classes], [out.stride(0), 1], [ROWS, COLUMNS]),
        mass, sums, tokens, classes, float(limit),
        h.shape[1], ROWS, COLUMNS, DEPTH, GROUP, num_warps=8, num_stages=3,
    )  # fmt: skip
    se += sums.sum(0)
