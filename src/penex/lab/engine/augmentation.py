"""Images changed at random while they are trained on, where they lie: flips and crops.

What is drawn is a function of seed, step and place in the batch (`ground.chance`): the same in one
process or several, alone or packed, and after a restart.
"""

import torch
from torch import Tensor

from penex.lab.engine.recipe import AUGMENTATIONS
from penex.lab.ground import chance

_STREAM = 104_729  # its draws are not those of a dropout, whose streams are multiples of 7919


class Augmentation:
    """Flips and crops for batches of images.

    Args:
        ways: of the recipe; none leaves the images alone.
        seed: int64, () or one for each model of a pack.
        count: the number of the step, which others change.
    """

    def __init__(self, ways: str, seed: Tensor, count: Tensor) -> None:
        self.ways = [way for way in AUGMENTATIONS if way in ways.split(",")]
        self.seed, self.count = seed + _STREAM, count
        # Of every size of batch, for good: a recorded step reads them where they lie.
        self._places: dict[tuple[int, int], Tensor] = {}

    def __call__(self, images: Tensor, first: int = 0) -> Tensor:
        """The images of a batch as they are trained on, (..., B, C, H, W).

        A flip mirrors left and right, half of the time; a crop moves the image by up to an eighth
        of its side each way, black coming in.

        Args:
            images: as they are stored.
            first: the number of the first row within the whole batch.
        """
        if not self.ways:
            return images
        rows = images.shape[self.seed.dim()]
        if (first, rows) not in self._places:
            self._places[first, rows] = chance.places(first, rows, 3, images.device)
        drawn = chance.uniform(self.seed, self.count, self._places[first, rows])
        drawn = drawn.view(*images.shape[:-3], 3)
        if "flip" in self.ways:
            mirrored = (drawn[..., 0] < 0.5).view(*images.shape[:-3], 1, 1, 1)
            images = torch.where(mirrored, images.flip(-1), images)
        if "crop" in self.ways:
            images = _moved(images, drawn[..., 1], -2)
            images = _moved(images, drawn[..., 2], -1)
        return images


def _moved(images: Tensor, drawn: Tensor, axis: int) -> Tensor:
    """Each image moved along an axis by a number of pixels that its draw decides."""
    side = images.shape[axis]
    most = side // 8
    offset = (drawn * (2 * most + 1)).long().clamp(max=2 * most) - most
    source = torch.arange(side, device=images.device) + offset.unsqueeze(-1)
    inside = (source >= 0) & (source < side)
    shape = [*images.shape[:-3], 1, *((side, 1) if axis == -2 else (1, side))]
    index = source.clamp(0, side - 1).view(shape).expand(images.shape)
    return images.gather(axis, index) * inside.view(shape).to(images.dtype)
