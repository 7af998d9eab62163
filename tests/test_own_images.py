"""A user's own images: what is read, what is left out and said, what is refused."""

import errno
import io
import itertools
import json
import os
import shutil
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from penex.lab.data import decoding, pixels
from penex.lab.data.read import read
from penex.lab.ground.errors import LabError
from penex.lab.tasks.own import own

from own_files import refuses, run
from pictures import picture, write_class, write_folder, write_odd_folder


@pytest.fixture
def odd_folder(tmp_path: Path) -> Path:
    return write_odd_folder(tmp_path / "My Pictures")


@pytest.mark.slow
def test_a_folder_with_everything_in_it_is_compared(
    odd_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("compare", "--data", odd_folder, "--losses", "ce", "penex", "--seeds", 2, "--epochs", 2,
        "--out", tmp_path / "out")  # fmt: skip
    shown = capsys.readouterr()
    assert "2 files are left out: class 0/broken.jpg (it is truncated)" in shown.err
    assert "class 0/nothing.png (the file is empty)" in shown.err
    assert "left out: the class class empty." in shown.err
    assert "1 files are no images by their names, and left out: class 0/notes.txt" in shown.err
    assert "decoding: 75 images" in shown.err
    # 11 classes of 6, and 7 odd ones: 73; a fifth for testing, a fifth of the rest to validate.
    assert "my_pictures, 46 training examples, 2 seeds" in shown.out
    place = next((tmp_path / "out").glob("my_pictures/penex/*/seed-0"))
    card = json.loads((place / "model.json").read_text())
    assert card["classes"] == sorted(f"class {k}" for k in range(11))
    assert (card["model"], card["shape"]) == ("cnn", [3, 32, 32])
    assert len((place / "metrics.jsonl").read_text().splitlines()) == 2


def test_what_a_decoder_warns_of_is_not_shown(tmp_path: Path) -> None:
    """Files that are damaged are named; the decoder's own words are no sentence for a user."""
    write_folder(tmp_path / "set", 2, 6)
    place = next(path.parent for path in (tmp_path / "set").rglob("*.*"))
    whole = io.BytesIO()
    picture(0, 0).save(whole, "TIFF")
    (place / "cut.tiff").write_bytes(whole.getvalue()[:40])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        collection = read(tmp_path / "set")
    assert not seen
    assert any("cut.tiff" in note for note in collection.notes)


def test_the_counts_are_right(odd_folder: Path) -> None:
    collection = read(odd_folder)
    counts = torch.bincount(collection.train.targets).tolist()
    names = collection.classes
    assert dict(zip(names, counts, strict=True)) == {
        "class 0": 13, **{f"class {k}": 6 for k in range(1, 11)}
    }  # fmt: skip
    assert collection.train.inputs.shape == (73, 3, 32, 32)
    assert collection.train.inputs.dtype == torch.uint8


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
    for value, form in itertools.product((200, 40_000), ("PNG", "PPM", "TIFF")):
        buffer = io.BytesIO()
        Image.fromarray(np.full((9, 9), value, dtype=np.uint16)).save(buffer, form)
        array, grey, _ = pixels.decode(buffer.getvalue(), 8)
        assert grey
        assert array.max() == int(value / 65535 * 255)


def test_processes_decode_what_one_decodes(
    odd_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = read(odd_folder)
    monkeypatch.setattr(decoding, "_MANY", 1)
    monkeypatch.setattr(decoding, "_CHUNK", 10)
    monkeypatch.setattr("penex.lab.ground.environment.cores", lambda: 2)
    monkeypatch.setenv("PENEX_CACHE", str(tmp_path / "another"))
    ticks: list[int] = []
    together = read(odd_folder, progress=lambda done, total: ticks.append(done))
    assert ticks == [10, 20, 30, 40, 50, 60, 70, 75]
    assert torch.equal(alone.train.inputs, together.train.inputs)
    assert alone.facts == together.facts
    assert alone.notes == together.notes


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


def test_pixels_of_unknown_scale_are_left_out(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "set", 2, 6)
    values = np.linspace(0, 4095, 400).reshape(20, 20)
    Image.fromarray(values.astype(np.float32)).save(root / "class 0" / "float.tif")
    Image.fromarray(values.astype(np.int32)).save(root / "class 0" / "wide.tif")
    collection = read(root)
    assert len(collection.train.targets) == 12
    assert "2 files are left out" in " ".join(collection.notes)
    assert "32-bit numbers of unknown scale" in " ".join(collection.notes)


def test_check_says_what_it_sees(odd_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("data", "check", odd_folder)
    text = capsys.readouterr().out
    assert "a folder of images, 11 classes" in text
    assert "shorter sides of the files 1 to 24 pixels, median 24" in text
    assert "class 0                        train 13" in text
    assert "2 files are left out: class 0/broken.jpg" in text
    assert "train cnn on 46 examples, validate on 12 (by seed) and test on 15 (by seed)" in text


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
    (root / "data" / "a" / "x.md").write_text("x")
    return root / "data"


def all_broken(root: Path) -> Path:
    for name in "ab":
        (root / "data" / name).mkdir(parents=True)
        (root / "data" / name / "x.png").write_bytes(b"x")
    return root / "data"


def only_test(root: Path) -> Path:
    write_folder(root / "data" / "test", 2, 6)
    write_folder(root / "data" / "val", 2, 6)
    return root / "data"


def empty_train(root: Path) -> Path:
    write_folder(root / "data" / "test", 2, 6)
    (root / "data" / "train" / "class 0").mkdir(parents=True)
    return root / "data"


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (single_class, [], "has the single class 'class 0'"),
        (two_files, [], "has 1 examples; each needs at least 5"),
        (missing_in_test, [], "the class 'class 2' has no example in test"),
        (no_images, [], "There are no images to train on in"),
        (all_broken, [], "None of the 2 images in"),
        (lambda root: root / "nowhere", [], "There is nothing at"),
        (only_test, [], "but no train/ with a folder for each class"),
        (empty_train, [], "There are no images to train on"),
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
    refuses(make(tmp_path), options, words, tmp_path, capsys)


# What is not plainly there.


def linked_folder(root: Path) -> Path:
    """Two classes of six; one of them has two more behind a link, loops and links to nothing."""
    folder = write_folder(root / "set", 2, 6)
    write_class(root / "elsewhere", 0, 2, first=50)
    first = folder / "class 0"
    (first / "more").symlink_to(root / "elsewhere")
    (first / "again").symlink_to(root / "elsewhere")
    (first / "up").symlink_to(folder)
    (first / "itself").symlink_to(first / "itself")
    (first / "gone.png").symlink_to(root / "nowhere.png")
    (folder / "class 2").symlink_to(root / "nowhere")
    return folder


def test_links_are_followed_and_what_is_unseen_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = linked_folder(tmp_path)
    run("data", "check", root)
    text = capsys.readouterr().out
    counts = torch.bincount(read(root).train.targets).tolist()
    assert counts == [8, 6]  # the link up, to where the other class is, is not followed
    assert "3 things could not be looked at" in text
    for name in ("class 0/gone.png", "class 0/itself", "class 2"):
        assert name in text


def test_a_folder_that_cannot_be_opened_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "set", 2, 6)
    write_class(root / "class 0" / "locked", 0, 3, first=50)
    scan = os.scandir

    def locked(path: Any) -> Any:
        if str(path).endswith("locked"):  # root may read everything, so the bits do not help
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr("penex.lab.data.folders.os.scandir", locked)
    collection = read(root)
    assert len(collection.train.targets) == 12
    assert any("class 0/locked (Permission denied)" in note for note in collection.notes)


def test_a_very_deep_folder_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "set", 2, 6)
    monkeypatch.chdir(root / "class 0")
    for _ in range(1500):
        os.mkdir("a")
        os.chdir("a")
    picture(0, 70).save("deep.png")
    try:
        assert len(read(root).train.targets) == 13
    finally:  # pytest removes folders by recursion, and would fail at the end
        os.unlink("deep.png")
        for _ in range(1500):
            os.chdir("..")
            os.rmdir("a")


@pytest.mark.parametrize("suffix", ["png", "jpg", "eps"])
def test_postscript_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """A file that says EPS in its content, whatever its name, would start Ghostscript."""
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("it ran"))
    root = write_folder(tmp_path / "set", 2, 6)
    picture(0, 1).save(tmp_path / "x.eps")
    (root / "class 0" / f"x.{suffix}").write_bytes((tmp_path / "x.eps").read_bytes())
    assert len(read(root).train.targets) == 12


def test_only_our_formats_are_opened() -> None:
    """One opener for all: no other call of Pillow's is in the package."""
    source = Path(pixels.__file__).parents[2]
    calls = [path.name for path in source.rglob("*.py") if "Image.open(" in path.read_text()]
    assert calls == ["pixels.py"]


@pytest.mark.parametrize("name", ["Ünïcode – 名前", "A & B <i>", " spaced", "a,b;c", "UPPER", "-x"])
def test_names_of_classes_stay_as_they_are(tmp_path: Path, name: str) -> None:
    for label, folder in enumerate((name, "other")):
        write_class(tmp_path / "set" / folder, label, 6)
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as file:
        for path in (tmp_path / "set").rglob("*.*"):
            file.write(path, path.relative_to(tmp_path))
    for path in (tmp_path / "set", tmp_path / "set.zip"):
        assert set(read(path).classes) == {name, "other"}


def test_names_that_look_alike_are_told(tmp_path: Path) -> None:
    for label, name in enumerate(("Cat", "cat", "dog")):
        write_class(tmp_path / "set" / name, label, 6)
    _, collection = own(tmp_path / "set")
    assert "'Cat' and 'cat' are two classes: their names are nearly alike." in collection.notes
    write_class(tmp_path / "set" / "caf\u00e9", 3, 6)
    write_class(tmp_path / "set" / "cafe\u0301", 4, 6)
    with pytest.raises(LabError, match="is there twice, written with other code points"):
        read(tmp_path / "set")


@pytest.mark.slow
def test_copies_are_named_by_compare_and_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_folder(tmp_path / "set", 2, 6)
    named = (root / "class 0").rename(root / "Größe & <i>")
    shutil.copy(named / "000.png", named / "again.png")
    run("compare", "--data", root, "--losses", "ce", "--seeds", 1, "--epochs", 1, "--out",
        tmp_path / "out")  # fmt: skip
    words = "1 examples of train are exact copies of others there."
    assert words in capsys.readouterr().err
    place = next((tmp_path / "out").glob("set/ce/*/seed-0"))
    card = json.loads((place / "model.json").read_text())
    assert card["classes"] == ["Größe & <i>", "class 1"]
    facts = json.loads((place / "environment.json").read_text())["data"]
    assert any(note.startswith(words) for note in facts["notes"])
    assert (tmp_path / "out" / "set" / "page.html").read_text().count(words) == 1
