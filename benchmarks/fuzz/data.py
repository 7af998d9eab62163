"""Damaged and odd data through `penex data check`, `penex predict` and `penex cache`.

Data that were changed are other data: a command may show other numbers, or refuse them in one
sentence. What lies in the cache was made by us: a change there makes no difference.
"""

import csv
import io
import os
import pickle
import random
import shutil
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.fuzz.campaign import Ending, Finding
from benchmarks.fuzz.commands import Said, check_tidy, penex
from benchmarks.fuzz.mutations import damage

_LABEL = "species"
_CELLS = (
    "1", "-2.5", "1e400", "1e38", "nan", "inf", "", " ", "?", "1_0", "\u0661", "0x10", "1,5",
    "NA", "a|b", "a", "\x1b[31m", "x" * 200_000, "\0", '"', "'", "\ufeff1", "+1", "1e-320", "-0",
    "true", "01", "1.0", "9" * 30, "\ud7ff", "\u2028",
)  # fmt: skip
_DTYPES = ("f2", "f4", "f8", "g", "i1", "i8", "u8", "?", "c8", "U2", "S2", ">f4", "M8[s]")
_FORMATS = ("png", "jpg", "gif", "bmp", "tiff", "webp")


class Data:
    """A table, arrays, images, archives and CIFAR's files, to be damaged in a copy."""

    def __init__(self, folder: Path) -> None:
        self._whole, self._copy = folder / "whole", folder / "copy"
        self._cache = Path(os.environ["PENEX_CACHE"])
        _write(self._whole)
        self._models: dict[str, Path] = {}
        for name in ("table.csv", "images"):
            words = ["--label-column", _LABEL] if name.endswith(".csv") else []
            train = ["--losses", "ce", "--seeds", 1, "--epochs", 1]
            said = penex(
                "compare", "--data", self._whole / name, *words, *train, "--out", folder / "runs"
            )
            assert said.code == 0, said.err
            self._models[name] = folder / "runs" / name.partition(".")[0]
        self._kept = folder / "cache"
        self._expected = {name: self._look(self._whole / name) for name in ("images", "images.zip")}
        shutil.copytree(self._cache, self._kept)

    def case(self, chance: random.Random) -> Ending:
        """Damage something, or make something odd, and have it read."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._whole, self._copy)
        what, said = "", None
        try:
            kind = chance.choice(["file", "file", "file", "table", "arrays", "cache"])
            if kind == "cache":
                return self._cached(chance)
            if kind == "table":
                name, what = "table.csv", _odd_table(self._copy / "table.csv", chance)
            elif kind == "arrays":
                name, what = "arrays.npz", _odd_arrays(self._copy / "arrays.npz", chance)
            else:
                files = sorted(path for path in self._copy.rglob("*") if path.is_file())
                path = chance.choice(files)
                name = path.relative_to(self._copy).parts[0]
                what = damage(path, chance)
            if name in self._models and chance.random() < 0.4:
                said = penex("predict", self._models[name], self._copy / name)
            else:
                said = self._look(self._copy / name)
            check_tidy(self._cache)
        except Finding as found:
            raise Finding(found.fault, f"{what}: {found}") from None
        if any(not (c.isprintable() or c == "\n") for c in said.out + said.err):
            raise Finding("silent difference", f"{what}: {said} steers a terminal")
        return "refused" if said.code == 2 else "harmless"

    def _cached(self, chance: random.Random) -> Ending:
        """Damage the cache: `cache check` says so, and `data check` sees what it saw."""
        shutil.rmtree(self._cache)
        shutil.copytree(self._kept, self._cache)  # the times of its files are kept
        files = sorted(path for path in self._cache.rglob("*") if path.is_file())
        path = chance.choice(files)
        before = path.read_bytes()
        what = damage(path, chance)
        changed = not path.is_file() or path.read_bytes() != before
        said = penex("cache", "check")
        if changed and said.code == 0 and path.name != "entry.json":
            raise Finding("silent difference", f"cache, {what}: {said.out}")
        if chance.random() < 0.3:
            penex("cache")
        name = chance.choice(sorted(self._expected))
        now = self._look(self._whole / name)
        if now[:2] != self._expected[name][:2]:  # what it says besides is how long it took
            raise Finding("silent difference", f"cache, {what}: {now.out}")
        check_tidy(self._cache)
        return "refused" if said.code == 2 else "harmless"

    def _look(self, path: Path) -> Said:
        words = ["--label-column", _LABEL] if path.suffix == ".csv" else []
        return penex("data", "check", path, *words)


def _write(folder: Path) -> None:
    """Small data of every kind that is read."""
    folder.mkdir()
    chance = np.random.default_rng(0)
    pixels = chance.integers(0, 256, (36, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(36) % 3
    write_table(folder / "table.csv", [[*row, "abc"[k % 3]] for k, row in enumerate(_cells(36))])
    np.savez(folder / "arrays.npz", x=pixels, y=labels)
    for k, image in enumerate(pixels):
        place = folder / "images" / "abc"[k % 3] / f"{k}.{_FORMATS[k % len(_FORMATS)]}"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place)
    with zipfile.ZipFile(folder / "images.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((folder / "images").rglob("*.*")):
            archive.write(path, path.relative_to(folder / "images"))
    with tarfile.open(folder / "images.tar.gz", "w:gz") as tape:
        tape.add(folder / "images", "images")
    cifar = folder / "cifar"
    cifar.mkdir()
    rows = chance.integers(0, 256, (40, 3072), dtype=np.uint8)
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        content = {"data": rows, "labels": [k % 10 for k in range(40)]}
        (cifar / name).write_bytes(pickle.dumps(content, protocol=2))


def _cells(rows: int) -> list[list[str]]:
    chance = random.Random(0)
    return [[f"{chance.gauss(0, 1):.4f}", f"{chance.gauss(0, 1):.4f}"] for _ in range(rows)]


def write_table(path: Path, rows: list[list[str]], delimiter: str = ",") -> None:
    """A table with two columns of numbers and one of classes."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(["length", "width", _LABEL])
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8", errors="surrogatepass", newline="")


def _odd_table(path: Path, chance: random.Random) -> str:
    """A table with some odd cells."""
    rows = [[*row, "abc"[k % 3]] for k, row in enumerate(_cells(36))]
    if chance.random() < 0.3:
        rows = [[*row[:2], str(k % 3)] for k, row in enumerate(rows)]
    odd = [chance.choice(_CELLS) for _ in range(chance.randint(1, 3))]
    everywhere = chance.random() < 0.2
    for cell in odd:
        place = chance.randrange(3)
        for row in rows if everywhere else [chance.choice(rows)]:
            row[place] = cell
    delimiter = chance.choice(",;\t")
    write_table(path, rows, delimiter)
    return f"a table with {[cell[:20] for cell in odd]} by {delimiter!r}"


def _odd_arrays(path: Path, chance: random.Random) -> str:
    """Arrays of odd kinds, shapes and values."""
    random_numbers = np.random.default_rng(chance.getrandbits(32))
    shape = chance.choice(
        [(30,), (30, 4), (30, 8, 8), (30, 1, 8, 8), (30, 8, 8, 4), (30, 0), (0, 4)]
    )
    shape = chance.choice([shape, shape, (30, 2, 3, 4, 5), ()])
    kind, target = chance.choice(_DTYPES), chance.choice(_DTYPES)
    x: Any = random_numbers.integers(0, 100, shape)
    y: Any = np.arange(30) % 3 - chance.choice([0, 0, 1])
    with warnings.catch_warnings():  # numpy's, on what is made odd here
        warnings.simplefilter("ignore")
        x, y = x.astype(kind), y.astype(target)
        if x.size and x.dtype.kind == "f" and chance.random() < 0.3:
            x.flat[0] = chance.choice([np.nan, np.inf, -np.inf, 6e4])
        if y.dtype.kind == "f" and chance.random() < 0.3:
            y[0] = chance.choice([np.nan, np.inf, 0.5, 2.0**60, -0.0])
    if chance.random() < 0.2:
        y = chance.choice([y[:, None], y[:29], y[:0], np.eye(3)[np.arange(30) % 3], y[None], y[0]])
    if x.ndim > 1 and chance.random() < 0.2:
        x = np.asfortranarray(x)
    more: dict[str, Any] = {}
    if chance.random() < 0.3:
        more = {"x_test": x, "y_test": y}
    if chance.random() < 0.2:
        more["class_names"] = np.array(chance.choice([["a", "b", "c"], ["a", "a"], [1, 2, 3], []]))
    np.savez(path, x=x, y=y, **more)
    return f"x {x.dtype} {x.shape}, y {y.dtype} {y.shape}, {sorted(more)}"
