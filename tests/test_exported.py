"""A trained model's files and its inputs: what is damaged or of another scale is refused."""

import copy
import csv
import io
import json
import math
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from penex import cli
from penex.lab import tasks, training
from penex.lab.data import Collection, Examples
from penex.lab.ground.errors import LabError
from penex.lab.models import exported, find, predict, raw, tensors
from penex.lab.records import Record, best
from penex.lab.records.views import View
from penex.lab.training.compare import Comparison, listing_of
from penex.report import home, page, results

from pictures import picture

CPU = torch.device("cpu")
CLASSES = ["a", "b", "c"]


def card_of(shape: tuple[int, ...] = (3, 8, 8), **preprocessing: Any) -> dict[str, Any]:
    kind = {"kind": "images", "image_size": shape[-1]} if len(shape) == 3 else {"kind": "arrays"}
    return {
        "model": "cnn" if len(shape) == 3 else "mlp",
        "model_source": None,
        "shape": list(shape),
        "zero_sum_head": False,
        "classes": CLASSES,
        "temperature": 0.8,
        "preprocessing": {
            **kind,
            "inputs": "uint8",
            "range": [0.0, 255.0],
            "mean": [100.0],
            "std": [50.0],
            **preprocessing,
        },
    }


def write_model(folder: Path, card: dict[str, Any] | None = None) -> Path:
    """A model that was never trained, as a run leaves it."""
    card = card or card_of()
    torch.manual_seed(0)
    network = find(card["model"])(card["shape"], len(card["classes"]))
    folder.mkdir(parents=True, exist_ok=True)
    exported.save(folder, network, card)
    return folder


def refused(folder: Path, files: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence of penex predict, which ends with code 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        cli.main(["predict", str(folder), str(files)])
    assert stopped.value.code == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return text


# Inputs: their scale and their shape.


@pytest.fixture
def model(tmp_path: Path) -> exported.Exported:
    return exported.load(write_model(tmp_path / "model"))


def some_bytes(n: int = 4) -> Tensor:
    return torch.randint(0, 256, (n, 3, 8, 8), dtype=torch.uint8)


def test_images_have_one_scale_for_sure(model: exported.Exported) -> None:
    """From 0 to 255, whatever their type; from 0 to 1 only if the caller says so."""
    images = some_bytes()
    with torch.no_grad():
        expected = model(images)
        torch.testing.assert_close(model(images.float()), expected)
        torch.testing.assert_close(model(images.long()), expected)
        torch.testing.assert_close(model(images / 255, scale=255), expected)
        torch.testing.assert_close(model.logits(images / 255, scale=255), model.logits(images))
        black = torch.zeros_like(images)
        torch.testing.assert_close(model(black.float()), model(black))
        model(black + 1)  # bytes say themselves what they are
        model(black + 1.0, scale=1)
    for wrong in (images / 255, (images.float() - 100) / 50, images * 1.01 + 1, images / 0.0):
        with pytest.raises(LabError, match=r"images go from|not finite"):
            model(wrong)
        with pytest.raises(LabError):
            model.logits(wrong)
    with pytest.raises(LabError, match="scale must be"):
        model(images, scale=-1)


@pytest.mark.parametrize(
    ("kind", "high", "good", "wrong"),
    [
        ("uint8", 16.0, 16, 255),
        ("uint8", 188.0, 255, 0.5),
        ("float32", 1.0, 1.0, 255.0),
        ("float32", 255.0, 200.0, 1.0),
    ],
)
def test_the_scale_is_the_training_datas(
    kind: str, high: float, good: float, wrong: float, tmp_path: Path
) -> None:
    model = exported.load(write_model(tmp_path, card_of(inputs=kind, range=[0.0, high])))
    images = torch.zeros(1, 3, 8, 8, dtype=getattr(torch, kind))
    images[0, 0, 0, 0] = good
    model(images)
    images = images.float() if isinstance(wrong, float) else images
    images[0, 0, 0, 0] = wrong
    with pytest.raises(LabError, match="but the training data went from 0 to"):
        model(images)


def test_vectors_have_any_scale(tmp_path: Path) -> None:
    model = exported.load(write_model(tmp_path, card_of((4,), inputs="float32", range=[0.0, 9.0])))
    model(torch.rand(2, 4))
    model(torch.rand(2, 4) * 1e4)
    with pytest.raises(LabError, match="not finite"):
        model(torch.full((1, 4), math.nan))


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 3, 8, 9), (2, 1, 8, 8), (2, 192)])
def test_a_wrong_shape_is_named_beside_the_right_one(
    shape: tuple[int, ...], model: exported.Exported
) -> None:
    with pytest.raises(LabError) as caught:
        model(torch.zeros(shape, dtype=torch.uint8))
    assert "(N, 3, 8, 8)" in str(caught.value)
    assert str(shape) in str(caught.value)


def test_only_numbers_in_tensors_are_inputs(model: exported.Exported) -> None:
    with pytest.raises(LabError, match=r"got torch\.bool"):
        model(torch.zeros(1, 3, 8, 8, dtype=torch.bool))
    with pytest.raises(LabError, match="got ndarray"):
        model(np.zeros((1, 3, 8, 8), np.uint8))


def test_predict_takes_whatever_holds_an_image(model: exported.Exported, tmp_path: Path) -> None:
    """A path, a Pillow image, arrays and tensors in their usual forms, and lists of them."""
    image = picture(1, 5).resize((8, 8))
    image.save(tmp_path / "x.png")
    hwc = np.asarray(image.convert("RGB"))
    chw = torch.from_numpy(hwc.copy()).permute(2, 0, 1)
    (expected,) = model.predict(chw)
    with torch.no_grad():
        row = model(chw[None])[0]
    assert expected.probabilities == pytest.approx(dict(zip(CLASSES, row.tolist(), strict=True)))
    assert expected.confidence == max(expected.probabilities.values())
    assert expected.probabilities[expected.label] == expected.confidence
    fixed = chw.numpy().copy()
    fixed.setflags(write=False)
    forms = [str(tmp_path / "x.png"), tmp_path / "x.png", image, hwc, hwc[None], chw.numpy(), fixed,
             chw[None], [tmp_path / "x.png"]]  # fmt: skip
    for form in forms:
        (one,) = model.predict(form)
        assert one.label == expected.label
        assert one.probabilities == pytest.approx(expected.probabilities, rel=1e-5)
    assert len(model.predict([image, hwc, np.stack([hwc, hwc]), chw])) == 5
    assert model.predict(hwc / 255, scale=255)[0].label == expected.label
    wrong: Any
    for wrong in (tmp_path / "none.png", hwc[:4], hwc / 255, [], "x", None, {"a": 1}):
        with pytest.raises(LabError):
            model.predict(wrong)


def test_grey_images_may_lack_their_channel(tmp_path: Path) -> None:
    model = exported.load(write_model(tmp_path, card_of((1, 8, 8))))
    grey = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    image = Image.fromarray(grey)
    (expected,) = model.predict(image)
    forms = [grey, grey[None], grey[..., None], grey[None, None], np.stack([grey] * 3)]
    found = [one for form in forms for one in model.predict(form)]
    assert len(found) == 7
    for one in found:
        assert one.probabilities == pytest.approx(expected.probabilities, rel=1e-5)


def test_arrays_of_another_scale_are_skipped_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_model(tmp_path / "model")
    np.save(tmp_path / "unit.npy", some_bytes().numpy() / np.float32(255))
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        cli.main(["predict", str(folder), str(tmp_path / "unit.npy")])
    assert stopped.value.code == 2
    assert "but the training data went from 0 to 255" in capsys.readouterr().err


# The files: checksums, numbers that are none, odd forms.


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.99])
@pytest.mark.parametrize("vouched", ["model.json", "done.json"])
def test_a_flipped_bit_is_found(
    share: float, vouched: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the checksum in model.json; by the record's, for models written before that had one."""
    import hashlib

    folder = write_model(tmp_path / "model")
    if vouched == "done.json":
        card = json.loads((folder / "model.json").read_text())
        del card["sha256"]
        (folder / "model.json").write_text(json.dumps(card))
        sums = {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in ("model.json", "model.safetensors")
        }
        (folder / "done.json").write_text(json.dumps({"sha256": sums}))
    exported.load(folder)
    path = folder / "model.safetensors"
    flip(path, int(8 * path.stat().st_size * share))
    text = refused(folder, tmp_path, capsys)
    assert f"the checksum of model.safetensors is not the one in {vouched}" in text


def test_a_changed_card_is_found_beside_its_record(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    (folder / "done.json").write_text(json.dumps({"sha256": {"model.json": "0" * 64}}))
    with pytest.raises(LabError, match=r"the checksum of model\.json is not the one in done\.json"):
        exported.load(folder)


def test_a_model_without_any_checksum_is_taken(tmp_path: Path) -> None:
    """As it was written once, and copied without its record."""
    folder = write_model(tmp_path)
    card = json.loads((folder / "model.json").read_text())
    for name in ("sha256",):
        del card[name]
    for name in ("range", "inputs"):
        del card["preprocessing"][name]
    (folder / "model.json").write_text(json.dumps(card))
    model = exported.load(folder)
    with torch.no_grad():
        model(some_bytes())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused(
    value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = card_of()
    network = find("cnn")(card["shape"], 3)
    with torch.no_grad():
        next(network.parameters())[0] = value
    exported.save(tmp_path, network, card)
    text = refused(tmp_path, tmp_path, capsys)
    assert "0.weight holds numbers that are not finite" in text


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_an_answer_that_is_not_finite_is_no_prediction(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = card_of((2,), inputs="float32", range=[0.0, 1.0], mean=[0.0], std=[1e-30])
    folder = write_model(tmp_path / "model", card)
    np.save(tmp_path / "x.npy", np.array([[0.0, 0.0], [1e30, -1e30]], np.float32))
    capsys.readouterr()
    cli.main(["predict", str(folder), str(tmp_path / "x.npy"), "--form", form])
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1 + (form == "csv")
    assert "the model's answer is not finite" in shown.err
    with pytest.raises(LabError, match="not finite"):
        exported.load(folder)(torch.tensor([[1e30, -1e30]]))


def test_csv_and_json_lines_have_the_same_digits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that float32 has, and no more: each reads back as the same float32."""
    folder = write_model(tmp_path / "model")
    np.save(tmp_path / "x.npy", some_bytes(9).numpy())
    texts = []
    for form in ("csv", "jsonl"):
        capsys.readouterr()
        cli.main(["predict", str(folder), str(tmp_path / "x.npy"), "--form", form])
        texts.append(capsys.readouterr().out)
    rows = list(csv.DictReader(io.StringIO(texts[0])))
    lines = [json.loads(line, parse_float=str) for line in texts[1].splitlines()]
    with torch.no_grad():
        answers = exported.load(folder)(torch.from_numpy(np.load(tmp_path / "x.npy")))
    assert len(rows) == len(lines) == 9
    for row, line, answer in zip(rows, lines, answers, strict=True):
        assert line["confidence"] == row["confidence"]
        assert line["class"] == row["class"]
        assert line["row"] == int(row["row"])
        for name, value in zip(CLASSES, answer, strict=True):
            text = row[f"p:{name}"]
            assert line["probabilities"][name] == text
            assert np.float32(text) == pytest.approx(value.item(), rel=1e-5)
            assert len(text.partition("e")[0].lstrip("0.")) <= 9


def test_json_lines_are_json_whatever_a_file_is_called(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    name = os.fsdecode(b'\xff odd "name"\n.png')
    picture(0, 0).save(tmp_path / "x.png")
    (tmp_path / "x.png").rename(tmp_path / name)
    target = tmp_path / "out.jsonl"
    cli.main(["predict", str(folder), str(tmp_path / name), "--form", "jsonl", "--to", str(target)])
    (line,) = target.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["file"] == str(tmp_path / name)


odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([10**400, 2**63, -1.5, math.nan, math.inf, "", "cnn", "\ud800"]),
    st.lists(st.one_of(st.integers(-1, 9), st.none(), st.text(max_size=2)), max_size=3),
    st.dictionaries(st.sampled_from(["kind", "mean", "dtype", "shape"]), st.none(), max_size=2),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something lies in what JSON holds."""
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any, *, remove: bool) -> Any:
    value = copy.deepcopy(value)
    if not path:
        return new
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    if remove:
        del holder[path[-1]]
    else:
        holder[path[-1]] = new
    return value


def loads_or_says_why(folder: Path) -> None:
    sentence = ""
    try:
        exported.load(folder)
    except LabError as error:
        sentence = str(error)
    assert "\n" not in sentence


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_a_card_of_any_form_is_a_model_or_a_sentence(tmp_path: Path, draw: st.DataObject) -> None:
    folder = tmp_path / "model"
    if not folder.exists():
        write_model(folder, card_of(mean=[1.0, 2.0, 3.0]))
        (folder / "model.json").rename(folder / "whole")
    card = json.loads((folder / "whole").read_text())
    path = draw.draw(st.sampled_from(list(places(card))))
    new = changed(card, path, draw.draw(odd), remove=draw.draw(st.booleans()))
    (folder / "model.json").write_text(json.dumps(new))
    loads_or_says_why(folder)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_tensors_of_any_form_are_a_model_or_a_sentence(tmp_path: Path, draw: st.DataObject) -> None:
    folder = tmp_path / "model"
    if not folder.exists():
        write_model(folder, card_of((2,), inputs="float32"))
        card = json.loads((folder / "model.json").read_text())
        del card["sha256"]
        (folder / "model.json").write_text(json.dumps(card))
        (folder / "model.safetensors").rename(folder / "whole")
    content = (folder / "whole").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    harm = draw.draw(st.sampled_from(["header", "length", "cut", "bit"]))
    if harm == "header":
        path = draw.draw(st.sampled_from(list(places(header))))
        new = changed(header, path, draw.draw(odd), remove=draw.draw(st.booleans()))
        text = json.dumps(new).encode()
        content = len(text).to_bytes(8, "little") + text + content[8 + length :]
    elif harm == "length":
        wrong = draw.draw(st.sampled_from([0, 1, length - 1, length + 1, 2**40, 2**64 - 1]))
        content = wrong.to_bytes(8, "little") + content[8:]
    elif harm == "cut":
        content = content[: draw.draw(st.integers(0, len(content) - 1))]
    else:
        place = draw.draw(st.integers(0, 8 + length))
        content = content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
    (folder / "model.safetensors").write_bytes(content)
    loads_or_says_why(folder)


@pytest.mark.parametrize("content", [b"", b"[]", b"3", b'{"a": 3}', b"[" * 100_000, b"\xff"])
def test_a_header_of_any_form_is_a_sentence(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"header|cut off"):
        tensors.parse(len(content).to_bytes(8, "little") + content)


def test_a_card_does_not_decide_how_much_memory_is_taken(tmp_path: Path) -> None:
    """The shape of an input a thousand times as large: nothing is made before it is compared."""
    folder = write_model(tmp_path, card_of((4,), inputs="float32"))
    card = json.loads((folder / "model.json").read_text())
    card["shape"] = [2**27]
    (folder / "model.json").write_text(json.dumps(card))
    with pytest.raises(LabError, match="has another shape"):
        exported.load(folder)


def test_a_run_that_diverged_says_so(tmp_path: Path) -> None:
    (tmp_path / "done.json").write_text('{"status": "diverged"}')
    with pytest.raises(LabError, match="diverged, so it left no model"):
        exported.load(tmp_path)


def test_two_classes_of_one_name_are_found_when_data_are_read() -> None:
    part = Examples(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(LabError, match="Two classes are named 'a'"):
        Collection(part, ("a", "b", "a"))


# Which run.


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all tasks, with the runs of a small comparison and their list."""
    out = tmp_path_factory.mktemp("compared") / "my runs"
    # So fast that the best epoch is not the last.
    changes = {"epochs": 10, "lr": 0.3}
    comparison = Comparison(tasks.find("digits"), ("ce", "penex"), 2, (50,), changes)
    for run in comparison.runs:
        training.train(run, training.Place(out, CPU))
    (out / "digits" / "comparison.json").write_text(json.dumps(listing_of(comparison, out)))
    return out


def lowest(places: list[Path]) -> Path:
    def score(place: Path) -> float:
        value = json.loads((place / "done.json").read_text())["validation"]["cross_entropy"]
        return float(value)

    return min(places, key=score)


def test_a_folder_of_runs_stands_for_its_best(
    compared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = compared / "digits"
    every = list(folder.glob("*/*/seed-*"))
    assert best.best_run(folder)[:2] == (lowest(every), 4)
    penex = list(folder.glob("penex/*/seed-*"))
    for place in (folder / "penex", penex[0].parent):
        assert best.best_run(place)[:2] == (lowest(penex), 2)
    np.save(tmp_path / "x.npy", np.zeros((2, 8, 8), np.uint8))
    capsys.readouterr()
    cli.main(["predict", str(folder), str(tmp_path / "x.npy")])
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3
    assert str(lowest(every)) in shown.err


def test_only_the_latest_comparison_counts(compared: Path, tmp_path: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(compared, tmp_path / "copy")) / "digits"
    listing = json.loads((folder / "comparison.json").read_text())
    chosen = best.best_run(folder).folder
    listing["runs"] = [r for r in listing["runs"] if folder / r["folder"] != chosen]
    (folder / "comparison.json").write_text(json.dumps(listing))
    assert best.best_run(folder).folder != chosen
    (folder / "comparison.json").unlink()
    assert best.best_run(folder).folder == chosen
    for text in ("{", "[]", '{"runs": [3]}'):
        (folder / "comparison.json").write_text(text)
        with pytest.raises(LabError, match="is damaged"):
            best.best_run(folder)
    with pytest.raises(LabError, match="holds the tasks digits"):
        best.best_run(folder.parent)
    with pytest.raises(LabError, match="holds no completed run"):
        best.best_run(tmp_path)
    with pytest.raises(LabError, match="There is no folder"):
        best.best_run(tmp_path / "nowhere")


# Where it goes.


@pytest.mark.parametrize("command", ["export", "predict"])
@pytest.mark.parametrize("target", ["none/m.onnx", "folder.onnx"])
def test_a_target_is_looked_at_before_the_work(
    command: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.onnx").mkdir()

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(exported, "load", never)
    place = str(tmp_path / target)
    more = ["--onnx", place] if command == "export" else ["x.png", "--to", place]
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, str(tmp_path), *more])
    assert stopped.value.code == 2


def test_an_onnx_file_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["export", str(tmp_path), "--onnx", str(tmp_path / "m.pt")])
    assert stopped.value.code == 2
    assert "ends with .onnx" in capsys.readouterr().err


def test_a_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SystemExit):
        cli.main(["predict", str(folder), str(tmp_path), "--to", str(tmp_path / "pipe")])
    assert (tmp_path / "pipe").is_fifo()


def test_what_was_written_before_stays_where_nothing_is_predicted(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (tmp_path / "bad.png").write_bytes(b"x")
    (tmp_path / "out.csv").write_text("kept")
    arguments = [str(folder), str(tmp_path / "bad.png"), "--to", str(tmp_path / "out.csv")]
    with pytest.raises(SystemExit):
        cli.main(["predict", *arguments])
    assert (tmp_path / "out.csv").read_text() == "kept"
    assert not list(tmp_path.glob(".*"))


# Many files.


def test_no_more_is_read_than_a_batch_needs(
    model: exported.Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad ones in between are told, and the order is kept."""
    monkeypatch.setattr(predict, "_BATCH", 4)
    taken, bad = 0, []

    def endless() -> Iterator[raw.Item]:
        nonlocal taken
        while True:
            taken += 1
            value: Tensor | str = "broken" if taken % 3 == 0 else some_bytes(1)[0]
            yield raw.Item(str(taken), None, value)

    found = predict.predict(model, endless(), CPU, lambda item: bad.append(item.file))
    seen = [next(found)[0].file for _ in range(8)]
    assert seen == ["1", "2", "4", "5", "7", "8", "10", "11"]
    assert bad == ["3", "6", "9"]
    assert taken == 11


def test_a_large_array_is_read_in_pieces(
    model: exported.Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "_CHUNK", 3)
    rows = some_bytes(8)
    np.save(tmp_path / "x.npy", rows.numpy())
    assert isinstance(raw._array(tmp_path / "x.npy"), np.memmap)
    found = list(raw.items(model.card, [tmp_path / "x.npy"]))
    assert [item.row for item in found] == list(range(8))
    assert all(torch.equal(item.value, row) for item, row in zip(found, rows, strict=True))  # type: ignore[arg-type]
    odd_rows = rows.float().numpy()
    odd_rows[7] = np.nan
    np.save(tmp_path / "y.npy", odd_rows)
    *good, last = raw.items(model.card, [tmp_path / "y.npy"])
    assert len(good) == 6
    assert str(last.value).startswith("from row 6 on: ")


def test_hidden_files_of_folders_are_left_out(tmp_path: Path) -> None:
    for name in ("b.png", ".a.png", ".cache/c.png", "d/e.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = raw.files_in([tmp_path / "none", tmp_path])
    assert [str(path.relative_to(tmp_path)) for path in found] == ["none", "b.png", "d/e.png"]


def test_predictions_take_fewer_at_a_time_where_memory_is_short(
    model: exported.Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [raw.Item(str(k), None, row) for k, row in enumerate(some_bytes(40))]
    expected = [said for _, said in predict.predict(model, items, CPU)]
    real: Callable[[Tensor], Tensor] = model.unchecked

    def short(inputs: Tensor) -> Tensor:
        if len(inputs) > 5:
            raise MemoryError
        return real(inputs)

    monkeypatch.setattr(model, "unchecked", short)
    found = [said for _, said in predict.predict(model, items, CPU)]
    assert [said.label for said in found] == [said.label for said in expected]


@pytest.mark.parametrize("view", [View("best"), View("best", True), View("last", True)])
def test_a_comparison_stands_for_what_it_judged(
    view: View, compared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After its best epoch, at a fitted temperature: in the command that it prints, too."""
    import shutil

    folder = Path(shutil.copytree(compared, tmp_path / "copy")) / "digits"
    listing = json.loads((folder / "comparison.json").read_text())
    (folder / "comparison.json").write_text(json.dumps({**listing, "judged": view.identity}))
    done = {place: Record(place).done() for place in folder.glob("*/*/seed-*")}
    scores = {p: view.of(d)["validation"]["cross_entropy"] for p, d in done.items()}
    wanted = min(scores, key=lambda place: scores[place])
    found = best.best_run(folder)
    judged = done[wanted]
    if view.select == "best" and (wanted / "best" / "model.json").exists():
        judged, wanted = judged["best"], wanted / "best"
    assert found.folder == wanted
    fitted = judged["calibrated"]["temperature"] if view.calibrate else None
    assert found.temperature == fitted
    inputs = np.random.default_rng(0).integers(0, 17, (5, 8, 8), dtype=np.uint8)
    np.save(tmp_path / "x.npy", inputs)
    run = home.best(results.load(folder).records(), view)
    assert run is not None
    command = home.at_work(run, folder, view, shown=False).predict
    model = exported.load(wanted)
    if fitted is not None:
        model.temperature = fitted
    with torch.no_grad():
        expected = model(torch.from_numpy(inputs)[:, None]).amax(1).tolist()
    for words in (["predict", str(folder)], shlex.split(command)[1:-1]):
        capsys.readouterr()
        cli.main([*words, str(tmp_path / "x.npy"), "--device", "cpu"])
        rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
        assert [float(row["confidence"]) for row in rows] == pytest.approx(expected, rel=1e-4)


def test_a_best_run_without_its_model_is_not_passed_over_in_silence(
    compared: Path, tmp_path: Path
) -> None:
    import shutil

    folder = Path(shutil.copytree(compared, tmp_path / "copy")) / "digits"
    view, words = View(), "Of the runs whose model is there, the run with the lowest"
    first = home.best(results.load(folder).records(), view)
    assert first is not None
    assert words not in page.build(results.load(folder))
    (first.record.folder / "model.json").unlink()
    second = home.best(results.load(folder).records(), view)
    assert second is not None
    assert second.record.folder != first.record.folder
    assert words in page.build(results.load(folder))
