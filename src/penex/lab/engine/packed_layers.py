"""Many models at once: each layer for parameters with a leading axis of models.

Vectors travel as (M, B, F). Images have one of two forms, by what is fast on a device:
- on a GPU (M, C, B, H, W), channels before the batch: a convolution is the nine shifted copies of
  its input, stacked, and one batched matrix product whose result is already in that form, or a
  kernel of `packed_conv`;
- elsewhere (B, M C, H, W): a convolution is one with M groups.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from penex.conex import ZeroSumHead
from penex.lab.ground.errors import LabError
from penex.lab.models.layers import Dropout
from penex.lab.models.resnet import BasicBlock

Tensors = dict[str, Tensor]

# Where torch keeps what runs before and after a module's forward.
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class How(NamedTuple):
    """How a pack is computed.

    Attributes:
        dtype: of the factors in products; they are summed in float32 or wider.
        stacked: whether images are (M, C, B, H, W), and not (B, M C, H, W).
        fused: whether a convolution, ReLU and max-pooling of such may be one Triton kernel.
    """

    dtype: torch.dtype
    stacked: bool = False
    fused: bool = False


Apply = Callable[[nn.Module, str, Tensors, Tensor, How], Tensor]


class CannotPack(LabError):  # noqa: N818  (it is an answer, not a fault)
    """A model has a layer that is not known here; the sentence names it."""


def forward(module: nn.Module, prefix: str, tensors: Tensors, x: Tensor, how: How) -> Tensor:
    """What a module does, for M models.

    Args:
        module: whose kind and settings decide; its own parameters are not used.
        prefix: of its names in `tensors`.
        tensors: parameters and buffers by name, (M, ...); batch norm moves its buffers in place.
        x: (M, C, B, H, W), (B, M C, H, W) or (M, B, F).
        how: to compute products.
    """
    return _KNOWN[type(module)](module, prefix, tensors, x, how)


def knows(module: nn.Module) -> bool:
    """Whether all layers of a model are known here, and do what their kind does and no more."""
    own = vars(module)
    if type(module) not in _KNOWN or any(own.get(hooks) for hooks in _HOOKS) or "forward" in own:
        return False
    if isinstance(module, nn.Conv2d):
        plain = module.groups == 1 and module.dilation == (1, 1) and module.padding_mode == "zeros"
        return plain and not isinstance(module.padding, str)
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return module.output_size in (1, (1, 1))
    if isinstance(module, nn.Flatten):
        return (module.start_dim, module.end_dim) == (1, -1)
    if isinstance(module, nn.BatchNorm2d):
        return module.track_running_stats
    return all(knows(child) for child in module.children())


def _sequential(module: nn.Module, prefix: str, tensors: Tensors, x: Tensor, how: How) -> Tensor:
    # Not named_children, which gives a layer that stands in two places once.
    children = [(name, child) for name, child in module._modules.items() if child is not None]
    for k, ((_, one), (_, other)) in enumerate(itertools.pairwise(children)):
        if type(one) is nn.ReLU and type(other) is nn.MaxPool2d:
            # The larger of two numbers is the same before and after: fewer are left after.
            children[k : k + 2] = children[k + 1], children[k]
    while children:
        name, child = children[0]
        if how.fused and _fuses(x, [layer for _, layer in children[:3]]):
            from penex.lab.engine.packed_conv import conv_pool_relu

            weight, bias = (tensors[f"{prefix}{name}.{what}"] for what in ("weight", "bias"))
            x = conv_pool_relu(x.to(how.dtype), weight, bias)
            del children[:3]
        else:
            x = forward(child, f"{prefix}{name}.", tensors, x, how)
            del children[0]
    return x


def _fuses(x: Tensor, layers: list[nn.Module]) -> bool:
    """Whether layers are a convolution, max-pooling and ReLU as the Triton kernels know them."""
    from penex.lab.engine import packed_conv

    if [type(layer) for layer in layers] != [nn.Conv2d, nn.MaxPool2d, nn.ReLU] or x.dim() != 5:
        return False
    conv, pool = layers[:2]
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(pool, nn.MaxPool2d)
    return (
        (conv.kernel_size, conv.stride, conv.padding) == ((3, 3), (1, 1), (1, 1))
        and (conv.dilation, conv.groups, conv.padding_mode) == ((1, 1), 1, "zeros")
        and conv.bias is not None
        and (pool.kernel_size, pool.stride, pool.padding) in ((2, 2, 0), ((2, 2), (2, 2), (0, 0)))
        and (pool.dilation, pool.ceil_mode) == (1, False)
        and min(x.shape[3:]) >= 2
        and packed_conv.fits(conv.in_channels, conv.out_channels)
    )


def _basic_block(module: nn.Module, prefix: str, tensors: Tensors, x: Tensor, how: How) -> Tensor:
    assert isinstance(module, BasicBlock)
    body = forward(module.body, f"{prefix}body.", tensors, x, how)
    return torch.relu(body + forward(module.shortcut, f"{prefix}shortcut.", tensors, x, how))


def _conv(module: nn.Module, prefix: str, tensors: Tensors, x: Tensor, how: How) -> Tensor:
    assert isinstance(module, nn.Conv2d)
    dtype = how.dtype
    assert not isinstance(module.padding, str)
    (kh, kw), (sh, sw), (ph, pw) = module.kernel_size, module.stride, module.padding
    weight, bias = tensors[f"{prefix}weight"], tensors.get(f"{prefix}bias")
    if x.dim() == 4:
        flat_bias = None if bias is None else bias.flatten().to(dtype)
        if weight.numel() > x.numel():
            x = x.contiguous()  # the weights would be copied to the form of the images instead
        return nn.functional.conv2d(
            x.to(dtype),
            weight.flatten(0, 1).to(dtype),
            flat_bias,
            module.stride,
            module.padding,
            groups=len(weight),
        )
    models, channels, batch, height, width = x.shape
    out_h, out_w = (height + 2 * ph - kh) // sh + 1, (width + 2 * pw - kw) // sw + 1
    x = nn.functional.pad(x.to(dtype), (pw, pw, ph, ph)) if ph or pw else x.to(dtype)
    shifted = [
        x[..., i : i + sh * (out_h - 1) + 1 : sh, j : j + sw * (out_w - 1) + 1 : sw]
        for i in range(kh)
        for j in range(kw)
    ]
    columns = torch.stack(shifted, dim=2).view(models, channels * kh * kw, batch * out_h * out_w)
    flat = torch.bmm(weight.to(dtype).flatten(2), columns)
    image = flat.view(models, -1, batch, out_h, out_w)
    return image if bias is None else image + bias.to(dtype).view(models, -1, 1, 1, 1)


def _linear(module: nn.Module, prefix: str, tensors: Tensors, x: Tensor, how: How) -> Tensor:
    if x.dim() != 3:
        raise CannotPack("a Linear layer of images that are not flattened is not packed")
    weight, bias = tensors[f"{prefix}weight"].to(how.dtype), tensors.get(f"{prefix}bias")
    product = torch.bmm(x.to(how.dtype), weight.transpose(1, 2))
    return product if bias is None else product + bias.to(how.dtype).unsqueeze(1)


def _batch_norm(module: nn.Module, prefix: str, tensors: Tensors, x: Tensor, how: How) -> Tensor:
    assert isinstance(module, nn.BatchNorm2d)
    mean, var = tensors[f"{prefix}running_mean"], tensors[f"{prefix}running_var"]
    wide = x.to(mean.dtype)
    if wide.dim() == 4:  # to the other form and back: batch norm is a small part of the work
        models = len(mean)
        split = _apart(wide, models).permute(1, 2, 0, 3, 4)
        result = _batch_norm(module, prefix, tensors, split, how)
        return result.permute(2, 0, 1, 3, 4).flatten(1, 2)
    if module.training:
        count = wide[0, 0].numel()
        now_mean = wide.mean(dim=(2, 3, 4))
        now_var = wide.var(dim=(2, 3, 4), correction=0)
        with torch.no_grad():
            batches = tensors[f"{prefix}num_batches_tracked"].add_(1)
            share: float | Tensor | None = module.momentum
            if share is None:  # the mean over all batches so far
                share = batches.to(mean.dtype).reciprocal().unsqueeze(1)
            mean.lerp_(now_mean, share)
            var.lerp_(now_var * (count / max(count - 1, 1)), share)
    else:
        now_mean, now_var = mean, var
    spread = (now_var + module.eps).sqrt()
    scale = tensors[f"{prefix}weight"] / spread if module.affine else 1 / spread
    shift = -now_mean * scale
    if module.affine:
        shift = tensors[f"{prefix}bias"] + shift
    return wide * scale[:, :, None, None, None] + shift[:, :, None, None, None]


def _pool(module: nn.Module, prefix: str, tensors: Tensors, x: Tensor, how: How) -> Tensor:
    assert isinstance(module, nn.MaxPool2d)
    if x.dim() == 4:  # ten times faster in this form
        return module(x.contiguous(memory_format=torch.channels_last))  # type: ignore[no-any-return]
    flat = module(x.flatten(0, 1))
    return flat.view(*x.shape[:2], *flat.shape[1:])  # type: ignore[no-any-return]


def _mean_pool(module: nn.Module, prefix: str, tensors: Tensors, x: Tensor, how: How) -> Tensor:
    return x.mean(dim=(-2, -1), keepdim=True)


def _flatten(module: nn.Module, prefix: str, tensors: Tensors, x: Tensor, how: How) -> Tensor:
    if x.dim() == 3:
        return x
    if x.dim() == 4:
        models = len(next(iter(tensors.values())))
        return _apart(x, models).flatten(2).transpose(0, 1)
    return x.transpose(1, 2).flatten(2)


def _apart(x: Tensor, models: int) -> Tensor:
    """(B, M C, H, W) as (B, M, C, H, W)."""
    return x.view(len(x), models, -1, *x.shape[2:])


def _same(module: nn.Module, prefix: str, tensors: Tensors, x: Tensor, how: How) -> Tensor:
    result: Tensor = module(x)
    return result


def _zero_sum(module: nn.Module, prefix: str, tensors: Tensors, x: Tensor, how: How) -> Tensor:
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return torch.cat([wide, -wide.sum(-1, keepdim=True)], dim=-1)


_KNOWN: dict[type[nn.Module], Apply] = {
    nn.Sequential: _sequential,
    BasicBlock: _basic_block,
    nn.Conv2d: _conv,
    nn.Linear: _linear,
    nn.BatchNorm2d: _batch_norm,
    nn.MaxPool2d: _pool,
    nn.AdaptiveAvgPool2d: _mean_pool,
    nn.Flatten: _flatten,
    nn.ReLU: _same,
    nn.Identity: _same,
    Dropout: _same,
    ZeroSumHead: _zero_sum,
}
