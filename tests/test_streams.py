"""Images that stay in their files: what is seen of them, by whom they are decoded, and when."""

import io
import json
import multiprocessing
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from penex import cli
from penex.lab import models, tasks, training
from penex.lab.data import crops, pixels, streams, trees
from penex.lab.data.split import split
from penex.lab.data.streams import WORKERS, Decoders, Job, Stream
from penex.lab.engine import loop
from penex.lab.engine.learner import Learner
from penex.lab.ground import environment
from penex.lab.ground.errors import LabError
from penex.lab.ground.stop import stoppable
from penex.lab.models import exported
from penex.lab.tasks import runs
from penex.lab.tasks.own import own
from penex.lab.training.flow import Flow
from penex.registry import FIVE
from small_trees import CLASSES, EACH, SIDE, build, small_task, write_annotated, write_tree

from pictures import picture
from witness import fit_alone

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("tree"))


def _jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=100, subsampling=0)
    return buffer.getvalue()


def _ramp(width: int, height: int) -> Image.Image:
    """Red grows to the right, green downwards, from 0 to 250."""
    x, y = np.linspace(0, 250, width), np.linspace(0, 250, height)
    red, green = np.meshgrid(x, y)
    return Image.fromarray(np.stack([red, green, 0 * red], axis=2).round().astype(np.uint8))


def test_judged_is_the_middle_of_the_shortened_image() -> None:
    """Of 300 x 200, the shorter side at 73: 109 x 73, of it the middle 64 x 64."""
    found = pixels.seen(_jpeg(_ramp(300, 200)), 64, None)
    assert found.shape == (3, 64, 64)
    left, right = found[0, 32, 0], found[0, 32, -1]
    top, bottom = found[1, 0, 32], found[1, -1, 32]
    assert abs(int(left) - 250 * 22 / 109) < 5
    assert abs(int(right) - 250 * 86 / 109) < 5
    assert abs(int(top) - 250 * 4 / 73) < 6
    assert abs(int(bottom) - 250 * 68 / 73) < 6


def test_a_crop_is_where_its_draws_say() -> None:
    """The corners of the crop show the corners of the box, mirrored or not."""
    content = _jpeg(_ramp(256, 256))
    for number in range(8):
        draws = random.Random(f"7/{number}")
        mirrored = draws.random() < 0.5
        left, top, right, bottom = crops.box_of(256, 256, draws)
        found = pixels.seen(content, 224, random.Random(f"7/{number}")).astype(int)
        first, last = (right, left) if mirrored else (left, right)
        assert abs(found[0, 112, 0] - 250 * first / 256) < 5
        assert abs(found[0, 112, -1] - 250 * last / 256) < 5
        assert abs(found[1, 0, 112] - 250 * top / 256) < 5
        assert abs(found[1, -1, 112] - 250 * bottom / 256) < 5


@pytest.mark.parametrize("size", [(256, 256), (341, 256), (256, 300), (2000, 256), (256, 4000)])
def test_boxes_have_the_papers_area(size: tuple[int, int]) -> None:
    draws = random.Random(0)
    for _ in range(200):
        left, top, right, bottom = crops.box_of(*size, draws)
        width, height = right - left, bottom - top
        assert 0 <= left < right <= size[0]
        assert 0 <= top < bottom <= size[1]
        assert 0.74 <= width / height <= 1.35
        if max(size) < 350:  # in longer ones no such box fits
            assert 0.79 <= width * height / (size[0] * size[1]) <= 1.01


def test_a_mere_line_is_no_image() -> None:
    with pytest.raises(ValueError, match="16 times"):
        pixels.seen(_jpeg(Image.new("RGB", (1700, 100))), 64, None)


def test_both_forms_of_a_tree_are_the_same_data(tree: Path, tmp_path: Path) -> None:
    plain, annotated = trees.listed(tree), trees.listed(write_annotated(tmp_path))
    for listing in (plain, annotated):
        collection = trees.streamed(listing, SIDE, "it")
        assert len(collection.classes) == CLASSES
        assert collection.val is None
        assert collection.test is not None
        assert collection.train.targets.bincount().tolist() == [EACH] * CLASSES
        assert collection.test.targets.bincount().tolist() == [2] * CLASSES
    contents = [
        sorted((one.part, one.label, one.path.read_bytes()) for one in listing.found)
        for listing in (plain, annotated)
    ]
    assert contents[0] == contents[1]


def test_a_table_that_names_no_file_is_refused(tmp_path: Path) -> None:
    write_annotated(tmp_path)
    table = tmp_path / "val" / "val_annotations.txt"
    for line in ("../../secret\tn0000\n", "val_6_0.JPEG\tn9999\n", "gone.JPEG\tn0000\n"):
        table.write_text(line)
        with pytest.raises(LabError, match="line 1"):
            trees.listed(tmp_path)


def _stream(folder: Path, number: int) -> Stream:
    paths = []
    for k in range(number):
        path = folder / f"{k}.jpg"
        picture(k % CLASSES, k, 24).save(path)
        paths.append(str(path))
    return Stream(paths, SIDE, Decoders())


def test_what_is_decoded_ahead_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKERS, "0")
    stream = _stream(tmp_path, 6)
    asked = 0

    def requests() -> object:
        nonlocal asked
        for _ in range(1000):
            asked += 1
            yield list(range(6))

    stream.announce(requests(), lambda row: (), 3)  # type: ignore[arg-type]
    first = asked
    assert first <= streams._AHEAD + 1
    stream.take(6, CPU)
    assert asked <= first + 1
    assert stream.took == 6
    assert stream.waited > 0


def test_an_image_looks_the_same_whoever_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By number of draw and row: not by its place in a request, nor by who decodes it."""
    monkeypatch.setenv(WORKERS, "0")
    stream = _stream(tmp_path, 40)

    def taken(rows: list[int], draw: int | None) -> Tensor:
        stream.announce([rows], lambda row: (), draw)
        return stream.take(len(rows), CPU)

    every = taken(list(range(40)), 5)
    assert torch.equal(taken([39, 3], 5), every[[39, 3]])
    assert not torch.equal(taken([39, 3], 6), every[[39, 3]])
    assert torch.equal(taken([1], None), taken([1], None))
    assert len({bytes(row.numpy().tobytes()) for row in every}) == 40
    assert len(taken([], 5)) == 0


def test_another_image_of_the_class_takes_a_broken_ones_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the same part, so that no validation image is trained on; told once, and counted."""
    monkeypatch.setenv(WORKERS, "0")
    write_tree(tmp_path)
    broken = tmp_path / "train" / "n0003" / "1.JPEG"
    broken.write_bytes(broken.read_bytes()[:300])
    collection = trees.streamed(trees.listed(tmp_path), SIDE, "it")
    stream = collection.train.stream
    assert stream is not None
    row = stream.paths.index(str(broken))
    data = split(collection, 0, 40, val=8)
    part = data.train if row in data.train.index else data.val
    place = int((part.index == row).nonzero())
    for _ in range(2):
        found = part.some(torch.tensor([place]))
    assert list(stream.unreadable) == [row]
    assert capsys.readouterr().err.count(str(broken)) == 1
    alike = (part.targets == 3).nonzero().flatten()
    after = [*alike[alike > place].tolist(), *alike[alike < place].tolist()]
    assert torch.equal(found, part.some(torch.tensor(after[:1])))
    for path in broken.parent.iterdir():
        path.write_bytes(b"no image")
    with pytest.raises(LabError, match="No image of the class"):
        part.some(torch.tensor([place]))


def test_a_file_that_is_gone_stops_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WORKERS, "0")
    stream = _stream(tmp_path, 2)
    Path(stream.paths[1]).unlink()
    stream.announce([[0, 1]], lambda row: (0,), None)
    with pytest.raises(FileNotFoundError):
        stream.take(2, CPU)


def test_the_number_of_processes_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKERS, "many")
    with pytest.raises(LabError, match=WORKERS):
        Decoders()


def _fitted(tree: Path) -> Learner:
    run = runs.plan(small_task(tree), runs.LossSpec("penex"), 0)
    data = training.Place(Path(), CPU).data(run)
    learner = training.learner_of(run, data, CPU)
    fit_alone(learner, data, loop.start(learner, data))
    return learner


def test_two_processes_that_decode_equal_none(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, averages and rho after two epochs, bit for bit."""
    found = []
    for number in ("0", "2"):
        monkeypatch.setenv(WORKERS, number)
        found.append(_fitted(tree).tensors())
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name]), name


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_decoding_processes_end_with_the_one_they_decode_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job([*_stream(tmp_path, 1).paths], [0], SIDE, None)
    monkeypatch.setenv(WORKERS, "2")
    theirs, ours = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(theirs)
        decoders = Decoders()
        first = decoders.start(job)
        if first is not None and first.result().problems == {} and decoders._pool is not None:
            os.write(ours, b"." * len(decoders._pool._processes))
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(ours)
    with open(theirs, "rb") as pipe:
        assert pipe.read() == b".."  # to its end, when the last process that has the other is gone
    os.waitpid(child, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
def test_a_decoder_that_is_killed_is_a_sentence_and_leaves_none_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the handlers of a training command, which its children have too."""
    monkeypatch.setenv(WORKERS, "2")
    before = multiprocessing.active_children()
    with stoppable():
        stream = _stream(tmp_path, 2)
        stream.announce([[0], [1]], lambda row: (), None)
        stream.take(1, CPU)
        ours = [child for child in multiprocessing.active_children() if child not in before]
        assert len(ours) == 2
        for child in ours:
            assert child.pid is not None
            os.kill(child.pid, signal.SIGTERM)  # as a scheduler does, to all of them
        stream.take(1, CPU)
        ours[0].kill()
        ours[0].join()

        def again() -> None:
            while True:  # until it is noticed that one is gone: the other may be the faster
                stream.announce([[0]], lambda row: (), None)
                stream.take(1, CPU)

        for _ in range(2):
            with pytest.raises(LabError, match=WORKERS):
                again()
        ours[1].join()


def test_a_run_leaves_a_model_that_sees_files_as_it_was_judged(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From files to a record; its predictions of test files are those of the record.

    Who watches is told the pace, which no record holds.
    """
    monkeypatch.setenv(WORKERS, "0")
    monkeypatch.setitem(models.MODELS, "vit", build)
    run = runs.plan(small_task(tree, epochs=1), runs.LossSpec("penex"), 0)
    lines: list[Any] = []
    hooks = training.Hooks(epoch=lambda run, line: lines.append(line))
    place = training.Place(tmp_path, CPU, hooks)
    record = training.train(run, place)
    assert record.done()["status"] == "completed"
    assert lines[0]["flow"]["images_per_second"] > 0
    assert 0 < lines[0]["flow"]["waiting"] < 1
    assert "flow" not in (record.folder / "metrics.jsonl").read_text()
    stream = place.data(run).test.stream
    assert stream is not None
    kept = np.load(record.folder / "predictions.npz")
    logits = torch.from_numpy(kept["test_logits"])
    expected = torch.softmax(logits / float(kept["temperature"]), dim=1)
    found = exported.load(record.folder).predict([Path(path) for path in stream.paths])
    rows = torch.tensor([list(one.probabilities.values()) for one in found])
    torch.testing.assert_close(rows, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["imagenet", "tiny_imagenet", "imagenette"])
def test_missing_files_are_a_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", name, "--data", str(tmp_path), "--loss", "ce", "--device", "cpu"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "it needs" in error
    assert error.count("\n") == 1


def test_a_tree_of_other_classes_is_refused(tree: Path) -> None:
    with pytest.raises(LabError, match="has 8 classes with images, and Tiny-ImageNet has 200"):
        tasks.find("tiny_imagenet").collect(tree)


@pytest.mark.parametrize(
    ("name", "side", "size", "model"),
    [
        ("imagenet", 224, 1_153_050, "vit_base"),
        ("tiny_imagenet", 64, 90_000, "vit_tiny"),
        ("imagenette", 160, 8_522, "vit_small"),
    ],
)
def test_the_recipe_is_the_appendix(name: str, side: int, size: int, model: str) -> None:
    task = tasks.find(name)
    r = task.recipe
    assert (r.optimizer, r.lr, r.weight_decay, dict(task.rates)) == (
        "adam",
        1e-3,
        0,
        {"penex": 1e-5},
    )
    assert (r.schedule, r.warmup_epochs, r.epochs, r.clip) == ("cosine", 10, 300, 1.0)
    assert (r.batch_size, r.matmul_precision, r.autocast) == (2048, "medium", True)
    assert (task.val, task.train_size, task.model) == (0.1, size, model)
    assert task.preprocessing["image_size"] == side
    found = {one: runs.plan(task, runs.LossSpec(one), 0).loss.resolved for one in FIVE}
    assert found["penex"]["alpha"] == 0.01
    assert found["penex"]["scale"] == "paper"
    assert found["label_smoothing"]["epsilon"] == 0.1
    assert found["focal"]["gamma"] == 2.0
    assert found["confidence_penalty"]["lambda_"] == 0.1


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_pace_is_that_of_an_epoch_and_the_bound_that_of_the_run(tree: Path) -> None:
    data = split(trees.streamed(trees.listed(tree), SIDE, "it"), 0, 40, val=8)
    train, test = data.train.stream, data.test.stream
    assert train is not None
    assert test is not None
    clock = _Clock()
    flow = Flow(data, clock)
    clock.now, train.took, train.waited = 10.0, 500, 1.0
    assert flow.epoch() == {"flow": {"images_per_second": 50.0, "waiting": 0.1}}
    assert list(flow.sentences()) == []
    clock.now, train.took, train.waited, test.waited = 20.0, 700, 5.0, 3.0
    assert flow.epoch() == {"flow": {"images_per_second": 20.0, "waiting": 0.7}}
    (sentence,) = flow.sentences()
    assert "40%" in sentence  # 8 of 20 seconds
    train.unreadable[3] = "it is truncated"
    assert "1 image" in list(flow.sentences())[1]


def test_lack_of_memory_names_what_helps(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(loop, "fit", fail)
    run = runs.plan(small_task(tree), runs.LossSpec("ce"), 0)
    with pytest.raises(LabError, match=r"micro-batches of 4 .*--accumulate.*--recompute"):
        training.train(run, training.Place(tmp_path, CPU))


def test_a_folder_that_memory_does_not_do_for_stays_in_its_files(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same folder is decoded whole where there is room."""
    monkeypatch.setenv("PENEX_CACHE", str(tmp_path / "cache"))
    folder = tree / "train"
    _, collection = own(folder)
    assert collection.train.stream is None
    needed = collection.train.inputs.numel()
    monkeypatch.setattr(environment, "free_memory", lambda: needed)
    assert own(folder)[1].train.stream is None
    monkeypatch.setattr(environment, "free_memory", lambda: needed - 1)
    task, large = own(folder)
    assert large.train.stream is not None
    assert large.train.inputs.shape == collection.train.inputs.shape
    assert task.identity != own(tree)[0].identity


@pytest.mark.slow
def test_a_comparison_of_files_has_its_table_and_its_pictures(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "free_memory", lambda: 1000)
    folder = tree / "train"
    words = ["compare", "--data", str(folder), "--losses", "ce", "penex", "--seeds", "1"]
    cli.main([*words, "--epochs", "1", "--device", "cpu", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert "they stay in their files" in said.err
    listing = json.loads((tmp_path / "train" / "comparison.json").read_text())
    assert [one["loss"] for one in listing["runs"]] == ["ce", "penex"]
    assert len(list((tmp_path / "train").glob("**/done.json"))) == 2
    cli.main(["data", "check", str(folder)])
    assert "they stay in their files" in capsys.readouterr().out
