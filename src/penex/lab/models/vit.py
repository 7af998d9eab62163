"""Vision transformers: ViT-Base as the paper's appendix has it, and smaller ones.

The appendix prints "Add & Layer Norm" after each part and no norm at the end. ViT-Base, which it
says it is, normalises before each part and once at the end; so does this one.

    image (3, 224, 224) -> patches 16 x 16 -> (196, 768) -> class token first (197, 768)
    -> plus a learned place -> dropout 0.1
    -> 12 times: x + attention(norm x), 12 heads of 64; x + MLP(norm x), 3072 wide, dropout 0.1
    -> norm -> the class token (768) -> linear (classes)
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from penex.lab.ground.errors import LabError
from penex.lab.models.layers import Blocks, Dropout

_HEAD = 64  # the width of a head
_SPREAD = 0.02  # of initial weights, as ViT's authors have it
_EPS = 1e-6  # of their layer norms


class Attention(nn.Module):
    """Multi-head self-attention: every token asks all of them.

    Args:
        width: of a token.
        heads: how many; each is width / heads wide.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """softmax(q k^T / sqrt(width of a head)) v of every head, side by side, mixed."""
        b, n, width = x.shape
        each = width // self.heads
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, each).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v)
        mixed: Tensor = self.out(seen.transpose(1, 2).reshape(b, n, width))
        return mixed


class Block(nn.Module):
    """Attention and an MLP, each on normalised tokens and added to what came in.

    Args:
        width: of a token.
        heads: of the attention.
        dropout: the probability after each layer of the MLP.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width, _EPS), Attention(width, heads))
        self.mlp = nn.Sequential(
            nn.LayerNorm(width, _EPS),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            Dropout(dropout),
            nn.Linear(4 * width, width),
            Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        """X + attention, and that plus MLP."""
        x = x + self.attention(x)
        result: Tensor = x + self.mlp(x)
        return result


class VisionTransformer(nn.Module):
    """A vision transformer.

    Args:
        shape: (channels, height, width) of an image.
        n_out: the number of logits.
        patch: the side of a patch, of which both sides of the image are multiples.
        width: of a token.
        depth: the number of blocks.
        heads: of the attention; they divide the width.
        dropout: after the places are added, and in the MLPs.
    """

    def __init__(
        self,
        shape: Sequence[int],
        n_out: int,
        *,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        tokens = (shape[1] // patch) * (shape[2] // patch) + 1
        self.patches = nn.Conv2d(shape[0], width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, tokens, width))
        self.dropout = Dropout(dropout)
        self.blocks = Blocks(*(Block(width, heads, dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, _EPS)
        self.head = nn.Linear(width, n_out)
        for parameter in (self.token, self.places):
            nn.init.trunc_normal_(parameter, std=_SPREAD)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=_SPREAD)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """The logits of (B, channels, height, width) images."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1).to(x.dtype), x], dim=1)
        x = self.blocks(self.dropout(x + self.places))
        logits: Tensor = self.head(self.norm(x)[:, 0])
        return logits


def patch_of(side: int) -> int:
    """The side of a patch for images of a size: the paper's for large ones, less for small ones.

    >>> [patch_of(side) for side in (224, 160, 64, 32)]
    [16, 16, 8, 4]
    """
    return 16 if side >= 128 else 8 if side >= 48 else 4


def vit(shape: Sequence[int], n_out: int, *, width: int, depth: int) -> VisionTransformer:
    """A vision transformer with heads of 64 and patches that fit the image.

    Args:
        shape: (channels, height, width) of an image, both sides multiples of the patch's.
        n_out: the number of logits.
        width: of a token, a multiple of 64.
        depth: the number of blocks.
    """
    patch = patch_of(min(shape[1:])) if len(shape) == 3 else 0
    if not patch or min(shape[1:]) < 2 * patch or any(side % patch for side in shape[1:]):
        raise LabError(
            "A vision transformer needs images of shape (channels, height, width) whose sides are "
            "multiples of its patches: of 4 pixels, of 8 from 48 on, of 16 from 128 on; got "
            f"{tuple(shape)}."
        )
    heads = width // _HEAD
    return VisionTransformer(shape, n_out, patch=patch, width=width, depth=depth, heads=heads)


def vit_base(shape: Sequence[int], n_out: int) -> VisionTransformer:
    """ViT-Base: 12 blocks of width 768; with images of 224 pixels ViT-B/16, the paper's.

    It has 86,567,656 parameters for 1000 classes.
    """
    return vit(shape, n_out, width=768, depth=12)


def vit_small(shape: Sequence[int], n_out: int) -> VisionTransformer:
    """ViT-Small: 12 blocks of width 384, a quarter of ViT-Base's parameters."""
    return vit(shape, n_out, width=384, depth=12)


def vit_tiny(shape: Sequence[int], n_out: int) -> VisionTransformer:
    """ViT-Tiny: 12 blocks of width 192, a sixteenth of ViT-Base's parameters."""
    return vit(shape, n_out, width=192, depth=12)
