"""A trained model at work: predictions, the exported files, and loading them with torch alone."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from penex import cli
from penex.lab import tasks, training
from penex.lab.data import pixels
from penex.lab.engine import checkpoint, loop
from penex.lab.ground.errors import RecordError
from penex.lab.models import exported
from penex.lab.models import tensors as tensors_
from penex.lab.records import Record
from penex.lab.tasks import runs

from pictures import picture, write_folder

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run on pictures, and pictures it has not seen."""
    root = tmp_path_factory.mktemp("predict")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("PENEX_CACHE", str(root / "cache"))
    write_folder(root / "set", 3, 20)
    cli.main(
        [
            "train",
            "--loss",
            "penex:alpha=0.2",
            "--data",
            str(root / "set"),
            "--epochs",
            "20",
            "--out",
            str(root / "out"),
        ]
    )
    monkeypatch.undo()
    (root / "new").mkdir()
    for label in range(3):
        picture(label, 500).save(root / "new" / f"of {label}.png")
    return root


def run_of(root: Path) -> Path:
    return next((root / "out").glob("set/penex/*/seed-0"))


def predicted(root: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    capsys.readouterr()
    cli.main(["predict", str(run_of(root)), *more])
    return capsys.readouterr().out


def test_predictions_are_right_and_calibrated(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They equal loss.probabilities(model(x)) for the model and loss that were trained."""
    rows = list(csv.DictReader(io.StringIO(predicted(trained, capsys, str(trained / "new")))))
    assert [row["class"] for row in rows] == ["class 0", "class 1", "class 2"]
    model = exported.load(run_of(trained))
    loss = runs.LossSpec.parse("penex:alpha=0.2").make()
    for row in rows:
        content = Path(row["file"]).read_bytes()
        raw = torch.from_numpy(pixels.decode(content, 32)[0].copy())[None]
        with torch.no_grad():
            expected = loss.probabilities(model.logits(raw))[0]
        found = torch.tensor([float(row[f"p:{name}"]) for name in model.classes])
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
        assert float(row["confidence"]) == pytest.approx(found.max().item())
    assert model.temperature == pytest.approx(1 / 1.2)


def test_the_exported_model_is_the_trained_one(tmp_path: Path) -> None:
    """Logits from raw inputs equal those of the run's own checkpoint and of its predictions."""
    spec = runs.LossSpec.parse("conex_hard")
    run = runs.plan(tasks.find("digits"), spec, 0, 50, {"epochs": 1})
    record = training.train(
        run, training.Place(tmp_path, CPU, training.Hooks(keep_checkpoints=True))
    )
    data = training.Place(Path(), CPU).data(run)
    model = exported.load(record.folder)
    with torch.no_grad():
        found = torch.cat([model.logits(x) for x in data.test.batches(256)])
    expected = torch.from_numpy(record.predictions()["test_logits"])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    learner = training.learner_of(run, data, CPU)
    assert checkpoint.load(record.checkpoint, learner, loop.start(learner, data))
    for name, value in learner.module.state_dict().items():
        assert torch.equal(model.network.state_dict()[name], value)


@pytest.mark.slow
@pytest.mark.parametrize("pack", [pytest.param("off", marks=pytest.mark.slow), "2"])
def test_a_model_trained_in_half_precision_is_judged_as_it_is_used(
    pack: str, tmp_path: Path
) -> None:
    """In float32: the record's logits and its last validation metrics are those of the export."""
    cli.main(["compare", "--losses", "ce", "penex", "--seeds", "1", "--epochs", "2", "--pack", pack,
              "--train-size", "60", "--autocast", "True", "--out", str(tmp_path)])  # fmt: skip
    for place in tmp_path.glob("digits/*/*/seed-0"):
        record = Record(place)
        arrays = record.predictions()
        run = runs.plan(tasks.find("digits"), runs.LossSpec("ce"), 0, 60)
        data = training.Place(Path(), CPU).data(run)
        model = exported.load(place)
        with torch.no_grad():
            logits = model.logits(data.test.inputs[data.test.index])
        torch.testing.assert_close(logits.numpy(), arrays["test_logits"], rtol=1e-5, atol=1e-6)
        line = record.metrics()[-1]["validation"]
        assert line == pytest.approx(record.done()["validation"], rel=1e-4, abs=1e-6)


def test_it_loads_in_a_process_without_the_laboratory(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch and penex alone: no safetensors, no numpy, no Pillow, nothing of the extra."""
    raw = torch.zeros(2, 3, 32, 32)
    code = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("safetensors", "PIL", "rich", "tyro", "sklearn", "matplotlib"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
import torch
from penex.lab.models.exported import load
model = load({str(run_of(trained))!r})
print(model.classes, model.temperature)
print(model(torch.zeros(2, 3, 32, 32)).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("('class 0', 'class 1', 'class 2') 0.83333")
    with torch.no_grad():
        here = exported.load(run_of(trained))(raw)
    torch.testing.assert_close(torch.tensor(json.loads(second)), here, rtol=1e-6, atol=1e-7)


def test_json_lines_and_a_file(trained: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    cli.main(
        [
            "predict",
            str(run_of(trained)),
            str(trained / "new" / "of 1.png"),
            "--form",
            "jsonl",
            "--to",
            str(target),
        ]
    )
    line = json.loads(target.read_text())
    assert line["class"] == "class 1"
    assert sum(line["probabilities"].values()) == pytest.approx(1)


def test_unreadable_files_are_named_and_skipped(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.png").write_bytes(b"x")
    Image.new("L", (5, 5)).save(tmp_path / "grey.png")
    paths = [tmp_path / "bad.png", tmp_path / "none.png", tmp_path / "grey.png"]
    cli.main(["predict", str(run_of(trained)), *map(str, paths)])
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert "bad.png: it is not an image" in shown.err
    assert "none.png: there is no such file" in shown.err
    assert "2 skipped." in shown.err


def test_nothing_to_predict_is_one_sentence(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.png").write_bytes(b"x")
    with pytest.raises(SystemExit) as stopped:
        cli.main(["predict", str(run_of(trained)), str(tmp_path)])
    assert stopped.value.code == 2
    assert "There was nothing to predict." in capsys.readouterr().err


def test_arrays_may_go_to_a_model_of_images(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.zeros((2, 32, 32, 3), np.uint8)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "x.npy").rename(tmp_path / "x.NPY")
    np.savez(tmp_path / "x.npz", train_images=x[:1], test_images=x)
    for name in ("x.NPY", "x.npz"):
        assert len(predicted(trained, capsys, str(tmp_path / name)).splitlines()) == 3


@pytest.mark.parametrize(
    "harm",
    [
        {"model": "subprocess:call", "shape": ["true"]},
        {"model": "subprocess:call", "shape": [1]},
        {"temperature": 0},
        {"temperature": "1"},
        {"classes": "ab"},
        {"classes": ["class 0", "class 0", "class 2"]},
        {"preprocessing": {"kind": "images", "image_size": 32, "mean": [0, 0], "std": [1]}},
        {"preprocessing": {"kind": "images", "image_size": 32, "mean": [0], "std": [0]}},
        {"preprocessing": {"kind": "images", "image_size": 32, "mean": [None], "std": [1]}},
        {"preprocessing": {"kind": "table", "columns": 3, "mean": [0], "std": [1]}},
        {"preprocessing": {"kind": "images", "mean": [0], "std": [1]}},
    ],
)
def test_a_card_cannot_do_harm(harm: dict[str, object], trained: Path, tmp_path: Path) -> None:
    card = json.loads((run_of(trained) / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**card, **harm}))
    with pytest.raises(RecordError):
        exported.load(tmp_path)


def test_many_files_go_in_batches(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from penex.lab.models import predict

    whole = predicted(trained, capsys, str(trained / "set"))
    monkeypatch.setattr(predict, "_BATCH", 7)
    parts = predicted(trained, capsys, str(trained / "set"))
    rows, others = (list(csv.DictReader(io.StringIO(text))) for text in (whole, parts))
    assert len(rows) == 60
    assert [row["file"] for row in rows] == [row["file"] for row in others]
    for row, other in zip(rows, others, strict=True):
        assert float(row["confidence"]) == pytest.approx(float(other["confidence"]), rel=1e-5)


def test_tables_and_arrays_are_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(60, 2)) + np.arange(60)[:, None] % 2 * 4
    lines = ["a,b,kind", *(f"{x},{y},{['no', 'yes'][k % 2]}" for k, (x, y) in enumerate(values))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    options = ["--loss", "ce", "--epochs", "20", "--out", str(tmp_path / "out")]
    cli.main(["train", "--data", str(tmp_path / "t.csv"), "--label-column", "kind", *options])
    (tmp_path / "new.csv").write_text("b,extra,a\n4,9,4\n0,9,0\n")
    (tmp_path / "wrong.csv").write_text("b\n4\n")
    run = next((tmp_path / "out").glob("t/ce/*/seed-0"))
    capsys.readouterr()
    files = ["new.csv", "wrong.csv", "none.png", "none.npy"]
    cli.main(["predict", str(run), *(str(tmp_path / name) for name in files)])
    shown = capsys.readouterr()
    assert [row["class"] for row in csv.DictReader(io.StringIO(shown.out))] == ["yes", "no"]
    assert "the column 'a' is missing" in shown.err
    assert "none.png: there is no such file" in shown.err
    assert "none.npy: there is no such file" in shown.err

    np.savez(tmp_path / "arrays.npz", x=values.astype(np.float32), y=np.arange(60) % 2)
    cli.main(["train", "--data", str(tmp_path / "arrays.npz"), *options])
    np.save(tmp_path / "new.npy", values[:4].astype(np.float32))
    np.save(tmp_path / "odd.npy", values[:4, :1])
    run = next((tmp_path / "out").glob("arrays/ce/*/seed-0"))
    capsys.readouterr()
    cli.main(["predict", str(run), str(tmp_path / "new.npy"), str(tmp_path / "odd.npy")])
    shown = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(shown.out)))
    assert [row["class"] for row in rows] == ["0", "1", "0", "1"]
    assert [row["row"] for row in rows] == ["0", "1", "2", "3"]
    assert "takes inputs of shape (N, 2); got (4, 1)" in shown.err


@pytest.mark.parametrize("harm", ["nothing", "card", "format", "tensors", "cut"])
def test_a_damaged_model_is_one_sentence(
    harm: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if harm != "nothing":
        for name in ("model.json", "model.safetensors"):
            (tmp_path / name).write_bytes((run_of(trained) / name).read_bytes())
    card, tensors = tmp_path / "model.json", tmp_path / "model.safetensors"
    if harm == "card":
        card.write_text("{")
    elif harm == "format":
        card.write_text(json.dumps({**json.loads(card.read_text()), "format": 7}))
    elif harm == "tensors":
        tensors.write_bytes(b"x")
    elif harm == "cut":
        tensors.write_bytes(tensors.read_bytes()[:-8])
    with pytest.raises(SystemExit) as stopped:
        cli.main(["predict", str(tmp_path), str(trained / "new")])
    assert stopped.value.code == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert {"nothing": "holds no completed run", "format": "another version"}.get(
        harm, "is damaged"
    ) in text


def test_our_reader_of_safetensors_is_theirs(tmp_path: Path) -> None:
    import safetensors.torch

    tensors = {
        "a": torch.randn(3, 4),
        "b": torch.arange(5),
        "c": torch.randn(2).bfloat16(),
        "d": torch.zeros(0, 3),
        "e": torch.tensor(3.0, dtype=torch.float64),
        "f": torch.tensor([True, False]),
    }
    safetensors.torch.save_file(tensors, tmp_path / "x.safetensors", metadata={"k": "v"})
    found = tensors_.parse((tmp_path / "x.safetensors").read_bytes())
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_onnx_says_what_it_needs(
    trained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n.startswith("onnx") else real(n, *a)
    )
    with pytest.raises(SystemExit) as stopped:
        cli.main(["export", str(run_of(trained)), "--onnx", str(tmp_path / "m.onnx")])
    assert stopped.value.code == 2
    assert "ONNX needs onnx and onnxscript: pip install onnx onnxscript." in capsys.readouterr().err


def test_onnx_gives_the_same_probabilities(trained: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    path = tmp_path / "m.onnx"
    cli.main(["export", str(run_of(trained)), "--onnx", str(path)])
    facts = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(facts["classes"]) == ["class 0", "class 1", "class 2"]
    raw = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8)
    session = runtime.InferenceSession(path)
    (found,) = session.run(None, {"inputs": raw.numpy()})
    with torch.no_grad():
        expected = exported.load(run_of(trained))(raw)
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-5)
    assert facts["inputs"].startswith("uint8 of shape (N, 3, 32, 32), numbers from 0 to 255")
    with pytest.raises(Exception, match="tensor"):  # a graph cannot refuse, but its type does
        session.run(None, {"inputs": raw.numpy() / np.float32(255)})
