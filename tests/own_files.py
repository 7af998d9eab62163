"""Files of a user's own for the tests: tables, arrays, official sets; and the command on them."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penex import cli


def run(*arguments: object, code: int = 0) -> None:
    words = [str(argument) for argument in arguments]
    if code == 0:
        cli.main(words)
        return
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == code


def refuses(
    path: Path, options: list[str], words: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A comparison of these data is refused in one sentence, and nothing is written."""
    run("compare", "--data", path, *options, "--out", root / "out", code=2)
    text = capsys.readouterr().err.splitlines()[-1]
    assert text.startswith("penex: ")
    assert words in text
    assert not list(root.rglob("escaped*"))
    assert not (root / "out").exists()


GOOD = "".join(f"{k},{k % 3},{'yes' if k % 2 else 'no'}\n" for k in range(20))


def table(text: str) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        path = root / "data.csv"
        path.write_text(text)
        return path

    return write


def npz(**content: Any) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        np.savez(root / "data.npz", **content)
        return root / "data.npz"

    return write


def write_times(path: Path, count: int = 90) -> Path:
    """A column of seconds since 1970 that tells three classes apart, and float32 cannot hold."""
    times = [1_700_000_000 + 50 * (k % 3) + k // 3 for k in range(count)]
    rows = "".join(f"{time},{k % 5},c{k % 3}\n" for k, time in enumerate(times))
    path.write_text("time,other,species\n" + rows)
    return path


def cifar_images(count: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def write_cifar10(folder: Path) -> np.ndarray[Any, Any]:
    folder.mkdir(parents=True)
    rows = cifar_images(60, 0)
    for k in range(6):
        name = f"data_batch_{k + 1}" if k < 5 else "test_batch"
        content = {
            b"batch_label": b"x",
            b"labels": [j % 10 for j in range(10)],
            b"data": rows[10 * k : 10 * k + 10],
            b"filenames": [b"x.png"] * 10,
        }
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    names = [b"airplane", b"automobile", *[b"c%d" % k for k in range(8)]]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=2))
    return rows
