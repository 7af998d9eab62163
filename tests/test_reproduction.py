"""The paper's main table: its tasks, and the table from records."""

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from our_results import RESULTS, unpacked
from penex import cli
from penex.lab import tasks
from penex.lab.ground.errors import LabError
from penex.lab.records import Record
from penex.lab.tasks import cifar10, pathmnist
from penex.lab.tasks.runs import Run
from penex.lab.training import Hooks, Place
from penex.lab.training.compare import Comparison, compare, listing_of
from penex.lab.tuning.values import Tuned
from penex.paper import claims, floor, plan, sweeps, table1
from penex.paper import tables as report
from penex.paper.printed import PRINTED, authors_of
from penex.paper.standins import write_stand_ins
from penex.report import results


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("official")
    write_stand_ins(folder)
    return folder


# The tasks.


@pytest.mark.parametrize(
    ("name", "classes", "clip", "train_size"),
    [("cifar100", 100, 15.0, 40_000), ("pathmnist", 9, 10.0, 8_000), ("cifar10", 10, 5.0, 40_000)],
)
def test_the_appendix(name: str, classes: int, clip: float, train_size: int, files: Path) -> None:
    task = tasks.find(name)
    assert (task.train_size, task.recipe.clip, task.val) == (train_size, clip, 0.2)
    assert (task.recipe.epochs, task.recipe.lr, task.recipe.batch_size) == (200, 1e-4, 64)
    data = task.collect(files)
    assert len(data.classes) == classes
    assert data.train.inputs.shape[1:] == (3, 32, 32)
    assert data.mean is not None
    assert data.std is not None
    assert data.mean.flatten().tolist() == data.std.flatten().tolist() == [127.5] * 3
    four = {"label_smoothing", "confidence_penalty", "focal", "penex"}
    assert set(authors_of(name)) - {"ex_log_penalty"} == four
    assert set(PRINTED[name]) == {"ce", *four}


def test_pathmnist_is_the_first_ten_thousand_and_is_resized_by_hand(tmp_path: Path) -> None:
    """Training images, then validation images, in the official order; 2 x 2 pixels become one."""
    arrays: dict[str, Any] = {}
    for part, count in (("train", 9_999), ("val", 3), ("test", 2)):
        images = np.zeros((count, 64, 64, 3), dtype=np.uint8)
        images[:, ::2] = 100
        images[-1] = 7
        arrays[f"{part}_images"] = images if part != "train" else images[:, :64]
        arrays[f"{part}_labels"] = (np.arange(count) % 9).astype(np.uint8)[:, None]
    np.savez(tmp_path / "pathmnist_64.npz", allow_pickle=False, **arrays)
    data = pathmnist.collect(tmp_path)
    assert data.train.inputs.shape == (10_000, 3, 32, 32)
    assert (data.train.inputs[9_998] == 7).all()
    assert data.train.targets[9_999] == 0
    inner = data.train.inputs[0, :, 4:28, 4:28].float()
    assert (inner - 50).abs().max() <= 1
    assert data.facts["pixels"] == 64
    whole = pathmnist.collect(tmp_path, 64)
    assert torch.equal(whole.test.inputs[1], torch.full((3, 64, 64), 7, dtype=torch.uint8))  # type: ignore[union-attr]
    with pytest.raises(LabError, match=r"for 28 pixels it needs pathmnist\.npz"):
        pathmnist.collect(tmp_path, 28)


def test_the_size_is_part_of_the_run(files: Path, tmp_path: Path) -> None:
    for size in (28, 32):
        cli.main(
            ["train", "pathmnist", "--data", str(files), "--image-size", str(size), "--loss", "ce",
             "--epochs", "1", "--train-size", "20", "--out", str(tmp_path)]
        )  # fmt: skip
    found = sorted(
        (config["data"]["image_size"], card["shape"])
        for place in tmp_path.glob("pathmnist/ce/*/seed-0")
        for config in [json.loads((place / "config.json").read_text())]
        for card in [json.loads((place / "model.json").read_text())]
    )
    assert found == [(28, [3, 28, 28]), (32, [3, 32, 32])]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "pathmnist", "--loss", "ce"], "it needs pathmnist_64.npz or pathmnist.npz"),
        (["train", "cifar100", "--loss", "ce"], "cifar-100-python/ with train, test and meta"),
        (["train", "pathmnist", "--loss", "ce", "--image-size", "30"], "in 28, 32, 64 pixels"),
        (["reproduce", "table1", "--task", "cifar11"], "cifar10"),
        (["reproduce", "table1", "--task", "pathmnist"], "it needs pathmnist_64.npz"),
        (["reproduce", "table1", "--read-only"], "There are no records"),
        (["reproduce", "table1", "--task", "digits"], "The tasks are cifar10, cifar10_noisy"),
        (["reproduce", "table1", "--task", "cifar10", "cifar10"], "is there twice"),
        (["reproduce", "table1", "--tuned", "--authors"], "Choose one of"),
        (["reproduce", "rho", "--task", "cifar100"], "rho is about cifar10."),
        (["reproduce", "rho", "--task", "cifar10", "cifar100"], "rho is about cifar10."),
        (["reproduce", "gap", "--task", "pathmnist"], "gap is about cifar100, cifar10, cifar10_n"),
        (["reproduce", "tuned"], "No study of cifar10, cifar10_noisy, cifar100, pathmnist in"),
        (["reproduce", "tuned", "--task", "cifar10"], "No study of cifar10 in"),
        (["reproduce", "tuned", "--smoke"], "tuned cannot be tried with --smoke"),
        (["reproduce", "gap", "--tuned"], "are for table1; this is gap"),
        (["reproduce", "alpha", "--read-only"], "There are no records of this"),
        (["reproduce", "resnet", "--read-only"], "; command: penex reproduce resnet --out"),
        (["reproduce", "resnet", "--task", "cifar10"], "The tasks are cifar10_resnet18"),
        (["reproduce", "resnet", "--augment", "blur"], "There is no augmentation 'blur'"),
        (["reproduce", "table1", "--augment", "flip"], "--augment is for resnet and all; this"),
        (["reproduce", "rho", "--plan"], "--plan is for all; this is rho."),
        (["reproduce", "all", "--only", "tabel1"], "Did you mean 'table1'?"),
        (["reproduce", "all", "--task", "cifar10"], "; this is all."),
        (["reproduce", "all", "--only", "rho", "costs"], "Or leave out rho: --only takes table1"),
        (["reproduce", "alpha"], "cifar-100-python/ with train, test and meta"),
        (["reproduce", "runtime", "--read-only"], "takes --device, --out and --smoke only"),
        (["reproduce", "runtime", "--seeds", "3"], "takes --device, --out and --smoke only"),
        (["reproduce", "runtime", "--task", "nope"], "takes --device, --out and --smoke only"),
    ],
)
def test_what_is_missing_is_one_sentence(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PENEX_DATA", str(tmp_path / "nothing"))
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("damage", ["cut", "no array", "labels", "shape"])
def test_a_damaged_file_is_one_sentence(damage: str, files: Path, tmp_path: Path) -> None:
    path = tmp_path / "pathmnist.npz"
    with np.load(files / "pathmnist.npz") as opened:
        arrays = {name: opened[name] for name in opened.files}
    if damage == "no array":
        del arrays["val_labels"]
    elif damage == "labels":
        arrays["test_labels"] = arrays["test_labels"] + 9
    elif damage == "shape":
        arrays["test_images"] = arrays["test_images"][..., 0]
    np.savez(path, allow_pickle=False, **arrays)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(LabError) as refused:
        pathmnist.collect(tmp_path)
    assert str(path) in str(refused.value)


def test_a_cut_file_of_cifar_is_one_sentence(files: Path, tmp_path: Path) -> None:
    """With its size, the official one, and where to get it."""
    shutil.copytree(files / "cifar-10-batches-py", tmp_path / "cifar-10-batches-py")
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    path.write_bytes(path.read_bytes()[:1000])
    words = "It has 1,000 bytes; the official one has 30 MiB. Get it with `penex data get cifar10`"
    with pytest.raises(LabError, match=words) as refused:
        cifar10.collect(tmp_path)
    assert str(path) in str(refused.value)


# The table.


@pytest.mark.slow
def test_every_form_of_the_table_from_tiny_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command, on noise: every task, every loss, every form."""
    cli.main(["reproduce", "table1", "--smoke"])
    said = capsys.readouterr()
    assert said.out.count("PENEX (alpha=") == 4
    assert "is gone: table1.md, table1.csv, table1.tex, table1.html, claims.md." in said.out
    assert "cifar100: 14 of 14 runs to train" in said.err


@pytest.mark.parametrize(
    ("name", "tasks"),
    [
        ("rho", ("cifar10",)),
        *(
            pytest.param(name, tasks, marks=pytest.mark.slow)
            for name, tasks in (
                ("floor", ("cifar100", "pathmnist")),
                ("alpha", ("cifar100",)),
                ("gap", ("cifar100",)),
                ("ablations", ("cifar10",)),
                ("sensitivity", ("cifar10",)),
                ("size", ("cifar10",)),
            )
        ),
    ],
)
def test_every_sweep_from_tiny_files(
    name: str, tasks: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["reproduce", name, "--smoke", "--task", *tasks])
    said = capsys.readouterr()
    for sweep in (one for one in plan.sweeps()[name] if one.task in tasks):
        runs = 2 * len(sweep.losses) * (2 if sweep.train_sizes else 1)
        assert f"{sweep.task}: {runs} of {runs} runs to train" in said.err
        assert f"{sweep.title}\n" in said.out
        assert ("the authors' curve" in said.out) == (name == "floor")
    assert f"What it wrote is gone: {name}.md." in said.out


def test_what_the_new_sweeps_train() -> None:
    """Against the paper's words: alphas, ablations at alpha 1 / (K - 1), sizes."""
    every = plan.sweeps()
    for sweep, task in zip(every["sensitivity"], ("cifar10", "cifar100"), strict=True):
        runs = plan.plan_sweep(sweep, 1).runs
        assert sweep.task == task
        found = {(run.loss.resolved["alpha"], run.loss.resolved["rho"]) for run in runs}
        alphas = (1e-5, 0.2, 0.4, 0.8, 1.6, 3.2)
        assert found == {(alpha, rho) for alpha in alphas for rho in (None, 1e-6)}
    (ablations,) = every["ablations"]
    penex, *others = [run.loss for run in plan.plan_sweep(ablations, 1).runs]
    assert (penex.name, penex.resolved["alpha"], penex.resolved["rho"]) == ("penex", 0.1, None)
    assert {loss.name for loss in others} == {
        "ex", "conex_penalty", "conex_lagrangian", "conex_hard"
    }  # fmt: skip
    assert {loss.resolved["alpha"] for loss in others} == {None}  # 1 / (K - 1)
    (size,) = every["size"]
    runs = plan.plan_sweep(size, 1).runs
    assert {run.train_size for run in runs} == {500, 2_000, 10_000, 40_000}
    assert len(runs) == 4 * 6


def test_the_vision_transformer_is_trained_at_two_rates_by_one_recipe() -> None:
    (sweep,) = plan.sweeps()["imagenet"]
    runs = plan.plan_sweep(sweep, 1).runs
    ours = [(r.loss.resolved["rho"], r.recipe.lr) for r in runs if r.loss.name == "penex"]
    assert ours == [(None, 1e-3), (None, 1e-5), (1e-6, 1e-3), (1e-6, 1e-5)]
    assert {run.loss.resolved["scale"] for run in runs if run.loss.name == "penex"} == {"paper"}
    assert {run.recipe.lr for run in runs if run.loss.name != "penex"} == {1e-3}
    (recipe,) = {replace(run.recipe, lr=1.0) for run in runs}
    assert (recipe.epochs, recipe.warmup_epochs, recipe.clip) == (30, 3.0, 1.0)
    assert (recipe.batch_size, recipe.accumulate, recipe.schedule) == (512, 1, "cosine")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--smoke",), "imagenet cannot be tried with --smoke"),
        (("--task", "cifar10"), "tiny_imagenet"),
        (("--data", "nowhere"), "Tiny-ImageNet is not in nowhere"),
    ],
)
def test_a_tree_of_images_is_asked_for_in_one_sentence(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["reproduce", "imagenet", "--out", str(tmp_path), *options])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_version_is_held_against_the_first_of_its_own_size() -> None:
    rows = []
    for size, first in ((500, 0.4), (2000, 0.6)):
        for label, more in (("ce", 0.0), ("penex", 0.05)):
            made = results.Row(label, label, label, size)
            for seed in range(2):
                value = first + more + 0.001 * seed
                test = {"accuracy": value, "cross_entropy": 1.0, "brier": 0.5, "ece": 0.1}
                made.done[seed] = {"status": "completed", "test": test}
            rows.append(made)
    rows.append(results.Row("focal", "focal loss", "focal", 500))
    found = results.Results(Path(), "cifar10", "", rows)
    sweep = plan.sweeps()["size"][0]
    _, *lines = sweeps.lines(sweep, found)
    assert [line[0] for line in lines] == ["500: ce", "500: penex", "2,000: ce", "2,000: penex"]
    assert [line[6][:6] for line in lines] == ["", "+0.050", "", "+0.050"]
    assert sweeps.notes(sweep, found) == ["Not trained: 500: focal loss."]


def test_a_sweep_trains_what_the_table_has_not(files: Path, tmp_path: Path) -> None:
    """The first version is the table's own run; neither list takes the other's place."""
    comparison = replace(
        plan.plan_sweep(plan.sweeps()["gap"][0], 1),
        task=tasks.placed(tasks.find("cifar100"), files),
        train_sizes=(100,),
        changes={"epochs": 1},
    )
    table = replace(comparison, losses=comparison.losses[:1])
    trained: list[str] = []

    def done(run: Run, record: Record, reused: bool) -> None:
        trained.extend([] if reused else [run.label])

    place = Place(tmp_path, hooks=Hooks(done=done))
    compare(table, place, command="the table")
    compare(comparison, place, command="the sweep", name="gap.json")
    assert trained == list(comparison.losses)
    for name, command in (("comparison.json", "the table"), ("gap.json", "the sweep")):
        assert json.loads((tmp_path / "cifar100" / name).read_text())["command"] == command


def test_a_sweep_is_held_against_its_first_version() -> None:
    """Against numbers computed by hand from the records."""
    from scipy import stats

    sweep = plan.sweeps()["gap"][0]
    comparison = plan.plan_sweep(sweep, 5)
    found = results.load(RESULTS / "cifar100", listing_of(comparison, RESULTS))
    head, first, *others = sweeps.lines(sweep, found)
    assert len({len(line) for line in (head, first, *others)}) == 1
    assert first[0] == "PENEX (alpha=0.085)"
    line = next(line for line in others if line[0] == "EX + log penalty (alpha=0.064, rho=1.0)")
    rows = {row.label: row for row in found.rows}
    a, b = (rows[k].values("accuracy") for k in (comparison.losses[3], comparison.losses[0]))
    less = [a[seed] - b[seed] for seed in range(5)]
    low, high = stats.t.interval(0.95, 4, loc=np.mean(less), scale=stats.sem(less))
    assert line[6] == f"{np.mean(less):+.3f} [{low:+.3f}, {high:+.3f}]"
    assert line[-1] == ("differs" if low > 0.01 else "unclear")


def test_the_floor_of_rho_is_held_against_the_print() -> None:
    """By the records: the paper's line, the nearest versions, the authors' curve beside ours."""
    (sweep,) = [one for one in plan.sweeps()["floor"] if one.task == "cifar100"]
    comparison = plan.plan_sweep(sweep, 5)
    assert plan.missing(comparison, RESULTS) == []
    found = results.load(RESULTS / "cifar100", listing_of(comparison, RESULTS))
    assert len(found.rows) == 7
    *_, paper = sweeps.lines(sweep, found)
    assert paper[:6] == ["the paper prints", "1", "0.460", "2.140", "0.685", ""]
    means = {
        row.argument("rho"): np.mean(list(row.values("accuracy").values())) for row in found.rows
    }
    nearest = min(means, key=lambda rho: abs(means[rho] - 0.460))
    assert nearest == 1e-6
    (said,) = floor.sentences(sweep, found)
    assert f"printed accuracy of 0.460 is rho 1e-06 with {means[1e-6]:.3f}" in said
    less = means[1e-6] - means[None]
    assert f"rho 1e-06 less Algorithm 1: accuracy {less:+.3f} [" in said
    assert said.endswith("beyond luck in accuracy, cross-entropy, Brier.")
    head, *lines = floor.curves(sweep, found)
    assert head == ["epoch", "the authors' curve", "Algorithm 1", "rho 1e-06"]
    assert [line[0] for line in lines[:2]] == ["4", "8"]
    curve = np.array([[float(cell.split()[0]) for cell in line[1:]] for line in lines])
    away = np.abs(curve[:, 1:] - curve[:, :1]).max(axis=0)
    assert away[1] < 0.04 < 0.3 < away[0]  # ours at 1e-6 is theirs, at every epoch


def test_a_version_that_diverged_is_near_to_nothing(copied: Path) -> None:
    (sweep,) = [one for one in plan.sweeps()["floor"] if one.task == "pathmnist"]
    listing = listing_of(plan.plan_sweep(sweep, 5), copied)
    first = results.load(copied / "pathmnist", listing)
    assert "rho 0.001 with" in floor.sentences(sweep, first)[0]
    run = next(run for run in listing["runs"] if run["label"].endswith("rho=0.001"))
    record = Record(copied / "pathmnist" / run["folder"])
    record.finish({**record.done(), "status": "diverged", "reason": "not finite"})
    (said,) = floor.sentences(sweep, results.load(copied / "pathmnist", listing))
    assert "rho 0.001" not in said
    assert "From files of 28 pixels" in said
    assert floor.curves(sweep, first) == []


def test_rows_of_other_files_are_said() -> None:
    """CIFAR-100's sweep of alpha is older than the files in their published order; rho's is not."""
    for name, others in (("alpha", 1), ("rho", 0)):
        sweep = plan.sweeps()[name][0]
        listing = listing_of(plan.plan_sweep(sweep, 5), RESULTS)
        said = sweeps.notes(sweep, results.load(RESULTS / sweep.task, listing))
        assert sum("files with the same checksums" in note for note in said) == others


def test_a_study_is_held_against_the_authors_value(tmp_path: Path) -> None:
    """Each loss against its own, by the records; nothing without a study."""
    sweep = plan.studied("cifar10", RESULTS)
    assert sweep is not None
    theirs = plan.authors(tasks.find("cifar10"))[1:5]
    assert sweep.losses[::2] == theirs
    assert set(sweep.sources) == set(sweep.losses[1::2])
    assert all(source.startswith("our study: best of 50") for source in sweep.sources.values())
    comparison = plan.plan_sweep(sweep, 5)
    found = results.load(RESULTS / "cifar10", listing_of(comparison, RESULTS))
    _, *lines = sweeps.lines(sweep, found)
    assert [line[6] for line in lines[::2]] == 4 * [""]
    for line, own, other in zip(lines[1::2], found.rows[1::2], found.rows[::2], strict=True):
        a, b = own.values("accuracy"), other.values("accuracy")
        assert own.loss == other.loss
        assert line[6].startswith(f"{np.mean([a[seed] - b[seed] for seed in range(5)]):+.3f} [")
    assert sum("our study" in note for note in sweeps.notes(sweep, found)) == 1
    assert plan.studied("cifar10", tmp_path) is None


def test_the_studies_value_is_trained_beside_the_authors(
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What `penex reproduce tuned` does, for an epoch on noise."""
    sweep = plan.studied("cifar10", RESULTS)
    assert sweep is not None
    sweep = replace(sweep, losses=sweep.losses[-2:], sources={})
    monkeypatch.setattr(plan, "studied", lambda *_: sweep)
    cli.main(
        ["reproduce", "tuned", "--task", "cifar10", "--seeds", "2", "--epochs", "1", "--data",
         str(files), "--train-size", "40", "--out", str(tmp_path)]
    )  # fmt: skip
    said = capsys.readouterr()
    assert "cifar10: 4 of 4 runs to train" in said.err
    assert said.out.count("PENEX (alpha=") == 2
    assert len(json.loads((tmp_path / "cifar10" / "tuned.json").read_text())["runs"]) == 4
    assert "beside the authors'" in (tmp_path / "tuned.md").read_text()


def read_only(*words: str) -> None:
    """`penex reproduce table1 --read-only` in the folder results."""
    cli.main(["reproduce", "table1", "--read-only", "--out", "results", *words])


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of our results that a test may damage, in the working directory."""
    monkeypatch.chdir(tmp_path)
    return unpacked(tmp_path / "results")


def test_the_table_with_our_studies_values(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read_only("--tuned", "--task", "cifar10", "pathmnist")
    said = capsys.readouterr().out
    assert "PENEX (alpha=0.000444): our study: best of 50 trials" in said
    assert "PENEX (alpha=0.058): the authors' value (no study)." in said
    for form in ("table1.md", "table1.html", "claims.md"):
        assert "our study: best of 50 trials" in (copied / form).read_text()


def sweeps_of(place: Path) -> int:
    """How many lists of runs a task's folder has besides the table's own."""
    return len([path for path in place.glob("*.json") if path.name != "comparison.json"])


def test_a_table_has_the_sweeps_of_its_tasks(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for task in ("pathmnist", "cifar10_noisy", "cifar10"):
        read_only("--task", task)
        assert (copied / "claims.md").read_text().count("\n### ") == sweeps_of(copied / task)
    (copied / "cifar10" / "studies.journal").write_text("no journal")
    capsys.readouterr()
    read_only("--task", "cifar10")
    assert "Our studies are left out: results/cifar10/studies.journal" in capsys.readouterr().err
    assert (copied / "claims.md").read_text().count("\n### ") == sweeps_of(copied / "cifar10") - 1
    # A sweep of which only the table's own version is left says nothing.
    place = copied / "cifar10_noisy"
    listed = json.loads((place / "comparison.json").read_text())["runs"]
    for folder in place.glob("*/*"):
        if folder not in {(place / run["folder"]).parent for run in listed}:
            shutil.rmtree(folder)
    read_only("--task", "cifar10_noisy")
    assert "\n### " not in (copied / "claims.md").read_text()


def test_claims_need_the_losses_that_they_are_about(copied: Path) -> None:
    """A loss that was not trained is no rival that was beaten; one seed has no interval."""
    shutil.rmtree(copied / "cifar10_noisy" / "focal")
    read_only("--task", "cifar10_noisy")
    said = (copied / "claims.md").read_text()
    assert "of the five losses" not in said
    assert "focal loss (gamma=4.59) reaches" not in said
    assert "PENEX has a better accuracy than cross-entropy" in said
    assert "## In short" in said
    for folder in (copied / "cifar10_noisy" / "ce").iterdir():
        shutil.rmtree(folder)
    read_only("--task", "cifar10_noisy")
    said = (copied / "claims.md").read_text()
    assert "than cross-entropy" not in said
    assert "## In short" not in said
    read_only("--task", "cifar10", "--seeds", "1")
    said = (copied / "claims.md").read_text()
    assert "nan" not in said
    assert "unclear" in said


def test_a_loss_that_diverged_reaches_nothing(copied: Path) -> None:
    for run in [
        run for run in plan.main_table(("cifar10",), 5)[0].runs if run.loss.name == "penex"
    ][1:]:
        record = Record.of(copied, run.config)
        record.finish({**record.done(), "status": "diverged", "reason": "not finite"})
    found = results.load(copied / "cifar10")
    (claim,) = [claim for claim in claims.claims(found) if "PENEX" in claim.words]
    assert (claim.ours, claim.verdict) == ("4 of 5 diverged", "does not hold")
    assert claims.leads([found]) == ""
    sweep = plan.sweeps()["rho"][0]
    comparison = plan.plan_sweep(sweep, 5)
    swept = results.load(copied / "cifar10", listing_of(comparison, copied))
    assert sweeps.lines(sweep, swept)[1][:2] == ["PENEX (alpha=0.03) (4 of 5 diverged)", "1"]


def test_a_machine_that_nobody_named_is_unknown(copied: Path) -> None:
    for path in copied.glob("cifar10/*/*/seed-0/environment.json"):
        path.write_text("{}")
        record = Record(path.parent)
        record.finish(record.done())
    read_only("--task", "cifar10")
    assert "an unknown device, torch ?, Python ?" in (copied / "claims.md").read_text()


def test_only_a_loss_that_the_authors_tuned_is_held_against_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The z-loss is ours, and has no value of theirs; nor is their own value another one."""
    found = [
        Tuned("ce", "nothing to tune"),
        Tuned("label_smoothing:epsilon=0.039", "our study", from_study=True),
        Tuned("confidence_penalty:lambda_=0.25", "the authors' value"),
        Tuned("focal:gamma=2.5", "the authors' value of elsewhere"),
        Tuned("penex:alpha=0.1", "our study", from_study=True),
        Tuned("ce_zloss:lambda_=0.02", "our study", from_study=True),
        Tuned("unnormalised", "nothing to tune"),
    ]
    monkeypatch.setattr(plan, "tuned", lambda *_: found)
    sweep = plan.studied("cifar10", tmp_path)
    assert sweep is not None
    assert sweep.losses == ("penex:alpha=0.03", "penex:alpha=0.1")


def test_versions_that_do_nothing_are_the_same_and_untrained_ones_are_named() -> None:
    def row(label: str, accuracies: list[float]) -> results.Row:
        done: dict[int, Any] = {}
        for seed, value in enumerate(accuracies):
            test = {"accuracy": value, "cross_entropy": 1 - value, "brier": 0.5, "ece": 0.1}
            done[seed] = {"status": "completed", "test": test}
        return results.Row(label, label, "penex", 8, done=done)

    rows = [row("first", [0.43, 0.44]), row("same", [0.43, 0.44]), row("none", [])]
    found = results.Results(Path(), "cifar100", "", [*rows, row("shifted", [0.53, 0.54])])
    sweep = replace(plan.sweeps()["rho"][0], claim="it is idle")
    shown = {line[0]: line for line in sweeps.lines(sweep, found)}
    assert shown["same"][-1] == "the same"
    assert shown["shifted"][-1] == "unclear"  # no spread, no interval: it may be chance
    judged = "In accuracy the claim that it is idle is unclear at our power (1 of 2 versions are)."
    assert sweeps.notes(sweep, found) == [judged, "Not trained: none."]
    idle = results.Results(Path(), "cifar100", "", rows)
    assert sweeps.judgement(sweep, idle) == "In accuracy the claim that it is idle holds."
    for seeds, became in (
        (2, "is unclear at our power (1 of 1 versions are)"),
        (3, "does not hold"),
    ):
        values = zip([0.43, 0.44, 0.45], [0.531, 0.5411, 0.5512], strict=True)
        two = map(row, ("first", "better"), map(list, zip(*list(values)[:seeds], strict=True)))
        spread = results.Results(Path(), "cifar100", "", list(two))
        said = sweeps.judgement(sweep, spread)
        assert said == f"In accuracy the claim that it is idle {became}."
    # Without the first there is nothing to compare with.
    alone = results.Results(Path(), "cifar100", "", [row("first", []), *rows[1:]])
    assert [line[6:] for line in sweeps.lines(sweep, alone)[1:]] == 2 * [["", "", ""]]


def test_our_own_results_are_shown_with_the_papers_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the records in the repository, without data and without training."""
    before = sorted(RESULTS.rglob("*"))
    task = tasks.find("cifar10")
    comparison = Comparison(task, plan.authors(task), 5)
    assert plan.missing(comparison, RESULTS) == []
    found = results.load(RESULTS / "cifar10", listing_of(comparison, RESULTS))
    block = report.block(found)
    row, cells = block.rows[4]
    assert row.label == "penex:alpha=0.03"
    values = [done["test"]["accuracy"] for done in row.done.values()]
    assert cells[0].mean == pytest.approx(np.mean(values))
    assert cells[0].seeds == pytest.approx(np.std(values, ddof=1))
    spreads = [done["test_spread"]["accuracy"] for done in row.done.values()]
    assert cells[0].bootstrap == pytest.approx(np.mean(spreads))
    assert [cell.paper for cell in cells] == [0.793, -0.109, None, -0.646, -0.299]
    assert cells[3].mean == pytest.approx(
        -np.mean([done["test"]["cross_entropy"] for done in row.done.values()])
    )
    written = table1.write(tmp_path, [found], "penex reproduce table1")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "table1.csv").read_text())))
    assert len(lines) == 7 * 5
    assert float(lines[20]["mean"]) == cells[0].mean
    assert "0.793" in (tmp_path / "table1.tex").read_text()
    assert "(0.793)" in (tmp_path / "table1.md").read_text()
    assert "(0.793)" in (tmp_path / "table1.html").read_text()
    assert len(written) == 5
    assert sorted(RESULTS.rglob("*")) == before


def test_a_baseline_that_misses_the_paper_would_be_a_bug() -> None:
    """On clean CIFAR-10 within 0.02 accuracy, by the records."""
    found = results.load(RESULTS / "cifar10")
    for row, cells in report.block(found).rows:
        if row.loss in ("ce", "label_smoothing", "confidence_penalty", "focal"):
            assert cells[0].paper is not None
            assert abs(cells[0].mean - cells[0].paper) <= 0.02


def test_claims_are_judged_by_their_intervals() -> None:
    """Against statistics computed by hand from the records."""
    from scipy import stats

    found = results.load(RESULTS / "cifar10_noisy")
    said = {claim.words: claim for claim in claims.claims(found)}
    assert said["CE reaches the paper's accuracy, within 0.02"].verdict == "holds"
    rows = {row.loss: row for row in found.rows}
    a, b = (rows[loss].values("accuracy") for loss in ("penex", "ce"))
    differences = [a[seed] - b[seed] for seed in range(5)]
    low, high = stats.t.interval(0.95, 4, loc=np.mean(differences), scale=stats.sem(differences))
    claim = said["PENEX has a better accuracy than cross-entropy"]
    assert f"[{low:+.3f}, {high:+.3f}]" in claim.ours
    assert claim.verdict == ("holds" if low > 0 else "does not hold" if high < 0 else "unclear")
    assert claim.paper == "0.766 against 0.724"
    few = [replace(row, done={k: row.done[k] for k in (0, 1)}) for row in found.rows]
    found_few = replace(found, rows=few)
    assert {claim.verdict for claim in claims.claims(found_few)} == {"unclear"}
    best = said["PENEX has the best accuracy of the five losses"]
    assert "label smoothing" in best.ours
    document = table1.document([found], "penex reproduce table1")
    lead = f"**{np.mean(differences):+.3f}** [{low:+.3f}, {high:+.3f}]"
    assert document.count(lead) == 1  # in short; a claim has it without the stars
    assert document.count("\n| ") == 2 + (1 + len(found.rows)) + (1 + len(said))
    assert "H200" in document
