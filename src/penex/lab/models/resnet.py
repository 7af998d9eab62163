"""ResNet-18 as the paper's appendix has it: for small images, without a pooling stem."""

from collections.abc import Sequence

from torch import Tensor, nn

from penex.lab.ground.errors import LabError

_WIDTHS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm, and a shortcut around them.

    Args:
        channels: of the input.
        width: of the output.
        stride: of the first convolution and of the shortcut.
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )
        self.out = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of body plus shortcut."""
        result: Tensor = self.out(self.body(x) + self.shortcut(x))
        return result


def resnet18(shape: Sequence[int], n_out: int) -> nn.Sequential:
    """A 3x3 convolution, four layers of two basic blocks, a global mean, one linear layer.

    Args:
        shape: (channels, height, width) of an image, 8 pixels or more each way.
        n_out: the number of logits.

    >>> sum(p.numel() for p in resnet18((3, 32, 32), 10).parameters())
    11173962
    """
    if len(shape) != 3 or min(shape[1:]) < 8:
        raise LabError(
            "ResNet-18 needs images of shape (channels, height, width), at least 8 pixels each "
            f"way; got {tuple(shape)}."
        )
    channels = _WIDTHS[0]
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
    ]
    for width in _WIDTHS:
        first = BasicBlock(channels, width, 1 if width == _WIDTHS[0] else 2)
        layers.append(nn.Sequential(first, BasicBlock(width, width, 1)))
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, n_out))
