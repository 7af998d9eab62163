"""What a network sees of an image: a random crop while it trains, the middle when it is judged.

As the paper's appendix has it for ImageNet: the shorter side is brought to 256 pixels; a crop of
0.8 to 1.0 of the area, with sides in a ratio of 3:4 to 4:3, is brought to 224 x 224 and mirrored
half of the time. Judged is the 224 x 224 in the middle. For other sizes all in proportion.
"""

import math
import random

from PIL import Image

_SMOOTH = Image.Resampling.BILINEAR
_AREAS = (0.8, 1.0)
_RATIOS = (3 / 4, 4 / 3)
_TRIES = 10
_LONGEST = 16  # times the shorter side: a line of pixels would become gigabytes

Box = tuple[int, int, int, int]


def short_side(size: int) -> int:
    """What the shorter side of an image is brought to before crops of a size.

    >>> short_side(224), short_side(160), short_side(64)
    (256, 183, 73)
    """
    return round(size * 256 / 224)


def shortened(image: Image.Image, short: int) -> Image.Image:
    """An image with its shorter side brought to a length; a ValueError if it is a mere line."""
    width, height = image.size
    least = min(width, height)
    if max(width, height) > _LONGEST * least:
        raise ValueError(f"one side is more than {_LONGEST} times the other")
    return image.resize((width * short // least, height * short // least), _SMOOTH)


def judged(image: Image.Image, size: int, short: int) -> Image.Image:
    """The middle of an image, size x size, once its shorter side is `short`."""
    image = shortened(image, short)
    left, top = ((side - size) // 2 for side in image.size)
    return image.crop((left, top, left + size, top + size))


def trained(image: Image.Image, size: int, short: int, draws: random.Random) -> Image.Image:
    """A random crop of an image, size x size, mirrored half of the time.

    Args:
        image: in colours.
        size: of the crop, once it is scaled.
        short: what the shorter side is brought to first.
        draws: what chance decides.
    """
    mirrored = draws.random() < 0.5
    image = shortened(image, short)
    box = box_of(*image.size, draws)
    image = image.resize((size, size), _SMOOTH, box=box)
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else image


def box_of(width: int, height: int, draws: random.Random) -> Box:
    """A random box in an image: left, top, right, bottom.

    Its area is uniform in 0.8 to 1.0 of the image's, the logarithm of its ratio uniform too. Where
    ten such boxes do not fit, as in a long image, it is the largest one in the middle that is not
    longer than 4:3.
    """
    for _ in range(_TRIES):
        area = width * height * draws.uniform(*_AREAS)
        ratio = math.exp(draws.uniform(math.log(_RATIOS[0]), math.log(_RATIOS[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = draws.randint(0, width - w), draws.randint(0, height - h)
            return left, top, left + w, top + h
    w, h = min(width, round(height * _RATIOS[1])), min(height, round(width / _RATIOS[0]))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h
