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


def write_odd_folder(root: Path) -> Path:
    """Twelve classes, one of them empty, with everything that lies in such folders."""
    write_folder(root, 11, 6)
    (root / "class empty").mkdir()
    first = root / "class 0"
    (first / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no image follows")
    (first / "nothing.png").write_bytes(b"")
    (first / "notes.txt").write_text("not an image")
    (first / ".hidden.png").write_bytes(b"x")
    picture(0, 50).convert("L").save(first / "grey.png")
    picture(0, 51).convert("P").save(first / "palette.png")
    picture(0, 52).convert("CMYK").save(first / "cmyk.jpg")
    transparent = picture(0, 53).convert("RGBA")
    transparent.putalpha(128)
    transparent.save(first / "alpha.png")
    Image.new("RGB", (1, 1), "red").save(first / "pixel.png")
    Image.new("RGB", (10_000, 7), "red").save(first / "wide.png")
    Image.fromarray(np.full((30, 20), 40_000, dtype=np.uint16)).save(first / "sixteen.png")
    return root
