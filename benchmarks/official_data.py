"""Read the official data sets from a folder: counts, channel means, checksums.

Run it with `python -m benchmarks.official_data ROOT`, where ROOT holds cifar-10-batches-py,
cifar-100-python, pathmnist.npz and bbc, or some of them.
"""

import argparse
import time
from pathlib import Path

from penex.lab.data import Collection, Examples, bbc, channel_statistics
from penex.lab.data.read import read
from penex.lab.data.split import whole

# What is published: examples to train and test on, and the channel means of the training part in
# units of the brightest value (as everyone normalises CIFAR).
PUBLISHED: dict[str, tuple[int, int, tuple[float, ...]]] = {
    "cifar-10-batches-py": (50_000, 10_000, (0.4914, 0.4822, 0.4465)),
    "cifar-100-python": (50_000, 10_000, (0.5071, 0.4865, 0.4409)),
    "pathmnist.npz": (89_996, 7_180, ()),
}


def means(part: Examples) -> tuple[float, ...]:
    """The channel means from 0 to 1, in four digits."""
    mean, _ = channel_statistics(whole(part))
    return tuple(round(value / 255, 4) for value in mean.flatten().tolist())


def report(name: str, collection: Collection, seconds: float) -> None:
    """Print what was read beside what is published."""
    train, test, published = PUBLISHED[name]
    assert collection.test is not None
    print(f"{name}: read in {seconds:.1f} s, {len(collection.classes)} classes")
    print(f"  train {len(collection.train.targets):,} (published {train:,})")
    print(f"  test {len(collection.test.targets):,} (published {test:,})")
    print(f"  channel means {means(collection.train)} (published {published or 'none'})")
    for file, md5 in collection.facts["md5"].items():
        print(f"  {md5}  {file}")
    for note in collection.notes or ("every checksum is the published one",):
        print(f"  {note}")


def main() -> None:
    """Read what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    root = parser.parse_args().root
    for name in PUBLISHED:
        if (root / name).exists():
            began = time.perf_counter()
            collection = read(root / name)
            report(name, collection, time.perf_counter() - began)
    if bbc.is_bbc(root / "bbc"):
        texts = bbc.read(root / "bbc")
        print(f"bbc: {len(texts.kept)} different texts, {texts.copies} copies (2,225 published)")


if __name__ == "__main__":
    main()
