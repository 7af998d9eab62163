"""A user's own arrays and the official files: what is read, and what is refused."""

import csv
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penex.lab.data import arrays, catalogue, cifar, sizes
from penex.lab.data.observed import observations
from penex.lab.data.read import read
from penex.lab.ground.errors import LabError

from own_files import cifar_images, npz, refuses, run, write_cifar10


@pytest.mark.parametrize(
    ("x", "shape"),
    [
        (np.zeros((12, 9, 9), np.uint8), (1, 9, 9)),
        (np.zeros((12, 9, 8, 3), np.uint8), (3, 9, 8)),
        (np.zeros((12, 3, 9, 8), np.float64), (3, 9, 8)),
        (np.zeros((12, 5), np.int32), (5,)),
    ],
)
def test_arrays_of_any_layout(
    x: np.ndarray[Any, Any], shape: tuple[int, ...], tmp_path: Path
) -> None:
    path = npz(x=x, y=np.arange(12) % 2)(tmp_path)
    found = read(path).train.inputs
    assert tuple(found.shape[1:]) == shape
    assert found.dtype == (torch.uint8 if x.dtype == np.uint8 else torch.float32)


def test_named_parts_and_classes(tmp_path: Path) -> None:
    path = npz(
        x_train=np.random.default_rng(0).random((20, 4)),
        y_train=np.array(["b", "a"] * 10),
        x_test=np.zeros((4, 4)),
        y_test=np.array(["a", "b"] * 2),
    )(tmp_path)
    collection = read(path)
    assert collection.classes == ("a", "b")
    assert collection.test is not None
    assert collection.test.targets.tolist() == [0, 1, 0, 1]
    named = npz(x=np.zeros((10, 4)), y=np.arange(10) % 2, class_names=np.array(["no", "yes"]))
    assert read(named(tmp_path)).classes == ("no", "yes")


def test_names_in_bytes_are_read(tmp_path: Path) -> None:
    names = np.array(["hé".encode(), b"b"] * 6)
    np.savez(tmp_path / "n.npz", x=np.random.default_rng(0).random((12, 3)), y=names)
    assert read(tmp_path / "n.npz").classes == ("b", "hé")


def test_inputs_without_labels_are_said(tmp_path: Path) -> None:
    path = npz(x=np.zeros((20, 3)), y=np.arange(20) % 2, x_test=np.zeros((3, 3)))(tmp_path)
    assert read(path).notes == ("x_test is left out: x_test and y_test go together.",)


def test_parts_of_other_scales_are_refused_or_noted(tmp_path: Path) -> None:
    """Bytes beside numbers from 0 to 1 are a mistake; where both are floats it is not as sure."""
    x = np.random.default_rng(0).integers(256, size=(20, 6, 6), dtype=np.uint8)
    y, small = np.arange(20) % 2, x.astype(np.float32) / 255
    for train, test in ((small, x), (x, small), (small, x.astype(np.int64))):
        path = npz(x_train=train, y_train=y, x_test=test, y_test=y)(tmp_path)
        with pytest.raises(LabError, match="one scale"):
            read(path)
    for test, notes in ((small, 0), (small * 3, 0), (255 * small, 1)):
        path = npz(x_train=small, y_train=y, x_test=test, y_test=y)(tmp_path)
        assert len(read(path).notes) == notes


def test_the_parts_of_arrays_have_one_precision(tmp_path: Path) -> None:
    """The training part's need decides; a column that never changes needs no digits."""
    random = np.random.default_rng(0)
    x = random.random((20, 2))
    x[:, 1] = 0.1
    y = np.arange(20) % 2
    for offset, expected in ((0.0, torch.float32), (1.7e9, torch.float64)):
        path = npz(x_train=x + offset, y_train=y, x_test=x[:2] + offset, y_test=y[:2])(tmp_path)
        parts = read(path).parts
        assert {part.inputs.dtype for part in parts.values()} == {expected}


def test_one_row_of_arrays_is_predicted_with_its_digits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single row shows no spread by which to judge: it stays in float64."""
    x = 1.7e9 + 100.0 * (np.arange(90) % 3)[:, None] + np.arange(90)[:, None] / 10
    path = npz(x=x, y=np.arange(90) % 3)(tmp_path)
    run("train", "--data", path, "--loss", "ce", "--out", tmp_path / "out")
    np.save(tmp_path / "one.npy", x[1:2])
    capsys.readouterr()
    run("predict", next((tmp_path / "out").glob("*/ce/*/seed-0")), tmp_path / "one.npy")
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["class"] == "1"
    assert float(row["confidence"]) > 0.9


def test_class_indices_need_no_order() -> None:
    classes, indices = arrays.class_indices(
        {"train": np.array([7, 3, 7]), "test": np.array([3])}, Path("x")
    )
    assert classes == ("3", "7")
    assert indices["test"].tolist() == [0]


def test_copies_and_imbalance_are_seen(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.random((60, 4)).astype(np.float32)
    y = np.array([0] * 54 + [1] * 6)
    x[1] = x[0]
    tested = np.concatenate([x[:3], random.random((7, 4)).astype(np.float32)])
    path = npz(x_train=x, y_train=y, x_test=tested, y_test=np.arange(10) % 2)(tmp_path)
    said = list(observations(read(path)))
    assert any("0 has 54 examples, 1 6." in s and "--class-weights balanced" in s for s in said)
    assert "1 examples of train are exact copies of others there." in said
    assert "3 examples of test are in train too, exactly." in said


def test_a_rare_class_is_trained_on(tmp_path: Path) -> None:
    from penex.lab.data.split import split

    labels = np.array([0] * 900 + [1] * 6)
    collection = read(npz(x=np.random.default_rng(0).random((906, 2)), y=labels)(tmp_path))
    for seed in range(20):
        small, large = (split(collection, seed, size) for size in (60, 200))
        assert set(small.train.targets.tolist()) == {0, 1}
        assert set(small.train.index.tolist()) <= set(large.train.index.tolist())


def test_cifar10_files_give_the_known_arrays(tmp_path: Path) -> None:
    rows = write_cifar10(tmp_path / "cifar-10-batches-py")
    collection = read(tmp_path)
    assert torch.equal(collection.train.inputs.flatten(1), torch.from_numpy(rows[:50]))
    assert collection.test is not None
    assert torch.equal(collection.test.inputs.flatten(1), torch.from_numpy(rows[50:]))
    assert collection.train.targets.tolist() == list(range(10)) * 5
    assert collection.classes[:2] == ("airplane", "automobile")
    assert "is not the published one" in collection.notes[0]
    assert collection.facts["md5"].keys() == {f"data_batch_{k}" for k in range(1, 6)} | {
        "test_batch"
    }


def test_cifar100_files_give_the_known_arrays(tmp_path: Path) -> None:
    rows = cifar_images(1500, 1)
    for name, part in (("train", rows[:1000]), ("test", rows[1000:])):
        content = {
            b"fine_labels": [k % 100 for k in range(len(part))],
            b"coarse_labels": [k % 20 for k in range(len(part))],
            b"data": part,
        }
        (tmp_path / name).write_bytes(pickle.dumps(content, protocol=2))
    meta = {
        b"fine_label_names": [b"f%d" % k for k in range(100)],
        b"coarse_label_names": [b"c%d" % k for k in range(20)],
    }
    (tmp_path / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    collection = read(tmp_path)
    assert torch.equal(collection.train.inputs.flatten(1), torch.from_numpy(rows[:1000]))
    assert len(collection.classes) == 100
    coarse = cifar.read_cifar100(tmp_path, coarse=True)
    assert coarse.classes[19] == "c19"
    assert int(coarse.train.targets.max()) == 19


@pytest.mark.parametrize("harm", ["missing", "cut", "shape", "list"])
def test_damaged_cifar_files_are_one_sentence(harm: str, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    path = folder / "data_batch_3"
    if harm == "missing":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    elif harm == "shape":
        path.write_bytes(pickle.dumps({"data": np.zeros((2, 3), np.uint8), "labels": [0, 1]}))
    else:
        path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(LabError, match="data_batch_3"):
        read(folder)


def test_medmnist_files_give_the_known_arrays(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    parts = {}
    for name, count in (("train", 90), ("val", 18), ("test", 27)):
        parts[f"{name}_images"] = random.integers(0, 256, (count, 28, 28, 3), dtype=np.uint8)
        parts[f"{name}_labels"] = (np.arange(count) % 9).astype(np.uint8)[:, None]
    path = tmp_path / "pathmnist.npz"
    np.savez(path, allow_pickle=False, **parts)
    collection = read(path)
    expected = torch.from_numpy(parts["train_images"]).permute(0, 3, 1, 2)
    assert torch.equal(collection.train.inputs, expected)
    assert collection.val is not None
    assert collection.val.targets.tolist() == [k % 9 for k in range(18)]
    assert collection.classes[0] == "adipose"
    assert collection.facts["licence"] == "CC BY 4.0"
    assert "pathmnist.npz is not the published one" in collection.notes[0]
    parts = {k: v[:0] if k.startswith("val") else v for k, v in parts.items()}
    np.savez(path, allow_pickle=False, **parts)
    assert read(path).val is None  # the published subset of the paper has none


def test_the_catalogue_is_complete() -> None:
    sets = catalogue.official()
    assert len(sets) == 6 + 12 * 4
    assert sets["cifar10"].md5 == "c58f30108f718f92721af3b95e74349a"
    assert sets["pathmnist"].md5 == "a8b06965200029087d5bd730944a56c1"
    assert all(len(entry.md5 or "0" * 32) == 32 for entry in sets.values())
    assert all(entry.url.startswith("http") and entry.licence for entry in sets.values())
    with pytest.raises(LabError, match="did you mean 'pathmnist_64'"):
        catalogue.find("pathmnist64")


class Evil:
    def __reduce__(self) -> Any:
        return (os.system, ("touch escaped",))


def cut_npz(root: Path) -> Path:
    path = npz(x=np.zeros((20, 4)), y=np.arange(20) % 2)(root)
    path.write_bytes(path.read_bytes()[:200])
    return path


def single_array(root: Path) -> Path:
    np.save(root / "data.npy", np.zeros(3))
    return (root / "data.npy").rename(root / "data.npz")


def evil_pickle(root: Path) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for name in ("data_batch_1", "batches.meta"):
        (folder / name).write_bytes(pickle.dumps({"data": Evil()}, protocol=2))
    return folder


def official_cifar(root: Path) -> Path:
    write_cifar10(root / "cifar-10-batches-py")
    return root


def pointer_pickle(root: Path) -> Path:
    """numpy's own types would take these eight bytes for the address of an object."""
    folder = root / "cifar-10-batches-py"
    write_cifar10(folder)
    build = (
        b"\x80\x02}(X\x04\x00\x00\x00datacnumpy\n_reconstruct\nq\x00"
        b"0cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
        b"(K\x01(K\x01tcnumpy\ndtype\n(U\x02V8K\x00K\x01tR(K\x03U\x01|N(U\x01atq\x02"
        b"}U\x01a(cnumpy\ndtype\n(U\x02O8K\x00K\x01tRK\x00tsK\x08K\x01K\x00tb"
        b"\x89U\x08AAAAAAAAtbX\x06\x00\x00\x00labels]K\x00au."
    ).replace(b"cnumpy\n_reconstruct\nq\x000", b"")
    (folder / "data_batch_1").write_bytes(build)
    return folder


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (npz(x=np.zeros((4, 3))), [], "needs the arrays x and y"),
        (npz(x=np.zeros((4, 3)), y=np.zeros(5)), [], "train has 4 inputs but 5 labels"),
        (
            npz(x=np.zeros((4, 3)), y=np.zeros(0), class_names=np.array(["a", "b"])),
            [],
            "train has 4 inputs but 0 labels",
        ),
        (npz(x=np.zeros((4, 3, 2, 2, 2)), y=np.zeros(4)), [], "they are (4, 3, 2, 2, 2)"),
        (npz(x=np.zeros((4, 3)), y=np.zeros((4, 14))), [], "several labels an example"),
        (npz(x=np.zeros((4, 3)), y=np.array([{}] * 4)), [], "an array of Python objects"),
        (npz(x=np.full((4, 3), np.nan), y=np.arange(4)), [], "a number that is not finite"),
        (npz(x=np.array(["a"] * 4), y=np.arange(4)), [], "must be numbers"),
        (npz(x=np.zeros((4, 3)), y=np.array([0.5] * 4)), [], "whole numbers or names"),
        (npz(x=np.zeros((4, 3)), y=np.array([np.inf] * 4)), [], "whole numbers or names"),
        (npz(x=np.float64(3), y=np.arange(4)), [], "has no training examples"),
        (npz(x=np.zeros((4, 0)), y=np.arange(4)), [], "they are (4, 0)"),
        (npz(x=np.full((4, 3), 1e300), y=np.arange(4)), [], "not finite in float32"),
        (npz(x=np.zeros((4, 3)), y=np.arange(4), class_names=np.array(["a"])), [],
         "class_names must have a different name for each label"),
        (npz(x=np.zeros((4, 3)), y=np.arange(4) - 1, class_names=np.array(list("abcd"))), [],
         "labels go from -1 to 2"),
        (npz(x=np.zeros((4, 3)), y=np.array([0, 1e300, 0, 2e300])), [], "between -2^53 and 2^53"),
        (npz(x=np.zeros((4, 3)), y=np.arange(4, dtype=np.uint64) + 2**63), [], "-2^53 and 2^53"),
        (npz(x=np.zeros((4, 3)), y=np.array([b"a", b"\xe9"] * 2)), [], "is not text in UTF-8"),
        (npz(x=np.zeros((4, 3)), y=np.arange(4), class_names=np.array([b"\xff"] * 4)), [],
         "is not text in UTF-8"),
        (npz(x=np.zeros((4, 3)), y=np.arange(4)), ["--label-column", "y"], "is for a .csv"),
        (npz(x=np.zeros((4, 3)), y=np.arange(4)), ["--image-size", "16"], "is for image files"),
        (official_cifar, ["--image-size", "16"], "holds CIFAR's arrays"),
        (single_array, [], "it is a single array"),
        (pointer_pickle, [], "is not one of CIFAR's files"),
        (cut_npz, [], "truncated or no .npz file"),
        (evil_pickle, [], "which no data set needs"),
    ],
)  # fmt: skip
def test_one_sentence_and_exit_code_2(
    make: Callable[[Path], Path],
    options: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refuses(make(tmp_path), options, words, tmp_path, capsys)


# Sizes and headers that lie.


def zipped_arrays(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def header(shape: tuple[int, ...], kind: str = "|u1") -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"shape": shape, "fortran_order": False, "descr": kind}
    )
    return buffer.getvalue()


def test_arrays_that_become_much_larger_are_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sizes, "UNASKED", 100_000)
    x = np.zeros((20, 20_000), np.uint8)
    np.savez_compressed(tmp_path / "x.npz", x=x, y=np.arange(20) % 2)
    run("data", "check", tmp_path / "x.npz", code=2)
    said = capsys.readouterr().err
    assert "--allow-large" in said
    assert "400 KB" in said
    run("data", "check", tmp_path / "x.npz", "--allow-large")


def test_a_header_that_lies_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numpy would take all of the memory that a header names before it reads a byte."""
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("it is read"))
    path = zipped_arrays(tmp_path / "x.npz", x=header((7 << 30, 4)) + bytes(8), y=header((2,)))
    with pytest.raises(LabError, match="but has 8"):
        read(path)


def test_a_member_that_is_no_array_is_one_sentence(tmp_path: Path) -> None:
    path = zipped_arrays(tmp_path / "x.npz", x=b"hello", y=header((2,)) + bytes(2))
    with pytest.raises(LabError, match=r"truncated or no \.npz"):
        read(path)


def test_one_of_each_row_is_a_class_in_another_form(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"save y.argmax\(axis=1\)"):
        read(npz(x=np.zeros((6, 3)), y=np.eye(3, dtype=int)[[0, 1, 2] * 2])(tmp_path))


@pytest.mark.parametrize("label", [10**30, 1000, -1])
def test_a_label_that_no_cifar_file_has_is_one_sentence(tmp_path: Path, label: int) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    rows = write_cifar10(folder)
    content = {b"data": rows[:2], b"labels": [0, label]}
    (folder / "data_batch_2").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(LabError, match="is not one of CIFAR's files"):
        read(folder)


def test_class_names_that_are_there_twice_are_told_when_read(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"a"] * 10}, protocol=2))
    with pytest.raises(LabError, match="Two classes are named 'a'"):
        read(folder)


def test_names_that_are_not_needed_are_said(tmp_path: Path) -> None:
    names = np.array(["b", "a"])
    x = np.random.default_rng(0).random((12, 2))
    collection = read(npz(x=x, y=np.array(["a", "b"] * 6), class_names=names)(tmp_path))
    assert collection.classes == ("a", "b")
    assert collection.notes == ("class_names is left out: the labels are names already.",)


def test_a_text_is_no_array_of_objects(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_text("hello")
    with pytest.raises(LabError, match=r"truncated or no \.npz file"):
        read(tmp_path / "x.npz")


def test_a_class_needs_a_name(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="has no name that can be read"):
        read(npz(x=np.zeros((12, 2)), y=np.array(["", "b"] * 6))(tmp_path))
