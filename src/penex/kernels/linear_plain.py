"""The kernels of `linear_launch` in plain operations, for any device: their slow twins."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

_BLOCK = 2**25  # bytes of what is made at once


def powers(f: Tensor, bias: Tensor | None, mass: Tensor, se: Tensor, limit: float) -> None:
    """Add sum_j exp f_ij to se_i and write mass_i exp(min(f_ij, limit)) over the logits."""
    powers = f.to(se.dtype)  # the logits themselves, if they have it
    if bias is not None:
        powers += bias
    above = torch.relu(powers - limit).sum(1)
    powers.clamp_(max=limit).exp_()
    se += powers.sum(1) + math.exp(limit) * above
    powers *= mass.unsqueeze(1)
    if powers is not f:
        f.copy_(powers)


def own_logits(hidden: Tensor, weight: Tensor, label: Tensor) -> Tensor:
    """The logit of each position's own class, h W_y, in float32 or wider."""
    wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    out = torch.empty(len(hidden), dtype=wide, device=hidden.device)
    for part in _blocks(len(hidden), hidden.shape[1] * 8):
        rows = weight[label[part]].to(wide)
        torch.sum(rows.mul_(hidden[part]), 1, out=out[part])
    return out


def finish_hidden(
    total: Tensor, weight: Tensor, label: Tensor, pull: Tensor, factor: Tensor, dtype: torch.dtype
) -> Tensor:
    """The gradient of the hidden states, factor total + pull_i W_y, in a dtype."""
    out = total if total.dtype == dtype else torch.empty_like(total, dtype=dtype)
    for part in _blocks(len(total), total.shape[1] * 8):
        block = total[part].mul_(factor)
        block.addcmul_(pull[part].unsqueeze(1), weight[label[part]].to(total.dtype))
        if out is not total:
            out[part] = block
    return out


def finish_weight(
    total: Tensor, label: Tensor, pull: Tensor, factor: Tensor, hidden: Tensor
) -> None:
    """Multiply total by a factor, in place, and add pull_i h_i to row label_i of it."""
    _scale(total, factor)
    _add_rows(total, label, pull, hidden)


def _scale(values: Tensor, factor: Tensor) -> None:
    """Multiply in place, by a factor that is not rounded to the dtype of the values."""
    if values.dtype == factor.dtype:
        values.mul_(factor)
        return
    for part in _blocks(len(values), values.shape[1] * 8):  # as torch makes a wide copy on a CPU
        values[part].mul_(factor.view(1))


def _add_rows(total: Tensor, label: Tensor, pull: Tensor, hidden: Tensor) -> None:
    """Add pull_i h_i to row label_i of total, with sums in float32.

    A frequent class has hundreds of positions; added one by one in bfloat16, all but the first 256
    would be lost. So positions are sorted by class, their sums made, and each added once.
    """
    wide = pull.dtype
    left, outer = (pull != 0).unsqueeze(1), pull.unsqueeze(1)
    if total.dtype == wide:
        for part in _blocks(len(hidden), hidden.shape[1] * 8):
            rows = torch.where(left[part], outer[part] * hidden[part].to(wide), 0)
            total.index_add_(0, label[part], rows)
        return
    order = label.argsort(stable=True)
    label = label[order]
    first = torch.ones_like(label)
    first[1:] = label[1:] != label[:-1]
    group = first.cumsum(0) - 1
    classes = torch.zeros_like(label).scatter_(0, group, label)  # 0 where there is no such group
    left, outer = left[order], outer[order]
    for part in _blocks(hidden.shape[1], len(hidden) * 8):
        rows = torch.where(left, outer * hidden[:, part][order].to(wide), 0)
        sums = torch.zeros_like(rows).index_add_(0, group, rows)
        total[:, part].index_add_(0, classes, sums.to(total.dtype))


def _blocks(count: int, size: int) -> Iterator[slice]:
    """Parts of so many things of a size in bytes, each at most `_BLOCK` in all."""
    step = max(1, _BLOCK // max(size, 1))
    return (slice(start, start + step) for start in range(0, count, step))
