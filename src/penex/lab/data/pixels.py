"""One image file: its pixels in a common form, or a word on why there are none."""

import functools
import io
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from penex.lab.data import crops

_SMOOTH = Image.Resampling.BICUBIC

# What Pillow reads by itself: for others, PostScript among them, it starts programs that it finds.
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "DIB", "TIFF", "WEBP", "AVIF", "JPEG2000", "PPM", "TGA")

Array = np.ndarray[Any, Any]


@functools.cache
def formats() -> tuple[str, ...]:
    """The formats that are read: those that this Pillow was built with."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


@functools.cache
def suffixes() -> frozenset[str]:
    """How the names of image files end, in small letters."""
    known = {*formats(), "MPO"}  # a JPEG with more pictures behind the first
    return frozenset(end for end, name in Image.registered_extensions().items() if name in known)


def open_image(file: Path | io.BytesIO) -> Image.Image:
    """An image file, not yet decoded; one that is none of our formats by its content is refused."""
    return Image.open(file, formats=formats())


def decode(
    content: bytes, size: int, short: int | None = None
) -> tuple[Array, bool, tuple[int, int]]:
    """An image file as (3, size, size) uint8, whether it is grey, and its own width and height.

    Turned as its EXIF orientation says, transparency on white, the middle cut out as a square.

    Args:
        content: of the file.
        size: the side of the square.
        short: what the shorter side is brought to first; None for the size.
    """
    with _unwarned(), open_image(io.BytesIO(content)) as opened:
        return *prepared(opened, opened.format, size, short), opened.size


def seen(content: bytes, size: int, draws: random.Random | None) -> Array:
    """What a network sees of an image file, (3, size, size) uint8: a random crop, or the middle.

    Args:
        content: of the file.
        size: of the crop.
        draws: what chance decides; None for the middle, as the network is judged.
    """
    short = crops.short_side(size)
    with _unwarned(), open_image(io.BytesIO(content)) as opened:
        if draws is None:
            return prepared(opened, opened.format, size, short)[0]
        image, _ = _coloured(opened, opened.format)
        return np.asarray(crops.trained(image, size, short, draws)).transpose(2, 0, 1)


def size_of(path: Path) -> tuple[int, int]:
    """The width and height that an image file says it has."""
    with _unwarned(), open_image(path) as opened:
        return opened.size


@contextmanager
def _unwarned() -> Iterator[None]:
    """What Pillow warns of is an error where it is a danger, else nobody's business."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="PIL")
        yield


def prepared(
    image: Image.Image, form: str | None, size: int, short: int | None = None
) -> tuple[Array, bool]:
    """An opened image, of a file in a form, as (3, size, size) uint8, and whether it is grey."""
    image, grey = _coloured(image, form)
    if short is None:
        image = ImageOps.fit(image, (size, size), _SMOOTH)
    else:
        image = crops.judged(image, size, short)
    return np.asarray(image).transpose(2, 0, 1), grey


def _coloured(image: Image.Image, form: str | None) -> tuple[Image.Image, bool]:
    """An opened image in colours, upright, on white; and whether it is grey."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":
        image = _eight_bits(image, form)
    grey = image.mode in ("1", "L", "LA", "La")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert("RGB"), grey


def _eight_bits(image: Image.Image, form: str | None) -> Image.Image:
    """A 16-bit grey image in 8 bits; Pillow alone would cut it off.

    Of 32 bits and of floating-point numbers nobody says what is white: guessing, image by image,
    would give the images of a set different scales.
    """
    # A PNG has no more than 16 bits, and a PPM is brought to 16 by Pillow, whatever is its white.
    sixteen = image.mode.startswith("I;16") or form in ("PNG", "PPM")
    if not sixteen:
        raise ValueError("its pixels are 32-bit numbers of unknown scale: save 8 or 16 bits")
    values = np.asarray(image, dtype=np.float64)
    return Image.fromarray((values / 65535 * 255).clip(0, 255).astype(np.uint8))


def with_channels(array: Array, channels: int, grey: bool) -> Array:
    """A decoded image with 1 or 3 channels: colours become their luminance."""
    if channels == 3:
        return np.ascontiguousarray(array)
    if grey:
        return np.ascontiguousarray(array[:1])
    return np.asarray(Image.fromarray(array.transpose(1, 2, 0)).convert("L"))[None].copy()


def reason(error: Exception) -> str:
    """Why an image cannot be read, in a few words."""
    text = str(error).split("<_io")[0].strip() or type(error).__name__
    if isinstance(error, Image.DecompressionBombWarning | Image.DecompressionBombError):
        return "it has too many pixels"
    if "cannot identify image file" in text:
        return "it is not an image"
    if "truncated" in text.lower():
        return "it is truncated"
    return text.splitlines()[0]
