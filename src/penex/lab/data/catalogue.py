"""The official data sets: where they come from, how to know them, what their licences say."""

import difflib
import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penex.lab.ground.errors import LabError

_ZENODO = "https://zenodo.org/records/10519652/files"
_SIZES = (28, 64, 128, 224)


@dataclass(frozen=True)
class Official:
    """A data set that others publish.

    Attributes:
        name: its name here.
        title: what it is.
        url: the file to get.
        file: the name of that file.
        md5: its published checksum; None if there is none.
        size: its size in bytes, where it is published.
        folder: what the file contains, if it is an archive; None if it is used as it is.
        licence: what its source says, and what the paper says where that differs.
        members: the published checksums of the files inside.
    """

    name: str
    title: str
    url: str
    file: str
    md5: str | None
    licence: str
    size: int | None = None
    folder: str | None = None
    members: dict[str, str] = field(default_factory=dict)


_NOISY = "https://github.com/UCSC-REAL/cifar-10-100n/raw/49df7d8a69e355470c77c1c2f2424916325a394b"
_VOTED = "https://github.com/jcpeterson/cifar-10h/raw/48da312b193b82e6939ec20f23d1f09cbdd849c8"
_CIFAR_LICENCE = "none stated (Krizhevsky, 2009); the paper says MIT"
_FIXED = (
    Official(
        "cifar10",
        "CIFAR-10: 60,000 images, 32 pixels, 10 classes",
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        _CIFAR_LICENCE,
        170_498_071,
        "cifar-10-batches-py",
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
    Official(
        "cifar100",
        "CIFAR-100: 60,000 images, 32 pixels, 100 classes",
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        "cifar-100-python.tar.gz",
        "eb9058c3a382ffc7106e4002c42a8d85",
        _CIFAR_LICENCE,
        169_001_437,
        "cifar-100-python",
        {
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
    ),
    Official(
        "bbc_news",
        "BBC News: 2,225 articles, 5 classes",
        "http://mlg.ucd.ie/files/datasets/bbc-fulltext.zip",
        "bbc-fulltext.zip",
        None,
        "texts copyright BBC, for research and no commerce; the paper says Apache 2.0",
        None,
        "bbc",
    ),
    Official(
        "cifar10n",
        "CIFAR-10N: labels that people gave to CIFAR-10's 50,000 training images",
        f"{_NOISY}/data/CIFAR-10_human.pt",
        "CIFAR-10_human.pt",
        "96644db5574813cae939af5f7f2a0aec",
        "CC BY-NC 4.0",
        2_401_007,
    ),
    Official(
        "cifar100n",
        "CIFAR-100N: labels that people gave to CIFAR-100's 50,000 training images",
        f"{_NOISY}/data/CIFAR-100_human.pt",
        "CIFAR-100_human.pt",
        "a67b45c1d7992051865b5c755bd68bb1",
        "CC BY-NC 4.0",
        1_000_959,
    ),
    Official(
        "cifar10h",
        "CIFAR-10H: some 50 people's votes for each of CIFAR-10's 10,000 test images",
        f"{_VOTED}/data/cifar10h-counts.npy",
        "cifar10h-counts.npy",
        "f1284b6fba48a67d3db69bbafb5685ad",
        "CC BY-NC-SA 4.0",
        800_128,
    ),
)


@functools.cache
def medmnist() -> dict[str, Any]:
    """What MedMNIST publishes of its 2-D sets: checksums by size, classes, counts, licences."""
    facts: dict[str, Any] = json.loads(Path(__file__).with_name("medmnist.json").read_text("utf-8"))
    return facts


@functools.cache
def official() -> dict[str, Official]:
    """Every data set that `penex data get` knows, by name."""
    sets = {entry.name: entry for entry in _FIXED}
    for name, facts in medmnist().items():
        for size in _SIZES:
            tail = "" if size == 28 else f"_{size}"
            counts = sum(facts["examples"].values())
            sets[name + tail] = Official(
                name + tail,
                f"MedMNIST {name}: {counts:,} images, {size} pixels, {len(facts['classes'])} "
                + ("labels, several an image" if "label" in facts["kind"] else "classes"),
                f"{_ZENODO}/{name}{tail}.npz?download=1",
                f"{name}{tail}.npz",
                facts["md5"][str(size)],
                facts["licence"],
            )
    return sets


def find(name: str) -> Official:
    """The entry of a name, or a LabError that suggests the nearest one.

    >>> find("pathmnist_64").file
    'pathmnist_64.npz'
    """
    sets = official()
    if name not in sets:
        near = difflib.get_close_matches(name, sets, n=1)
        hint = f"did you mean {near[0]!r}? All" if near else "all"
        raise LabError(f"There is no data set {name!r}; {hint} are in `penex data list`.")
    return sets[name]


def checksum_note(name: str, paths: Sequence[Path]) -> tuple[dict[str, str], str]:
    """The checksums of an official set's files, and a sentence if one is not the published one."""
    entry = official()[name]
    sums = {path.name: md5_of(path) for path in paths}
    expected = entry.members or ({entry.file: entry.md5} if entry.md5 else {})
    other = sorted(file for file, md5 in sums.items() if expected.get(file, md5) != md5)
    if not other:
        return sums, ""
    return sums, (
        f"The checksum of {', '.join(other)} is not the published one: another order or version "
        f"of {name}. It is recorded with every run."
    )


def md5_of(path: Path) -> str:
    """The MD5 sum of a file: what data sets publish; it protects from accidents only."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
