"""The product h W^T of a chunk of classes, with the exponentials made before it is ever stored.

cuBLAS is a little faster at the product alone; but then the exponentials read it once more and
write it again, which costs more. On an H200 the whole of forward and backward takes 1.4 % less time
at 2304 features and 256,000 classes, and 1 % less at 4096 and 128,256.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from penex.kernels.triton import _slope

_ROWS, _COLUMNS, _DEPTH, _GROUP = 128, 256, 64, 8  # of a tile, and how many share their columns
_WARPS, _STAGES = 8, 3
_NARROWEST = 2048  # features; a tile's exponentials would else outweigh its product
_ALIGNED = 8  # numbers of bfloat16 between which a tile may begin


@triton.jit
def powers_of_product(  # type: ignore[no-untyped-def]
    hidden, weight, out, mass, sums, rows, columns, limit,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Some tiles of mass exp(h W^T), and the sums of exp over each tile's columns."""
    down, across = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
    for place in tl.range(tl.program_id(0), down * across, PROGRAMS, flatten=True):
        # Tiles that are computed side by side share rows or columns, which are in the cache then.
        group = place // (GROUP * across)
        first = group * GROUP
        size = tl.minimum(down - first, GROUP)
        rest = place % (GROUP * across)
        i, j = first + rest % size, rest // size
        f = tl.zeros((ROWS, COLUMNS), tl.float32)
        for k in tl.range(0, WIDTH, DEPTH):
            f = tl.dot(hidden.load([i * ROWS, k]), weight.load([j * COLUMNS, k]).T, f)
        row = i * ROWS + tl.arange(0, ROWS)
        column = j * COLUMNS + tl.arange(0, COLUMNS)
        own = tl.load(mass + row, mask=row < rows, other=0.0)
        slope = _slope(f, limit, False)
        se = tl.where((column < columns)[None, :], slope * (1.0 + tl.maximum(f - limit, 0.0)), 0.0)
        tl.store(sums + j.to(tl.int64) * rows + row, tl.sum(se, axis=1), mask=row < rows)
        out.store([i * ROWS, j * COLUMNS], (slope * own[:, None]).to(out.dtype))


def can(hidden: Tensor, weight: Tensor, out: Tensor) -> bool:
    """Whether this is a product that the kernel computes, and faster than cuBLAS and a pass.

    Args:
        hidden: (T, H), dense.
        weight: (C, H); the features lie side by side.
        out: (T, C); the columns lie side by side.
    """
    (rows, width), columns = hidden.shape, len(weight)
    tiles = -(-rows // _ROWS) * -(-columns // _COLUMNS)
    steps = width, weight.stride(0), out.stride(0)
    return (
        hidden.dtype == weight.dtype == out.dtype == torch.bfloat16
        and width >= _NARROWEST
        and all(step % _ALIGNED == 0 for step in steps)
        and all(tensor.data_ptr() % 16 == 0 for tensor in (hidden, weight, out))
        and _is_hopper(hidden.device)
        and tiles >= _processors(hidden.device)
    )


def powers(
    hidden: Tensor, weight: Tensor, mass: Tensor, se: Tensor, limit: float, out: Tensor
) -> None:
    """Write mass_i exp(min(f_ij, limit)) of f = h W^T, and add sum_j exp f_ij to se_i.

    Args:
        hidden: h, (T, H), dense.
        weight: W, (C, H); the features lie side by side.
        mass: (T) in float32.
        se: (T) in float32.
        limit: up to where exp is exact.
        out: (T, C); the columns lie side by side.
    """
    (rows, width), columns = hidden.shape, len(weight)
    down, across = -(-rows // _ROWS), -(-columns // _COLUMNS)
    # Of each tile, then added up: the order is fixed, whichever tile is done first.
    sums = torch.empty(across, rows, dtype=torch.float32, device=hidden.device)
    programs = min(_processors(hidden.device), down * across)
    here = torch.cuda.device_of(hidden)  # type: ignore[no-untyped-call]
    with here:  # Triton launches on the one that is current
        powers_of_product[(programs,)](
            TensorDescriptor(hidden, [rows, width], [width, 1], [_ROWS, _DEPTH]),
            TensorDescriptor(weight, [columns, width], [weight.stride(0), 1], [_COLUMNS, _DEPTH]),
            TensorDescriptor(out, [rows, columns], [out.stride(0), 1], [_ROWS, _COLUMNS]),
            mass, sums, rows, columns, float(limit), width, _ROWS, _COLUMNS, _DEPTH, _GROUP,
            programs, num_warps=_WARPS, num_stages=_STAGES,
        )  # fmt: skip
    se += sums.sum(0)


@functools.cache
def _is_hopper(device: torch.device) -> bool:
    """Whether tiles were measured there: they are as large as its shared memory allows."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


@functools.cache
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 3  # whatever: a test's
    return torch.cuda.get_device_properties(device).multi_processor_count
