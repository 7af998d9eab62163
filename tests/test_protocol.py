"""How runs are judged and tuned: best epoch, fitted temperature, rates of their own."""

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penex import cli, metrics, registry
from penex.calibration import fit_temperature
from penex.lab import models, tasks, training
from penex.lab.data.noise import LabelNoise
from penex.lab.engine.augmentation import Augmentation
from penex.lab.engine.recipe import Recipe
from penex.lab.ground.errors import Interrupted, LabError, RecordError
from penex.lab.models import exported
from penex.lab.records import Record
from penex.lab.records.best import network_of
from penex.lab.records.sealing import seal
from penex.lab.records.views import View
from penex.lab.tasks import runs
from penex.lab.training import Hooks, Place, packing
from penex.lab.training.compare import Comparison, compare
from penex.lab.tuning import study
from penex.lab.tuning.search import Tuning
from penex.lab.tuning.storage import open_storage
from penex.report import page, results, tables, ways
from penex.report.page import blocks

DIGITS = replace(tasks.find("digits"), model="mlp", build=models.find("mlp"))
# With half of the labels wrong the validation cross-entropy rises again after some epochs.
RISING = {"epochs": 8, "lr": 0.01}
WRONG = runs.Treatment(LabelNoise(0.5, "flip"))


def planned(loss: str = "ce", seed: int = 0, **changes: Any) -> runs.Run:
    return runs.plan(DIGITS, runs.Contender.parse(loss), seed, 60, {**RISING, **changes}, WRONG)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return training.train(planned(), Place(tmp_path_factory.mktemp("judged")))


def test_the_best_epoch_is_the_one_of_the_lowest_validation_cross_entropy(judged: Record) -> None:
    done = judged.done()
    seen = [line["validation"]["cross_entropy"] for line in judged.metrics()]
    best = done["best"]
    assert best["epoch"] == int(np.argmin(seen)) + 1 < len(seen)
    assert best["validation"]["cross_entropy"] == pytest.approx(min(seen))
    assert done["validation"]["cross_entropy"] == pytest.approx(seen[-1])


def test_the_network_of_the_best_epoch_is_kept_and_gives_its_numbers(judged: Record) -> None:
    data = Place(Path()).data(planned())
    for folder, view in ((judged.folder, View()), (judged.folder / "best", View("best"))):
        network = exported.load(folder)
        with torch.no_grad():
            inputs = data.test.inputs[data.test.index]
            logits = network.network(data.normalise(inputs, torch.float32))
        found = metrics.cross_entropy(logits, data.test.targets)
        said = view.of(judged.done())["test"]["cross_entropy"]
        assert found.item() == pytest.approx(said, rel=1e-5)


def test_a_best_network_that_is_gone_is_not_the_last_one(judged: Record, tmp_path: Path) -> None:
    """Nor is its run the best of its folder; after the last epoch it still is."""
    record = Record(Path(shutil.copytree(judged.folder, tmp_path / "ce/hash/seed-0")))
    best = View("best", calibrate=True)
    fitted = judged.done()["best"]["calibrated"]["temperature"]
    assert network_of(record, best) == (record.folder / "best", fitted)
    shutil.rmtree(record.folder / "best")
    assert network_of(record, best) is None
    assert network_of(record, View()) == (record.folder, None)
    done = record.done()
    for name in ("best/model.json", "best/model.safetensors"):  # as where the last was the best
        del done["sha256"][name]
    (record.folder / "done.json").write_text(json.dumps({**done, "seal": seal(done)}))
    assert network_of(record, View("best")) == (record.folder, None)
    (record.folder / "model.json").unlink()
    assert network_of(record, View()) is None


def test_the_fitted_temperature_is_that_of_the_validation_set(judged: Record) -> None:
    arrays = {name: torch.from_numpy(a) for name, a in judged.predictions().items() if a.ndim}
    fitted = fit_temperature(arrays["val_logits"], arrays["val_targets"]).item()
    done = judged.done()["calibrated"]
    assert done["temperature"] == pytest.approx(fitted)
    at = metrics.brier(arrays["test_logits"], arrays["test_targets"], temperature=fitted)
    assert done["test"]["brier"] == pytest.approx(at.item())
    assert done["test"]["accuracy"] == judged.done()["test"]["accuracy"]


@pytest.mark.parametrize("pack", [1, 8])
def test_a_resumed_run_has_the_same_best_epoch_and_network(tmp_path: Path, pack: int) -> None:
    """Stopped after the best epoch: its network is in the checkpoint."""
    some = [planned("ce"), planned("penex", 1)]
    keep = Hooks(save_seconds=1e9)
    packing.train(some, Place(tmp_path / "whole", hooks=keep), pack)
    steps = iter(range(6))
    stop = replace(keep, stop=lambda: next(steps, None) is None)
    with pytest.raises(Interrupted):
        packing.train(some, Place(tmp_path / "broken", hooks=stop), pack)
    packing.train(some, Place(tmp_path / "broken", hooks=keep), pack)
    for run in some:
        whole, broken = (Record.of(tmp_path / name, run.config) for name in ("whole", "broken"))
        assert whole.done()["best"]["epoch"] < RISING["epochs"]
        assert whole.done()["best"] == broken.done()["best"]
        for name in ("best/model.safetensors", "model.safetensors"):
            assert (whole.folder / name).read_bytes() == (broken.folder / name).read_bytes()


def test_a_pack_has_the_best_epochs_of_its_runs_alone(tmp_path: Path) -> None:
    some = [planned("ce"), planned("penex", 1)]
    for pack in (1, 8):
        packing.train(some, Place(tmp_path / str(pack)), pack)
    for run in some:
        a, b = (Record.of(tmp_path / pack, run.config).done()["best"] for pack in ("1", "8"))
        assert a["epoch"] == b["epoch"]
        assert a["test"]["cross_entropy"] == pytest.approx(b["test"]["cross_entropy"], rel=1e-3)


def test_a_best_network_that_was_changed_is_refused(judged: Record, tmp_path: Path) -> None:
    place = tmp_path / "seed-0"
    (place / "best").mkdir(parents=True)
    for name in ("done.json", "best/model.json", "best/model.safetensors"):
        (place / name).write_bytes((judged.folder / name).read_bytes())
    exported.load(place / "best")
    card = json.loads((place / "best/model.json").read_text())
    (place / "best/model.json").write_text(json.dumps({**card, "temperature": 2.0}))
    with pytest.raises(RecordError, match="checksum"):
        exported.load(place / "best")


def test_the_last_epoch_may_be_the_best_and_then_there_is_one_network(tmp_path: Path) -> None:
    record = training.train(planned(epochs=1), Place(tmp_path))
    done = record.done()
    assert done["best"]["epoch"] == 1
    assert done["best"]["test"] == done["test"]
    assert not (record.folder / "best").exists()


def test_a_comparison_is_judged_as_it_was_asked_for(tmp_path: Path) -> None:
    what = Comparison(DIGITS, ("ce", "penex"), 1, (60,), RISING, WRONG, view=View("best", True))
    listing = compare(what, Place(tmp_path))
    found = results.load(tmp_path / "digits")
    record = Record(tmp_path / "digits" / listing["runs"][0]["folder"])
    best = record.done()["best"]["calibrated"]["test"]
    assert found.rows[0].values("cross_entropy") == {0: best["cross_entropy"]}
    last = results.load(tmp_path / "digits", view=View())
    assert last.rows[0].values("cross_entropy") == {0: record.done()["test"]["cross_entropy"]}


def test_a_record_without_a_best_epoch_is_not_shown_at_it() -> None:
    with pytest.raises(RecordError, match="after the best epoch"):
        View("best").of({"status": "completed", "test": {}})


# A recipe of its own.


def test_a_contender_has_a_recipe_of_its_own_and_keeps_the_name_of_its_run() -> None:
    own = planned("penex:alpha=0.2@lr=0.001")
    same = runs.plan(
        DIGITS, runs.LossSpec("penex", {"alpha": 0.2}), 0, 60, {**RISING, "lr": 0.001}, WRONG
    )
    assert own.recipe.lr == 0.001
    assert own.config == same.config
    assert own.label == "penex:alpha=0.2@lr=0.001"
    assert registry.title_of(own.label) == "PENEX (alpha=0.2, lr=0.001)"


@pytest.mark.parametrize(
    "text",
    ["ce@", "ce@lr", "ce@speed=3", "ce@lr=1,lr=2", "ce@lr=fast", "ce@epochs=1.5", "ce@autocast=1",
     "ce@batch_size=8.0", "ce@lr=1e-3@epochs=5", "ce@clip=True"],
)  # fmt: skip
def test_a_contender_that_says_nothing_is_one_sentence(text: str) -> None:
    with pytest.raises(LabError):
        planned(text)


def test_the_same_loss_at_two_rates_is_two_rows_and_twice_the_same_is_none(tmp_path: Path) -> None:
    what = Comparison(DIGITS, ("ce@lr=0.001", "ce@lr=0.01"), 1, (60,), {"epochs": 1})
    compare(what, Place(tmp_path))
    found = results.load(tmp_path / "digits")
    assert [row.title for row in found.rows] == ["CE (lr=0.001)", "CE (lr=0.01)"]
    assert blocks.own_recipes(found) == ["lr"]
    text = page.build(found)
    assert "learning rate 0.001" not in text
    assert "1 epoch, adam" in text
    with pytest.raises(LabError, match="twice"):
        _ = replace(what, losses=("ce@lr=0.01", "ce@lr=0.01")).runs


def test_a_rate_is_tuned_along_and_compared_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--epochs", "1", "--train-size", "60", "--out", str(tmp_path)]
    some = ["ce", "penex:rho=1e-3"]
    study = ["--with", "lr", "--trials", "2", "--batch", "2", "--select", "best", "--calibrate"]
    cli.main(["tune", "--loss", *some, *study, *small])
    cli.main(["compare", "--losses", *some, "--tuned", "--seeds", "1", *small])
    capsys.readouterr()
    listing = json.loads((tmp_path / "digits/comparison.json").read_text())
    labels = [run["label"] for run in listing["runs"]]
    assert labels[0].startswith("ce@lr=")
    assert labels[1].startswith("penex:rho=0.001,alpha=")
    tried = [Record(path.parent) for path in tmp_path.glob("digits/ce/*/seed-0/done.json")]
    best = min(tried, key=lambda r: r.done()["best"]["calibrated"]["validation"]["cross_entropy"])
    assert float(labels[0].partition("=")[2]) == pytest.approx(
        best.config()["recipe"]["lr"], rel=0.01
    )


def test_every_loss_is_tried_at_the_same_rates(tmp_path: Path) -> None:
    """Equal effort: the draws of a blind batch depend on seed and number, not on the loss."""
    what = Tuning(DIGITS, ("ce", "penex", "penex:rho=1e-6"), 12, 12, along=("lr",))
    rates = []
    with contextlib.closing(open_storage(None, tmp_path)) as storage:
        for loss in what.losses:
            trials = study.next_batch(what, study.open_study(what, loss, storage), loss)
            rates.append([trial.params["lr"] for trial in trials])
    assert rates[0] == rates[1] == rates[2]
    assert len(set(rates[0])) == 12
    low, high = 0.3 * DIGITS.recipe.lr, 30 * DIGITS.recipe.lr
    assert low <= min(rates[0]) < 0.3 * (low * high) ** 0.5  # by factors: half below the middle one
    assert max(rates[0]) <= high


def test_a_search_by_logarithms_is_another_study() -> None:
    rate = Tuning(DIGITS, ("penex",), along=("lr",)).identity("penex")
    assert rate["log"] == ["lr"]
    assert "log" not in Tuning(DIGITS, ("penex",)).identity("penex")


def test_the_identity_of_a_study_without_a_rate_is_what_it_was() -> None:
    known = Tuning(DIGITS, ("penex",)).identity("penex")
    assert known["search"] == {"alpha": [1e-5, 1.0]}
    assert "judged" not in known
    with pytest.raises(LabError, match="part of the recipe"):
        Tuning(DIGITS, ("penex",), along=("dropout",))


# Augmentation.


def _shifted(image: np.ndarray[Any, Any], down: int, right: int) -> np.ndarray[Any, Any]:
    """An image moved, black coming in."""
    found = np.zeros_like(image)
    h, w = image.shape[-2:]
    for i in range(h):
        for j in range(w):
            if 0 <= i + down < h and 0 <= j + right < w:
                found[..., i, j] = image[..., i + down, j + right]
    return found


def test_an_augmented_image_is_a_mirrored_and_moved_one() -> None:
    images = torch.randint(1, 256, (40, 2, 16, 16), dtype=torch.uint8)
    found = Augmentation("flip,crop", torch.tensor(3), torch.tensor(5.0))(images)
    ways = set()
    for image, changed in zip(images.numpy(), found.numpy(), strict=True):
        fits = [
            (mirrored, down, right)
            for mirrored in (False, True)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if np.array_equal(
                _shifted(image[..., ::-1] if mirrored else image, down, right), changed
            )
        ]
        assert len(fits) == 1
        ways.add(fits[0])
    assert {way[0] for way in ways} == {False, True}
    assert {way[1] for way in ways} == {way[2] for way in ways} == {-2, -1, 0, 1, 2}


def test_packed_images_are_augmented_as_each_alone_and_by_place() -> None:
    images = torch.randint(0, 256, (2, 6, 1, 8, 8), dtype=torch.uint8)
    seeds, count = torch.tensor([3, 4]), torch.tensor(7.0)
    together = Augmentation("flip,crop", seeds, count)(images)
    for k, seed in enumerate(seeds):
        alone = Augmentation("flip,crop", seed, count)
        assert torch.equal(alone(images[k]), together[k])
        assert torch.equal(alone(images[k, 2:], first=2), together[k, 2:])
    later = Augmentation("flip,crop", seeds, torch.tensor(8.0))(images)
    assert not torch.equal(later, together)
    assert Augmentation("", seeds, count)(images) is images


def test_augmented_runs_are_the_same_alone_and_packed_and_other_runs(tmp_path: Path) -> None:
    some = [planned(loss, epochs=2, augment="flip,crop") for loss in ("ce", "penex")]
    assert some[0].config["recipe"]["augment"] == "flip,crop"
    assert "augment" not in planned().config["recipe"]
    for pack in (1, 8):
        packing.train(some, Place(tmp_path / str(pack)), pack)
    for run in some:
        a, b = (Record.of(tmp_path / pack, run.config).metrics() for pack in ("1", "8"))
        for one, other in zip(a, b, strict=True):
            assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-3)
    plain = training.train(planned(epochs=2), Place(tmp_path / "plain")).metrics()
    first = Record.of(tmp_path / "1", some[0].config).metrics()
    assert plain[0]["train_loss"] != pytest.approx(first[0]["train_loss"], rel=1e-6)


@pytest.mark.parametrize("ways", ["rotate", "flip,flip", "crop,flip"])
def test_an_unknown_augmentation_is_one_sentence(ways: str) -> None:
    with pytest.raises(LabError, match="augment"):
        Recipe(1, 0.1, augment=ways)


def test_rows_of_numbers_cannot_be_augmented(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "flowers.csv"
    rows = [f"{k % 7},{k % 3},{'ab'[k % 2]}" for k in range(60)]
    table.write_text("\n".join(["x,y,label", *rows]))
    rest = ["--label-column", "label", "--epochs", "1", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as end:
        cli.main(["compare", "--data", str(table), "--augment", "flip", *rest])
    assert end.value.code == 2
    assert "for images" in capsys.readouterr().err


def test_a_table_has_every_way_to_judge(tmp_path: Path) -> None:
    what = Comparison(DIGITS, ("ce", "penex"), 2, (60,), RISING, WRONG)
    compare(what, Place(tmp_path))
    found = results.load(tmp_path / "digits")
    lines = ways.lines(found.rows)
    best = found.rows[1].records
    values = [run.done["best"]["calibrated"]["test"]["cross_entropy"] for run in best.values()]
    cell = lines[1][ways.HEADS.index("cross-entropy, best epoch, fitted")]
    assert cell.replace("*", "").startswith(f"{sum(values) / 2:.4f} ± ")
    assert not any("**" in cell for line in lines for cell in line)  # two seeds show no winner
    assert cell in tables.markdown(found)
    for run in best.values():
        run.done.pop("best")
    assert ways.lines(found.rows) == []


def test_a_checkpoint_whose_best_epoch_was_changed_is_refused(tmp_path: Path) -> None:
    steps = iter(range(6))
    stop = Hooks(stop=lambda: next(steps, None) is None)
    with pytest.raises(Interrupted):
        training.train(planned(), Place(tmp_path, hooks=stop))
    (path,) = tmp_path.rglob("position.json")
    place = json.loads(path.read_text())
    path.write_text(json.dumps({**place, "best_value": 0.0}))
    with pytest.raises(RecordError, match="position was changed"):
        training.train(planned(), Place(tmp_path))
