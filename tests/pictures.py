"""Real image files for the tests of own data: small, different, and told apart by their colour."""

from pathlib import Path

import numpy as np
from PIL import Image

_SUFFIXES = (".png", ".jpg", ".webp", ".bmp")


def picture(label: int, number: int, size: int = 24) -> Image.Image:
    """A noisy picture whose hue and stripes are its class's."""
    random = np.random.default_rng([label, number])
    base = np.zeros((size, size, 3))
    base[..., label % 3] = 80 + 40 * (label // 3)
    base[:: 2 + label % 4] += 60
    noisy = base + random.normal(0, 12, base.shape)
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def write_class(folder: Path, label: int, count: int, first: int = 0) -> None:
    """A class's folder with pictures in several formats."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        suffix = _SUFFIXES[number % len(_SUFFIXES)]
        picture(label, number).save(folder / f"{number:03}{suffix}")


def write_folder(root: Path, classes: int, count: int) -> Path:
    """A folder of images with one folder a class."""
    for label in range(classes):
        write_class(root / f"class {label}", label, count)
    return root
