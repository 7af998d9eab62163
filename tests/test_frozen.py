"""An encoder that stays as it is: features made once, a small network, and its predictions."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from command_line import run, sentence
from penex.lab import tasks
from penex.lab.ground.errors import LabError, RecordError
from penex.lab.models import exported, frozen
from penex.lab.models.encoder import Encoder
from penex.lab.tasks import own
from penex.lab.tasks.frozen import frozen as frozen_task

from texts import sentences, write_encoder, write_table

COLUMNS = ("--text-column", "body", "--label-column", "stars")
LOSSES = ("--losses", "ce", "conex_hard", "--seeds", 1, "--epochs", 20, "--device", "cpu")


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return write_encoder(tmp_path / "encoder")


def quiet(done: int, total: int) -> None:
    """No one watches."""


def test_features_are_the_mean_over_a_texts_own_tokens(encoder: Path, own_cache: Path) -> None:
    """Whatever stands beside a text; the second time they come from the cache."""
    found = Encoder(str(encoder))
    texts = ["good film", "bad " * 30, "a", "the cast was fine and the story quite poor"]
    ids = found.tokenizer.ids([texts[k % 4] + f" {k}" for k in range(150)])
    network: Any = found.build((), 2).eval().get_submodule("network.bert")
    seen: list[int] = []
    got = frozen.features(found, ids, lambda done, total: seen.append(done))
    with torch.no_grad():
        for row, features in zip(ids[:8], got, strict=False):
            tokens = row[row != 0].long().unsqueeze(0)
            states = network(input_ids=tokens).last_hidden_state[0]
            torch.testing.assert_close(features, states.mean(0), rtol=1e-5, atol=1e-6)
    assert (seen[0], seen[-1]) == (0, len(np.unique(ids.numpy(), axis=0)))  # each once
    seen.clear()
    turned = ids.flip(0)  # the same texts in another order
    again = frozen.features(found, turned, lambda done, total: seen.append(done))
    assert again.equal(got.flip(0))
    assert not seen
    assert len(list(own_cache.glob("features-*"))) == 1
    other = Encoder(str(write_encoder(encoder.parent / "other", seed=1)))
    assert not torch.allclose(frozen.features(other, ids, quiet), got)


def test_features_that_cannot_be_kept_are_used(
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PENEX_CACHE", str(tmp_path / "file/cache"))  # no folder can be made there
    found = Encoder(str(encoder))
    ids = found.tokenizer.ids(["good film", "bad film"])
    assert frozen.features(found, ids, quiet, "cpu").shape == (2, 16)
    assert "reads them again" in capsys.readouterr().err


def test_a_frozen_task_is_another_task_of_the_same_texts(tmp_path: Path, encoder: Path) -> None:
    task, collection = own.own(
        write_table(tmp_path / "reviews.csv"),
        text_column="body",
        label_column="stars",
        encoder=str(encoder),
    )
    made = frozen_task(task)
    inputs = made.collect().train.inputs
    assert inputs.shape == (40, 16)
    assert inputs.dtype == torch.float32
    assert made.collect().train.targets.equal(collection.train.targets)
    assert made.recipe == own.RECIPE
    assert {*made.decisive} == {*task.decisive, "frozen"}
    with pytest.raises(LabError, match="--frozen leaves an encoder"):
        frozen_task(tasks.find("digits"))


def test_a_small_network_is_kept_and_finds_its_encoder_again(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record's logits are those of the texts; another encoder, or none, is refused."""
    table, out = write_table(tmp_path / "reviews.csv", 80), tmp_path / "runs"
    given = ("--data", table, *COLUMNS, "--encoder", encoder, "--frozen", "--out", out)
    run("compare", *given, *LOSSES)
    for folder in sorted((out / "reviews").glob("*/*/seed-0")):
        card = json.loads((folder / "model.json").read_bytes())
        assert card["shape"] == [16]
        model = exported.load(folder, encoder=encoder)
        held = np.load(folder / "predictions.npz")
        texts = dict(sentences(80))
        said = model.predict(list(texts))
        right = np.mean(
            [one.label == label for one, label in zip(said, texts.values(), strict=True)]
        )
        assert right > 0.8
        with torch.no_grad():
            logits = model.logits(Encoder(str(encoder)).tokenizer.ids(list(texts)))
        for row in held["test_logits"]:
            assert np.abs(logits.numpy() - row).max(1).min() < 1e-4
        assert (folder / "model.safetensors").stat().st_size < 400_000
    capsys.readouterr()
    run("predict", folder, table, "--device", "cpu", "--encoder", encoder)
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["class"] for row in rows] == [one.label for one in said]
    other = write_encoder(tmp_path / "other", seed=1)
    run("predict", folder, table, "--encoder", other, code=2)
    assert "not the encoder 'encoder'" in sentence(capsys)
    with pytest.raises(RecordError, match="which it does not hold"):
        exported.load(folder)
    made = card["preprocessing"]
    wrongs: list[dict[str, object]] = [{"std": [0.0] * 16}, {"mean": []}, {"encoder_sha256": 3}]
    for wrong in wrongs:
        damaged = {**card, "preprocessing": {**made, "features": {**made["features"], **wrong}}}
        for name in ("model.json", "model.safetensors"):
            (tmp_path / name).write_bytes((folder / name).read_bytes())
        (tmp_path / "model.json").write_text(json.dumps(damaged))
        run("predict", tmp_path, table, "--encoder", encoder, code=2)
        assert "is damaged" in sentence(capsys)


def test_an_encoder_is_for_a_model_that_lacks_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    run("train", "digits", "--loss", "ce", "--epochs", 1, "--device", "cpu", "--out", out)
    capsys.readouterr()
    run("predict", out / "digits", tmp_path / "x.npy", "--encoder", tmp_path, code=2)
    assert "needs no encoder" in capsys.readouterr().err
