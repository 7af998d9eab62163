"""Tiny files of noise in the official formats, to try everything on."""

import pickle
from pathlib import Path

import numpy as np


def write_stand_ins(folder: Path) -> None:
    """Write them for every task of the main table."""
    random = np.random.default_rng(0)

    def cifar(path: Path, count: int, label: str, classes: int) -> None:
        content = {
            "data": random.integers(0, 256, (count, 3072), dtype=np.uint8),
            label: [k % classes for k in range(count)],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(content, protocol=2))

    ten, hundred = folder / "cifar-10-batches-py", folder / "cifar-100-python"
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        cifar(ten / name, 20, "labels", 10)
    cifar(hundred / "train", 200, "fine_labels", 100)
    cifar(hundred / "test", 100, "fine_labels", 100)
    meta = {"fine_label_names": [f"class {k}" for k in range(100)]}
    (hundred / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    arrays = {}
    for part, count in (("train", 54), ("val", 9), ("test", 36)):
        arrays[f"{part}_images"] = random.integers(0, 256, (count, 28, 28, 3), dtype=np.uint8)
        arrays[f"{part}_labels"] = (np.arange(count) % 9).astype(np.uint8)[:, None]
    np.savez_compressed(folder / "pathmnist.npz", allow_pickle=False, **arrays)


def write_people(folder: Path) -> None:
    """Write labels that people might have given to the stand-ins of CIFAR, one in seven wrong."""
    people = {10: ("aggre_label", "random_label1", "worse_label"), 100: ("noisy_label",)}
    (folder / "human").mkdir(exist_ok=True)
    for classes, kinds in people.items():
        clean = np.tile(np.arange(20), 5) % 10 if classes == 10 else np.arange(200) % 100
        given = {kind: (clean + (np.arange(len(clean)) % 7 == 0)) % classes for kind in kinds}
        path = folder / "human" / f"cifar{classes}n.npz"
        np.savez_compressed(path, allow_pickle=False, clean_label=clean, **given)
