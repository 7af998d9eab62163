"""A user's own data: what is read, what is left out and said, what is refused in one sentence."""

import csv
import dataclasses
import io
import json
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from penex import cli
from penex.cli.options import DataOptions
from penex.lab import models, tasks
from penex.lab.data import Collection, Data, arrays, catalogue, cifar, images, pixels
from penex.lab.data.noise import LabelNoise
from penex.lab.data.read import observations, read
from penex.lab.engine import seeds
from penex.lab.errors import LabError
from penex.lab.models import exported
from penex.lab.tasks.own import own, task_name

from pictures import picture, write_class, write_folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENEX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(*arguments: object, code: int = 0) -> None:
    words = [str(argument) for argument in arguments]
    if code == 0:
        cli.main(words)
        return
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == code


# A folder of images.


@pytest.fixture
def odd_folder(tmp_path: Path) -> Path:
    """Twelve classes, one of them empty, with everything that lies in such folders."""
    root = write_folder(tmp_path / "My Pictures", 11, 6)
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


def test_a_folder_with_everything_in_it_is_compared(
    odd_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("compare", "--data", odd_folder, "--losses", "ce", "penex", "--seeds", 2, "--epochs", 2,
        "--out", tmp_path / "out")  # fmt: skip
    shown = capsys.readouterr()
    assert "2 files are left out: class 0/broken.jpg (it is truncated)" in shown.err
    assert "class 0/nothing.png (the file is empty)" in shown.err
    assert "left out: the class class empty." in shown.err
    assert "1 files are no images" in shown.err
    assert "decoding: 75 images" in shown.err
    # 11 classes of 6, and 7 odd ones: 73; a fifth for testing, a fifth of the rest to validate.
    assert "my_pictures, 46 training examples, 2 seeds" in shown.out
    place = next((tmp_path / "out").glob("my_pictures/penex/*/seed-0"))
    card = json.loads((place / "model.json").read_text())
    assert card["classes"] == sorted(f"class {k}" for k in range(11))
    assert (card["model"], card["shape"]) == ("cnn", [3, 32, 32])
    assert len((place / "metrics.jsonl").read_text().splitlines()) == 2


def test_the_counts_are_right(odd_folder: Path) -> None:
    collection = read(odd_folder)
    counts = torch.bincount(collection.train.targets).tolist()
    names = collection.classes
    assert dict(zip(names, counts, strict=True)) == {
        "class 0": 13, **{f"class {k}": 6 for k in range(1, 11)}
    }  # fmt: skip
    assert collection.train.inputs.shape == (73, 3, 32, 32)
    assert collection.train.inputs.dtype == torch.uint8


def test_a_second_start_decodes_nothing(odd_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[int] = []
    first = read(odd_folder, progress=lambda done, total: ticks.append(done))
    assert ticks[-1] == 75
    monkeypatch.setattr(images, "decode", lambda *_: pytest.fail("it is in the cache"))
    again = read(odd_folder)
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert first.facts == again.facts
    assert first.notes == again.notes


def test_what_lies_beside_is_said(tmp_path: Path) -> None:
    root = tmp_path / "set"
    write_folder(root / "train", 2, 8)
    write_folder(root / "val", 2, 3)
    write_folder(root / "Validation", 2, 3)
    write_class(root / "stray", 0, 2)
    write_class(root / "train" / "class 0" / ".ipynb_checkpoints", 0, 3)
    picture(0, 1).save(root / "loose.png")
    collection = read(root)
    assert len(collection.train.targets) == 16
    assert collection.notes[0] == "Beside train/, and left out: Validation, stray."
    assert collection.notes[1] == "1 images lie in no class's folder, and are left out."


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for label, name in enumerate(("bus", "car", "train")):
        write_class(tmp_path / "set" / name, label, 6)
    assert read(tmp_path / "set").classes == ("bus", "car", "train")


def test_sixteen_bits_are_scaled_alike() -> None:
    for value in (200, 40_000):
        buffer = io.BytesIO()
        Image.fromarray(np.full((9, 9), value, dtype=np.uint16)).save(buffer, "PNG")
        array, grey, _ = pixels.decode(buffer.getvalue(), 8)
        assert grey
        assert array.max() == int(value / 65535 * 255)


def test_another_folder_has_another_cache(tmp_path: Path) -> None:
    """Same names, sizes and times, other pixels: an archive can hold that."""
    for root, swap in (("a", 0), ("b", 1)):
        for label in range(2):
            folder = tmp_path / root / f"c{label}"
            folder.mkdir(parents=True)
            for number in range(6):
                picture(label ^ swap, number).save(folder / f"{number}.bmp")
                os.utime(folder / f"{number}.bmp", ns=(0, 0))
    first, second = read(tmp_path / "a"), read(tmp_path / "b")
    assert not torch.equal(first.train.inputs, second.train.inputs)


def test_a_failed_extraction_leaves_nothing(tmp_path: Path, own_cache: Path) -> None:
    path = cut_zip(tmp_path)
    for _ in range(2):
        with pytest.raises(LabError, match="cannot be taken apart"):
            read(path)
    assert not own_cache.exists() or not list(own_cache.iterdir())


def test_a_rare_class_is_trained_on(tmp_path: Path) -> None:
    from penex.lab.data.split import split

    labels = np.array([0] * 900 + [1] * 6)
    collection = read(npz(x=np.random.default_rng(0).random((906, 2)), y=labels)(tmp_path))
    for seed in range(20):
        small, large = (split(collection, seed, size) for size in (60, 200))
        assert set(small.train.targets.tolist()) == {0, 1}
        assert set(small.train.index.tolist()) <= set(large.train.index.tolist())


def test_a_row_number_is_no_feature(tmp_path: Path) -> None:
    lines = [",a,kind", *(f"{k},{k % 7},{k % 2}" for k in range(20))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    collection = read(tmp_path / "t.csv", label_column="kind")
    assert collection.facts["columns"] == ["a"]
    assert "without a name" in collection.notes[0]


def test_inputs_without_labels_are_said(tmp_path: Path) -> None:
    path = npz(x=np.zeros((20, 3)), y=np.arange(20) % 2, x_test=np.zeros((3, 3)))(tmp_path)
    assert read(path).notes == ("x_test is left out: x_test and y_test go together.",)


def test_a_last_batch_of_one_and_batch_norm() -> None:
    from penex.lab import runs, tasks, training
    from penex.lab.engine import loop

    task = tasks.find("digits")
    spec = runs.LossSpec("ce")
    run_ = runs.plan(task, spec, 0, 65, {"batch_size": 32, "epochs": 1})
    data = training.data_of(run_, torch.device("cpu"))
    learner = training.learner_of(run_, data, torch.device("cpu"))
    learner.least = 2
    assert len(loop.start(learner, data).history) == 2


def test_processes_decode_what_one_decodes(
    odd_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = read(odd_folder)
    monkeypatch.setattr(images, "_MANY", 1)
    monkeypatch.setattr(images, "_CHUNK", 10)
    monkeypatch.setattr("penex.lab.environment.cores", lambda: 2)
    monkeypatch.setenv("PENEX_CACHE", str(tmp_path / "another"))
    ticks: list[int] = []
    together = read(odd_folder, progress=lambda done, total: ticks.append(done))
    assert ticks == [10, 20, 30, 40, 50, 60, 70, 75]
    assert torch.equal(alone.train.inputs, together.train.inputs)
    assert alone.facts == together.facts
    assert alone.notes == together.notes


@pytest.mark.parametrize("harm", ["array", "facts"])
def test_a_damaged_cache_is_made_again(odd_folder: Path, own_cache: Path, harm: str) -> None:
    first = read(odd_folder)
    path = next(own_cache.glob("*.npy" if harm == "array" else "*.json"))
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    assert torch.equal(read(odd_folder).train.inputs, first.train.inputs)


def test_a_changed_file_is_seen(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", 2, 6)
    before = read(root)
    picture(1, 99).save(root / "class 0" / "000.png")
    os.utime(root / "class 0" / "000.png", ns=(1, 1))
    assert read(root).facts["sha256"] != before.facts["sha256"]


def test_parts_in_folders_stay_apart(tmp_path: Path) -> None:
    root = tmp_path / "set"
    for label in range(3):
        write_class(root / "train" / f"c{label}", label, 8)
        write_class(root / "Valid" / f"c{label}", label, 2, first=20)
        write_class(root / "test" / f"c{label}", label, 3, first=30)
    task, collection = own(root)
    assert {n: len(p.targets) for n, p in collection.parts.items()} == {
        "train": 24, "val": 6, "test": 9
    }  # fmt: skip
    assert task.train_size == 24
    assert task.name == "set"


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.new("RGB", (40, 40), (10, 20, 30)), (10, 20, 30)),
        (Image.new("L", (40, 20), 70), (70, 70, 70)),
        (Image.new("LA", (40, 40), (0, 0)), (255, 255, 255)),
        (Image.new("RGBA", (40, 40), (200, 0, 0, 255)), (200, 0, 0)),
        (Image.new("1", (40, 40), 1), (255, 255, 255)),
        (Image.new("P", (40, 40), 0), (0, 0, 0)),
    ],
)
def test_modes_become_rgb(image: Image.Image, expected: tuple[int, int, int]) -> None:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    array, grey, size = pixels.decode(buffer.getvalue(), 16)
    assert array.shape == (3, 16, 16)
    assert tuple(array[:, 8, 8].tolist()) == expected
    assert size == image.size
    assert grey == (image.mode in ("1", "L", "LA"))


def test_the_orientation_of_a_camera_is_obeyed() -> None:
    image = Image.new("RGB", (32, 32), "black")
    image.paste((255, 255, 255), (0, 0, 32, 16))  # white above
    exif = Image.Exif()
    exif[0x0112] = 3  # held upside down
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", exif=exif, quality=95)
    array, _, _ = pixels.decode(buffer.getvalue(), 32)
    assert array[0, 4, 16] < 30
    assert array[0, 28, 16] > 225


def test_the_middle_is_cut_out() -> None:
    image = Image.new("RGB", (96, 32), "black")
    image.paste((255, 255, 255), (32, 0, 64, 32))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    array, _, _ = pixels.decode(buffer.getvalue(), 32)
    assert array.min() == 255


def test_grey_images_have_one_channel(tmp_path: Path) -> None:
    for label in range(2):
        folder = tmp_path / "grey" / str(label)
        folder.mkdir(parents=True)
        for number in range(6):
            picture(label, number).convert("L").save(folder / f"{number}.png")
    assert read(tmp_path / "grey").train.inputs.shape == (12, 1, 32, 32)


def test_an_archive_is_opened(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "flowers", 2, 6)
    archive = tmp_path / "flowers.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in root.rglob("*.*"):
            file.write(path, path.relative_to(tmp_path))
    assert read(archive).classes == ("class 0", "class 1")
    with tarfile.open(tmp_path / "flowers.tar.gz", "w:gz") as tape:
        tape.add(root, "flowers")
    assert read(tmp_path / "flowers.tar.gz").facts["sha256"] == read(root).facts["sha256"]


# What cannot be used.


def single_class(root: Path) -> Path:
    return write_folder(root / "data", 1, 9)


def two_files(root: Path) -> Path:
    return write_folder(root / "data", 2, 1)


def missing_in_test(root: Path) -> Path:
    write_folder(root / "data" / "train", 3, 6)
    write_folder(root / "data" / "test", 2, 6)
    return root / "data"


def no_images(root: Path) -> Path:
    (root / "data" / "a").mkdir(parents=True)
    (root / "data" / "a" / "x.txt").write_text("x")
    return root / "data"


def all_broken(root: Path) -> Path:
    for name in "ab":
        (root / "data" / name).mkdir(parents=True)
        (root / "data" / name / "x.png").write_bytes(b"x")
    return root / "data"


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


def outside(root: Path) -> Path:
    path = root / "data.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/x.png", b"x")
        file.writestr("../escaped.png", b"x")
    return path


def linked(root: Path) -> Path:
    path = root / "data.tar"
    with tarfile.open(path, "w") as tape:
        link = tarfile.TarInfo("a/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tape.addfile(link)
    return path


def cut_zip(root: Path) -> Path:
    write_folder(root / "x", 2, 3)
    path = root / "data.zip"
    with zipfile.ZipFile(path, "w") as file:
        for picture_file in (root / "x").rglob("*.*"):
            file.write(picture_file)
    path.write_bytes(path.read_bytes()[:900])
    return path


def cut_npz(root: Path) -> Path:
    path = npz(x=np.zeros((20, 4)), y=np.arange(20) % 2)(root)
    path.write_bytes(path.read_bytes()[:200])
    return path


class Evil:
    def __reduce__(self) -> Any:
        return (os.system, ("touch escaped",))


def evil_pickle(root: Path) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for name in ("data_batch_1", "batches.meta"):
        (folder / name).write_bytes(pickle.dumps({"data": Evil()}, protocol=2))
    return folder


def single_array(root: Path) -> Path:
    np.save(root / "data.npy", np.zeros(3))
    return (root / "data.npy").rename(root / "data.npz")


def only_test(root: Path) -> Path:
    write_folder(root / "data" / "test", 2, 6)
    write_folder(root / "data" / "val", 2, 6)
    return root / "data"


def empty_train(root: Path) -> Path:
    write_folder(root / "data" / "test", 2, 6)
    (root / "data" / "train" / "class 0").mkdir(parents=True)
    return root / "data"


def encrypted(root: Path) -> Path:
    path = root / "data.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/x.png", b"x" * 50)
    content = bytearray(path.read_bytes())
    content[6] |= 1  # says of its member that it is encrypted
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    return path


def damaged_tar(root: Path) -> Path:
    """An archive whose middle was overwritten: tarfile alone would take it for its end."""
    write_folder(root / "x", 2, 30)
    path = root / "data.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=0) as tape:
        tape.add(root / "x", "x")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 600] = bytes(600)
    path.write_bytes(content)
    return path


def official_cifar(root: Path) -> Path:
    write_cifar10(root / "cifar-10-batches-py")
    return root


def zipped_table(root: Path) -> Path:
    with zipfile.ZipFile("zipped.zip", "w") as archive:
        archive.writestr("a.csv", "a,label\n1,x\n")
    return Path("zipped.zip")


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


GOOD = "".join(f"{k},{k % 3},{'yes' if k % 2 else 'no'}\n" for k in range(20))


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (single_class, [], "has the single class 'class 0'"),
        (two_files, [], "has 1 examples; each needs at least 5"),
        (missing_in_test, [], "the class 'class 2' has no example in test"),
        (no_images, [], "There are no images to train on in"),
        (all_broken, [], "None of the 2 images in"),
        (lambda root: root / "nowhere", [], "There is nothing at"),
        (table("a,b,label\n1,2,x\n"), ["--label-column", "lable"], "Did you mean 'label'?"),
        (table("a,b,label\n1,2,x\n"), [], "needs --label-column: which of a, b, label"),
        (table("a,b,label\n" + GOOD + "1,,no\n"), ["--label-column", "label"],
         "line 22, column 'b': the value is missing"),
        (table("a,b,label\n" + GOOD + "1,two,no\n"), ["--label-column", "label"],
         "line 22, column 'b': 'two' is no number"),
        (table("a,b,label\n" + GOOD + "1,2,\n"), ["--label-column", "label"],
         "the label is missing"),
        (table("a,b\n" + "1,0\n2,1\n" * 9 + "3,cat\n"), ["--label-column", "b"],
         "line 20, column 'b': the label 'cat' stands among whole numbers"),
        (table("a,b\n" + "".join(f"{k},v{k}\n" for k in range(9))), ["--label-column", "b"],
         "so it is no class"),
        (table("a,a,label\n1,2,x\n"), ["--label-column", "label"], "the column 'a' twice"),
        (table("a,label\n1,x,3\n"), ["--label-column", "label"], "line 2: 3 values for 2 columns"),
        (table("a,label\n"), ["--label-column", "label"], "needs a header and rows"),
        (table("label\nx\ny\n"), ["--label-column", "label"], "has no column besides"),
        (npz(x=np.zeros((4, 3))), [], "needs the arrays x and y"),
        (npz(x=np.zeros((4, 3)), y=np.zeros(5)), [], "train has 4 inputs but 5 labels"),
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
        (table("a,label\n1,x\n"), ["--label-column", "label", "--image-size", "16"],
         "is for image files"),
        (official_cifar, ["--image-size", "16"], "holds CIFAR's arrays"),
        (zipped_table, [], "There are no images to train on in zipped.zip"),
        (single_array, [], "it is a single array"),
        (only_test, [], "but no train/ with a folder for each class"),
        (empty_train, [], "There are no images to train on"),
        (encrypted, [], "cannot be taken apart"),
        (damaged_tar, [], "cannot be taken apart"),
        (table("a,label\n" + "1e300,x\n2,y\n" * 5), ["--label-column", "label"],
         "'1e300' is not finite in float32"),
        (table("a,label\n" + '"1\n",x\n2,y\n' * 5 + ",x\n"), ["--label-column", "label"],
         "line 17, column 'a': the value is missing"),
        (pointer_pickle, [], "is not one of CIFAR's files"),
        (cut_npz, [], "truncated or no .npz file"),
        (outside, [], "its member '../escaped.png' would be written outside"),
        (linked, [], "its member 'a/link' is a link"),
        (cut_zip, [], "cannot be taken apart"),
        (evil_pickle, [], "which no data set needs"),
        (lambda root: Path(__file__), [], "is no data set that penex reads"),
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
    path = make(tmp_path)
    run("compare", "--data", path, *options, "--out", tmp_path / "out", code=2)
    text = capsys.readouterr().err.splitlines()[-1]
    assert text.startswith("penex: ")
    assert words in text
    assert not list(tmp_path.rglob("escaped*"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digits", "--data", "x"], "Give the task 'digits' or --data, not both"),
        (["--label-column", "x"], "is for --data"),
        (["--model", "cn"], "Did you mean 'cnn'?"),
        (["--model", "nothing_here:make"], "cannot be imported"),
        (["--label-noise", "1.5"], "a rate above 0 and at most 1"),
        (["--noise-kind", "resample"], "--label-noise, how many"),
    ],
)
def test_wrong_options(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("compare", *arguments, code=2)
    assert words in capsys.readouterr().err


def test_the_kind_of_noise_changes_a_noisy_task() -> None:
    """As the authors' protocol is asked for: the rate stays the task's."""
    task = tasks.find("cifar10_noisy")
    found = DataOptions(noise_kind="resample").treatment(task).label_noise
    assert found == LabelNoise(0.1, "resample")
    assert DataOptions().treatment(task).label_noise is None  # `plan` takes the task's
    assert DataOptions(label_noise=0.3).treatment(task).label_noise == LabelNoise(0.3)


# Tables and arrays.


def write_times(path: Path, count: int = 90) -> Path:
    """A column of seconds since 1970 that tells three classes apart, and float32 cannot hold."""
    times = [1_700_000_000 + 50 * (k % 3) + k // 3 for k in range(count)]
    rows = "".join(f"{time},{k % 5},c{k % 3}\n" for k, time in enumerate(times))
    path.write_text("time,other,species\n" + rows)
    return path


@pytest.mark.parametrize("pack", ["auto", "off"])
def test_columns_with_a_large_offset_are_not_rounded_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: str
) -> None:
    path = write_times(tmp_path / "times.csv")
    options = ["--data", path, "--label-column", "species", "--out", tmp_path / "out"]
    run("compare", *options, "--seeds", 2, "--losses", "ce", "--pack", pack)
    places = sorted((tmp_path / "out").glob("times/ce/*/seed-*"))
    for place in places:
        assert json.loads((place / "done.json").read_text())["test"]["accuracy"] == 1.0
    capsys.readouterr()
    run("predict", places[0], path)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert all(row["class"] == f"c{k % 3}" for k, row in enumerate(rows))
    run("data", "check", path, "--label-column", "species")
    checked = capsys.readouterr().out
    assert "exact copies" not in checked
    assert f"penex compare --data {path} --label-column species would train" in checked


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


def test_other_names_of_columns_are_other_data(tmp_path: Path) -> None:
    """Or a model would be used again whose columns are called otherwise."""
    sums = set()
    for header in ("a,b,label", "b,a,label"):
        path = tmp_path / "same.csv"
        path.write_text(header + "\n" + GOOD)
        sums.add(read(path, label_column="label").facts["sha256"])
    assert len(sums) == 2


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ('"a; m; k; z; y; u",b,label\n' + GOOD, ["a; m; k; z; y; u", "b"]),
        ("a;b, c;label\n" + GOOD.replace(",", ";"), ["a", "b, c"]),
        ("a\tb\tlabel\n" + GOOD.replace(",", "\t"), ["a", "b"]),
    ],
)
def test_the_delimiter_is_the_one_that_fits(tmp_path: Path, text: str, columns: list[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert read(path, label_column="label").facts["columns"] == columns


def test_names_in_bytes_are_read(tmp_path: Path) -> None:
    names = np.array(["hé".encode(), b"b"] * 6)
    np.savez(tmp_path / "n.npz", x=np.random.default_rng(0).random((12, 3)), y=names)
    assert read(tmp_path / "n.npz").classes == ("b", "hé")


def test_pixels_of_unknown_scale_are_left_out(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", 2, 6)
    values = np.linspace(0, 4095, 400).reshape(20, 20)
    Image.fromarray(values.astype(np.float32)).save(root / "class 0" / "float.tif")
    Image.fromarray(values.astype(np.int32)).save(root / "class 0" / "wide.tif")
    collection = read(root)
    assert len(collection.train.targets) == 12
    assert "2 files are left out" in " ".join(collection.notes)
    assert "32-bit numbers of unknown scale" in " ".join(collection.notes)


def test_a_path_that_is_no_text_is_compared(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xe9"))
    folder.mkdir()
    path = write_times(folder / os.fsdecode(b"t\xe9.csv"), 30)
    run("compare", "--data", path, "--label-column", "species", "--seeds", 1, "--epochs", 1,
        "--losses", "ce", "--out", tmp_path / "out")  # fmt: skip
    (page,) = (tmp_path / "out").glob("*/page.html")
    assert r"b\udce9" in page.read_text()


MODELS = """
import sys, torch
from torch import nn

def frozen(shape, n):
    model = nn.Sequential(nn.Linear(shape[0], 9), nn.ReLU(), nn.Linear(9, n))
    model[0].requires_grad_(False)
    return model

class Tied(nn.Module):
    def __init__(self, inputs, n):
        super().__init__()
        self.first = nn.Linear(inputs, n)
        self.one = self.two = nn.Linear(n, n)
    def forward(self, x):
        return self.two(self.one(self.first(x)))

def tied(shape, n):
    return Tied(shape[0], n)

def lazy(shape, n):
    return nn.LazyLinear(n)

class Odd(nn.Linear):
    def forward(self, x):
        if self.training:
            raise RuntimeError("it breaks in training")
        return super().forward(x)

def breaks(shape, n):
    return Odd(shape[0], n)

class Cut(nn.Linear):
    def forward(self, x):
        return super().forward(x).detach()

def cut(shape, n):
    return Cut(shape[0], n)

def leaves(shape, n):
    sys.exit(3)
"""


@pytest.fixture
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with models of a user's."""
    name = f"models_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODELS)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize("kind", ["frozen", "tied", "lazy"])
def test_frozen_shared_and_lazy_weights_are_trained(
    own_models: str, kind: str, tmp_path: Path
) -> None:
    """Alone and packed alike; frozen ones stay as they were."""
    path = write_times(tmp_path / "t.csv")
    options = ["--data", path, "--label-column", "species", "--model", f"{own_models}:{kind}"]
    options += ["--losses", "ce", "--seeds", 2, "--epochs", 2, "--dtype", "float64"]
    tests = []
    for pack in ("auto", "off"):
        run("compare", *options, "--pack", pack, "--out", tmp_path / pack)
        ends = sorted((tmp_path / pack).glob("t/ce/*/seed-*"))
        tests.append([json.loads((end / "done.json").read_text())["test"] for end in ends])
        if kind == "frozen":
            tensors = exported.read_safetensors(ends[0] / "model.safetensors")
            torch.manual_seed(seeds.derive(0, "initialisation"))
            assert torch.equal(tensors["0.weight"], torch.nn.Linear(2, 9).weight.double())
    for alone, packed in zip(*tests, strict=True):
        assert alone == pytest.approx(packed, rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("breaks", "it breaks in training"),
        ("cut", "its logits have no gradient"),
        ("leaves", "does not work for inputs of shape"),
    ],
)
def test_a_model_that_cannot_be_trained_is_told_before(
    own_models: str, kind: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_times(tmp_path / "t.csv")
    run("compare", "--data", path, "--label-column", "species", "--model", f"{own_models}:{kind}",
        "--out", tmp_path / "out", code=2)  # fmt: skip
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_table_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    rows = ["width;height;kind"]
    for k in range(90):
        x, y = random.normal(k % 3, 0.3, 2)
        rows.append(f"{x};{1000 * y};{'abc'[k % 3]}")
    path = tmp_path / "flowers 2.csv"
    path.write_text("\n".join(rows), encoding="utf-8-sig")
    run("compare", "--data", path, "--label-column", "kind", "--losses", "ce", "--seeds", 1,
        "--epochs", 30, "--out", tmp_path / "out")  # fmt: skip
    assert "flowers_2, 58 training examples" in capsys.readouterr().out
    place = next((tmp_path / "out").glob("flowers_2/ce/*/seed-0"))
    assert json.loads((place / "done.json").read_text())["test"]["accuracy"] > 0.8
    card = json.loads((place / "model.json").read_text())
    assert card["model"] == "mlp"
    assert card["preprocessing"]["columns"] == ["width", "height"]
    assert card["preprocessing"]["std"][1] > 500


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


# The official formats.


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
    assert len(sets) == 3 + 12 * 4
    assert sets["cifar10"].md5 == "c58f30108f718f92721af3b95e74349a"
    assert sets["pathmnist"].md5 == "a8b06965200029087d5bd730944a56c1"
    assert all(len(entry.md5 or "0" * 32) == 32 for entry in sets.values())
    assert all(entry.url.startswith("http") and entry.licence for entry in sets.values())
    with pytest.raises(LabError, match="Did you mean 'pathmnist_64'"):
        catalogue.find("pathmnist64")


# What is said before anyone trains.


def test_check_says_what_it_sees(odd_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("data", "check", odd_folder)
    text = capsys.readouterr().out
    assert "a folder of images, 11 classes" in text
    assert "shorter sides of the files 1 to 24 pixels, median 24" in text
    assert "class 0                        train 13" in text
    assert "2 files are left out: class 0/broken.jpg" in text
    assert "would train cnn on 46 examples; val and test split off by seed" in text


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


def test_texts_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for label in ("business", "entertainment", "politics", "sport", "tech"):
        folder = tmp_path / "bbc" / label
        folder.mkdir(parents=True)
        for number in range(3):
            (folder / f"{number:03}.txt").write_bytes(
                f"{label} {min(number, 1)} \xa3".encode("latin-1")
            )
    run("data", "check", tmp_path)
    text = capsys.readouterr().out
    assert "5 classes, 10 different articles" in text
    assert "5 articles are exact copies" in text
    run("compare", "--data", tmp_path / "bbc", code=2)


def test_the_list_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run("data", "list")
    text = capsys.readouterr().out
    assert "CIFAR-10: 60,000 images" in text
    assert "organsmnist_224" in text
    assert "the paper says MIT" in text
    run("data", "get", code=2)


# Noise, weights, models.


def test_noise_and_weights_are_in_the_record(tmp_path: Path) -> None:
    run("train", "--loss", "penex", "--label-noise", 0.3, "--class-weights", "balanced",
        "--epochs", 1, "--train-size", 50, "--out", tmp_path)  # fmt: skip
    place = next(tmp_path.glob("digits/penex/*/seed-0"))
    config = json.loads((place / "config.json").read_text())
    assert config["label_noise"] == {"rate": 0.3, "kind": "flip"}
    assert config["class_weights"] == "balanced"
    facts = json.loads((place / "environment.json").read_text())["data"]
    assert 5 <= facts["labels_changed"]["train"] <= 25


def test_balanced_weights_reach_the_loss() -> None:
    from penex.lab import runs, tasks, training

    treatment = runs.Treatment(class_weights="balanced")
    run_ = runs.plan(tasks.find("digits"), runs.LossSpec("focal"), 0, 95, treatment=treatment)
    data = training.data_of(run_, torch.device("cpu"))
    weight = training.learner_of(run_, data, torch.device("cpu")).loss.weight
    counts = torch.bincount(data.train.targets, minlength=10)
    assert weight is not None
    torch.testing.assert_close(weight * counts, torch.full((10,), 9.5))


def test_a_model_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = (
        "from torch import nn\n"
        "def tiny(shape, n_out):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], n_out))\n"
        "def wrong(shape, n_out):\n    return 3\n"
        "def wide(shape, n_out):\n    return tiny(shape, n_out + 2)\n"
    )
    (tmp_path / "my_own_models.py").write_text(code)
    options = ["--loss", "ce", "--epochs", 1, "--train-size", 50, "--out", tmp_path / "out"]
    run("train", *options, "--model", "my_own_models:tiny")
    place = next((tmp_path / "out").glob("digits/ce/*/seed-0"))
    config = json.loads((place / "config.json").read_text())
    assert config["model"] == "my_own_models:tiny"
    assert len(config["data"]["model_source"]) == 16
    run("train", *options, "--model", "my_own_models:wrong", code=2)
    assert "it gave a int, not an nn.Module" in capsys.readouterr().err
    run("train", *options, "--model", "my_own_models:none", code=2)
    assert "cannot be imported" in capsys.readouterr().err
    run("train", *options, "--model", "my_own_models:wide", code=2)
    assert "gave logits of shape (2, 12), not (2, 10)" in capsys.readouterr().err
    run("predict", place, tmp_path / "x.npy", code=2)
    assert "say --own-code" in capsys.readouterr().err
    np.save(tmp_path / "x.npy", np.zeros((3, 8, 8), np.uint8))
    run("predict", place, tmp_path / "x.npy", "--own-code")
    assert len(capsys.readouterr().out.splitlines()) == 4
    (tmp_path / "my_own_models.py").write_text(code + "# changed\n")
    run("predict", place, tmp_path / "x.npy", "--own-code", code=2)
    assert "is not the one that the model" in capsys.readouterr().err


def test_the_model_follows_the_shape() -> None:
    assert models.default((1, 64, 64)) == "cnn"
    assert models.default((3, 65, 65)) == "resnet18"
    assert models.default((3, 4, 4)) == "mlp"
    model = models.find("resnet18")((3, 72, 72), 5)
    assert model(torch.zeros(2, 3, 72, 72)).shape == (2, 5)
    blocks = [m for m in model.modules() if type(m).__name__ == "BasicBlock"]
    assert len(blocks) == 8
    # The appendix, by hand: stem, four layers, batch norms, the last layer.
    assert (
        sum(p.numel() for p in models.find("resnet18")((3, 32, 32), 100).parameters()) == 11_220_132
    )


def test_a_network_with_batch_norm_trains_and_resumes(tmp_path: Path) -> None:
    options = ["--loss", "penex", "--model", "resnet18", "--epochs", 1, "--train-size", 20,
               "--batch-size", 10, "--out", tmp_path]  # fmt: skip
    run("train", *options, "--save-seconds", 0)
    done = json.loads(next(tmp_path.glob("**/done.json")).read_text())
    assert done["status"] == "completed"


def test_names_of_tasks() -> None:
    assert task_name(Path("digits.npz")) == "digits_data"
    assert task_name(Path("/x/Ärzte 12.zip")) == "rzte_12"
    assert task_name(Path("...")) == "data"


def test_memory_is_shared_between_runs() -> None:
    """Runs of several seeds index the same inputs: the data are there once.

    Also when another task was asked for in between, which takes the place of the first one's data.
    """
    from penex.lab import runs, tasks, training

    def data_of(task: tasks.Task, seed: int) -> Data:
        return training.data_of(runs.plan(task, runs.LossSpec("ce"), seed), torch.device("cpu"))

    task = tasks.find("digits")
    data_of(task, 0)
    data_of(dataclasses.replace(task, name="other"), 0)
    found = [data_of(task, seed) for seed in range(3)]
    pointers = {
        part.inputs.data_ptr() for data in found for part in (data.train, data.val, data.test)
    }
    assert len(pointers) == 1


def test_class_indices_need_no_order() -> None:
    classes, indices = arrays.class_indices(
        {"train": np.array([7, 3, 7]), "test": np.array([3])}, Path("x")
    )
    assert classes == ("3", "7")
    assert indices["test"].tolist() == [0]


def test_a_collection_names_its_parts() -> None:
    collection = Collection(read_part(3), ("a", "b"), test=read_part(2))
    assert list(collection.parts) == ["train", "test"]


def read_part(count: int) -> Any:
    from penex.lab.data import Examples

    return Examples(torch.zeros(count, 2), torch.zeros(count).long())
