"""The convolutional network of the paper's image experiments."""

from collections.abc import Sequence

from torch import nn

from penex.lab.ground.errors import LabError
from penex.lab.models.layers import Dropout

_WIDTHS = (32, 64, 128)
_HIDDEN = 256


def cnn(shape: Sequence[int], n_out: int, *, dropout: float = 0.5) -> nn.Sequential:
    """The network of the paper's appendix "Architectures", layer by layer, for any image size.

    Three times a 3x3 convolution, ReLU and 2x2 max-pooling, then dropout and two linear layers.
    The flattened size follows from the image: 2048 for 32 pixels, 8192 for 64, 128 for 8.

    Args:
        shape: (channels, height, width) of an image, 8 pixels or more each way.
        n_out: the number of logits.
        dropout: the probability before the first linear layer.

    >>> sum(p.numel() for p in cnn((3, 32, 32), 10).parameters())
    620362
    """
    if len(shape) != 3 or min(shape[1:]) < 2 ** len(_WIDTHS):
        raise LabError(
            "The CNN needs images of shape (channels, height, width), at least 8 pixels each way; "
            f"got {tuple(shape)}."
        )
    channels, height, width = shape
    layers: list[nn.Module] = []
    for filters in _WIDTHS:
        layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        channels, height, width = filters, height // 2, width // 2
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        Dropout(dropout),
        nn.Linear(channels * height * width, _HIDDEN),
        nn.ReLU(),
        nn.Linear(_HIDDEN, n_out),
    )
