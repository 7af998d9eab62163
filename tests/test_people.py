"""Labels and votes of people: the tasks that train on them, and the metric that is held to them."""

import csv
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penex import metrics
from penex.lab import tasks
from penex.lab.data import people
from penex.lab.data.split import split
from penex.lab.ground.errors import LabError, RecordError
from penex.lab.records import Record
from penex.lab.training import Place, compare
from penex.paper.standins import write_stand_ins
from penex.report import page, results, tables

from own_files import run

Array = np.ndarray[Any, Any]
TINY = ("--loss", "ce", "--epochs", "1", "--train-size", "100", "--device", "cpu")
KINDS = {
    "cifar10n_aggre": "aggre_label",
    "cifar10n_random1": "random_label1",
    "cifar10n_worse": "worse_label",
    "cifar100n": "noisy_label",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The official files of noise: 100 and 200 images to train on, 20 and 100 to test on."""
    folder = tmp_path / "data"
    write_stand_ins(folder)
    (folder / "human").mkdir()
    return folder


def some_labels(task: str) -> dict[str, Array]:
    """Clean labels as the stand-ins have them, and every fifth one wrong."""
    count, classes = (200, 100) if task == "cifar100n" else (100, 10)
    each = 100 if task == "cifar100n" else 20
    clean = np.arange(count) % each % classes
    names = [kind for name, kind in KINDS.items() if (name == "cifar100n") == (task == "cifar100n")]
    found = {
        name: np.where(np.arange(count) % 5 == k, (clean + 1) % classes, clean)
        for k, name in enumerate(names)
    }
    return {people.CLEAN: clean, **found}


def as_npz(root: Path, task: str, labels: dict[str, Array]) -> Path:
    path = root / "human" / ("cifar100n.npz" if task == "cifar100n" else "cifar10n.npz")
    np.savez(path, allow_pickle=False, **{k: v.astype(np.uint8) for k, v in labels.items()})
    return path


def as_published(root: Path, task: str, labels: dict[str, Array]) -> Path:
    """As the authors wrote theirs: lists of coarse labels are among them."""
    path = root / ("CIFAR-100_human.pt" if task == "cifar100n" else "CIFAR-10_human.pt")
    torch.save({**labels, "clean_coarse_label": [0] * len(labels[people.CLEAN])}, path)
    return path


@pytest.mark.parametrize("write", [as_npz, as_published])
@pytest.mark.parametrize("name", KINDS)
def test_training_and_validation_have_the_labels_that_people_gave(
    root: Path, name: str, write: Callable[[Path, str, dict[str, Array]], Path]
) -> None:
    labels = some_labels(name)
    write(root, name, labels)
    task = tasks.find(name)
    noisy, clean = task.collect(root), tasks.find(name.partition("n")[0]).collect(root)
    given = torch.from_numpy(labels[KINDS[name]])
    assert torch.equal(noisy.train.targets, given)
    assert torch.equal(noisy.train.inputs, clean.train.inputs)
    assert noisy.test is not None
    assert clean.test is not None
    assert torch.equal(noisy.test.targets, clean.test.targets)
    assert noisy.facts["labels_wrong"] == len(given) / 5
    parts = split(noisy, 0, None, val=task.val)
    for part in (parts.train, parts.val):
        assert torch.equal(part.targets, given[part.index])
    official = tasks.find("cifar100" if name == "cifar100n" else "cifar10")
    assert (task.recipe, task.search, task.build) == (
        official.recipe,
        official.search,
        official.build,
    )


def test_the_checksum_is_that_of_the_labels_whatever_file_has_them(root: Path) -> None:
    labels = some_labels("cifar100n")
    task = tasks.find("cifar100n")
    as_published(root, task.name, labels)
    published = task.collect(root).facts
    as_npz(root, task.name, labels)
    assert task.collect(root).facts == published


class Evil:
    def __reduce__(self) -> Any:
        return (os.system, ("touch escaped",))


def evil(root: Path) -> None:
    torch.save({people.CLEAN: Evil()}, root / "CIFAR-10_human.pt")


def cut(root: Path) -> None:
    path = as_published(root, "cifar10n_worse", some_labels("cifar10n_worse"))
    path.write_bytes(path.read_bytes()[:500])


def a_list(root: Path) -> None:
    torch.save([1, 2], root / "CIFAR-10_human.pt")


def no_pickle(root: Path) -> None:
    with zipfile.ZipFile(root / "CIFAR-10_human.pt", "w") as archive:
        archive.writestr("archive/version", "3")


def changed(**changes: Callable[[Array], Array] | None) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        labels = some_labels("cifar10n_worse")
        for name, change in changes.items():
            before = labels.pop(name)
            if change is not None:
                labels[name] = change(before)
        as_npz(root, "cifar10n_worse", labels)

    return write


def one_other(labels: Array) -> Array:
    return np.where(np.arange(len(labels)) == 7, 9 - labels, labels)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda root: None, "human/cifar10n.npz, human/CIFAR-10_human.pt"),
        (lambda root: None, "Wei et al., ICLR 2022"),
        (evil, "it would call"),
        (cut, "CIFAR-10_human.pt cannot be read"),
        (no_pickle, "CIFAR-10_human.pt cannot be read"),
        (a_list, "it is a list"),
        (changed(worse_label=None), "has no worse_label; it has"),
        (changed(worse_label=lambda y: y[:-1]), "has 99 labels, and there are 100 training images"),
        (changed(clean_label=one_other), "at 1 of 100 places"),
        (changed(worse_label=lambda y: y + 5), "worse_label goes from 5 to 14; right is 0 to 9"),
        (changed(worse_label=lambda y: y.reshape(10, 10)), "has no worse_label"),
    ],
)
def test_labels_that_do_not_fit_are_one_sentence(
    root: Path, harm: Callable[[Path], None], words: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    harm(root)
    monkeypatch.chdir(root)
    run("train", "cifar10n_worse", *TINY, "--data", root, "--out", root / "out", code=2)
    (said,) = capsys.readouterr().err.splitlines()
    assert words in said
    assert not list(root.rglob("escaped*"))
    assert not list(root.glob("out/*/*/*/*/done.json"))


def write_votes(root: Path, name: str = "cifar10h.npz", shift: int = 0) -> Array:
    """Ten votes for the right class and some for the next one."""
    right = np.arange(20) % 10
    votes = np.zeros((20, 10), np.uint8)
    votes[np.arange(20), (right + shift) % 10] = 10
    votes[np.arange(20), (right + shift + 1) % 10] = np.arange(20) % 4
    if name.endswith("npz"):
        np.savez(root / "human" / name, allow_pickle=False, counts=votes)
    elif "probs" in name:
        np.save(root / name, votes / votes.sum(1, keepdims=True), allow_pickle=False)
    else:
        np.save(root / name, votes.astype(np.int64), allow_pickle=False)
    return votes


@pytest.mark.parametrize("name", ["cifar10h.npz", "cifar10h-counts.npy", "cifar10h-probs.npy"])
def test_votes_come_in_three_forms(root: Path, name: str) -> None:
    votes = torch.from_numpy(write_votes(root, name)).double()
    test = tasks.find("cifar10").collect(root).test
    assert test is not None
    assert test.votes is not None
    shares = [x.double() / x.sum(1, keepdim=True) for x in (test.votes, votes)]
    torch.testing.assert_close(shares[0], shares[1], rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (np.ones((19, 10)), r"shape \(19, 10\), and there are 20 test images of 10 classes"),
        (np.zeros((20, 10)), "nobody voted on"),
        (-np.ones((20, 10)), "0 or more"),
        (np.ones(20), "for each image and class"),
        (np.eye(10)[(np.arange(20) + 1) % 10], "agree with the label of 0%"),
    ],
)
def test_votes_that_do_not_fit_are_one_sentence(root: Path, counts: Array, words: str) -> None:
    np.savez(root / "human" / "cifar10h.npz", allow_pickle=False, counts=counts)
    with pytest.raises(LabError, match=words):
        tasks.find("cifar10").collect(root)


def test_the_files_can_be_looked_at(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_votes(root)
    run("data", "list")
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
    assert {"cifar10n", "cifar100n", "cifar10h"} <= set(listed)
    run("data", "check", as_published(root, "cifar100n", some_labels("cifar100n")))
    assert "20.0% wrong" in capsys.readouterr().out
    run("data", "check", root / "human" / "cifar10h.npz")
    assert "10 to 13 votes for each of 20 test images" in capsys.readouterr().out


# The metric.


def compared(root: Path, out: Path, pack: int = 1) -> results.Results:
    task = tasks.placed(tasks.find("cifar10"), root)
    what = compare.Comparison(task, ("ce", "penex"), 1, (40,), {"epochs": 1})
    listing = compare.compare(what, Place(out), pack=pack)
    return results.load(out / "cifar10", listing)


def test_human_cross_entropy_is_the_cross_entropy_to_the_votes() -> None:
    torch.manual_seed(0)
    logits, votes = torch.randn(6, 4, dtype=torch.float64), torch.randint(1, 9, (6, 4))
    q = votes / votes.sum(1, keepdim=True)
    expected = torch.nn.functional.cross_entropy(logits / 0.8, q)
    torch.testing.assert_close(
        metrics.human_cross_entropy(logits, votes, temperature=0.8), expected
    )
    certain = torch.nn.functional.one_hot(torch.arange(6) % 4) * 50
    masked = logits.clone()
    masked[0, 3] = -torch.inf  # a class that nobody chose may be impossible
    torch.testing.assert_close(
        metrics.human_cross_entropy(masked, certain),
        metrics.cross_entropy(masked, torch.arange(6) % 4),
    )
    for wrong in (votes[:5], votes[:, 0], -votes, torch.zeros(6, 4)):
        with pytest.raises(ValueError, match="Votes are a number of at least 0"):
            metrics.human_cross_entropy(logits, wrong)


@pytest.mark.parametrize("pack", [1, 2])
def test_votes_are_a_second_target_of_the_test_set(root: Path, tmp_path: Path, pack: int) -> None:
    """In done.json, tables and the page; of validation, and without votes, there is nothing."""
    plain = compared(root, tmp_path / "plain")
    votes = torch.from_numpy(write_votes(root))
    found = compared(root, tmp_path / "voted", pack)
    record = found.rows[1].records[0].record
    assert record.folder.parts[-3:] == plain.rows[1].records[0].record.folder.parts[-3:]
    arrays, done = record.predictions(), record.done()
    logits, temperature = torch.from_numpy(arrays["test_logits"]), float(arrays["temperature"])
    expected = metrics.human_cross_entropy(logits, votes, temperature=temperature).item()
    assert done["test"]["human_cross_entropy"] == pytest.approx(expected, rel=1e-5)
    assert done["test_spread"]["human_cross_entropy"] > 0
    fitted = done["calibrated"]["temperature"]
    expected_then = metrics.human_cross_entropy(logits, votes, temperature=fitted).item()
    assert done["calibrated"]["test"]["human_cross_entropy"] == pytest.approx(expected_then)
    assert "human_cross_entropy" not in done["validation"]
    assert all("human_cross_entropy" not in line["validation"] for line in record.metrics())
    title, number = "human cross-entropy", f"{expected:.4f}"
    for text in (tables.markdown(found), tables.latex(found), page.build(found)):
        assert title in text
        assert number in text
    for text in (tables.markdown(plain), tables.latex(plain), page.build(plain)):
        assert title not in text
    lines = csv.DictReader(tables.as_csv(found).splitlines())
    parts = [line["part"] for line in lines if line["metric"] == "human_cross_entropy"]
    assert parts == ["test", "test"]
    assert "human_cross_entropy" not in tables.as_csv(plain)
    assert "–" in page.build(found, plain)


def test_votes_that_come_later_leave_what_is_done(root: Path, tmp_path: Path) -> None:
    before = compared(root, tmp_path / "out")
    write_votes(root)
    after = compared(root, tmp_path / "out")
    assert [row.done for row in after.rows] == [row.done for row in before.rows]


# A record is of its data.


def other_order(root: Path) -> None:
    folder = root / "cifar-10-batches-py"
    names = folder / "data_batch_1", folder / "data_batch_2"
    first, second = (name.read_bytes() for name in names)
    names[0].write_bytes(second)
    names[1].write_bytes(first)


def other_labels(root: Path) -> None:
    labels = some_labels("cifar10n_worse")
    as_npz(root, "cifar10n_worse", {**labels, "worse_label": labels["aggre_label"]})


@pytest.mark.parametrize(
    ("change", "name"), [(other_order, "data_batch_1"), (other_labels, "worse_label")]
)
def test_a_record_of_other_data_is_not_taken_for_this_run(
    root: Path,
    change: Callable[[Path], None],
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    as_npz(root, "cifar10n_worse", some_labels("cifar10n_worse"))
    command = ("train", "cifar10n_worse", *TINY[:-4], "--train-size", "40", "--device", "cpu",
               "--data", root, "--out", root / "out")  # fmt: skip
    run(*command)
    (folder,) = (root / "out").glob("*/*/*/*")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    change(root)
    capsys.readouterr()
    run(*command, code=2)
    said = capsys.readouterr().err.splitlines()[-1]
    assert str(folder) in said
    facts = Record(folder).environment()["data"]
    assert (facts["labels"] | facts["md5"])[name] in said
    facts = tasks.find("cifar10n_worse").collect(root).facts
    assert (facts["labels"] | facts["md5"])[name] in said
    run("compare", *command[1:2], "--losses", *command[3:4], *command[4:], "--seeds", "1", code=2)
    assert str(folder) in capsys.readouterr().err.splitlines()[-1]
    assert not (root / "out" / "cifar10n_worse" / "comparison.json").exists()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    shutil.rmtree(root / "cifar-10-batches-py")
    run(*command)  # without the data, what is done is done


def test_a_begun_run_goes_on_with_its_data_alone(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.begin({"format": 1}, {"torch": "1", "data": {"sha256": "a" * 64}})
    record.begin({"format": 1}, {"torch": "2", "data": {"sha256": "a" * 64, "votes": {}}})
    with pytest.raises(RecordError, match=f"is {'b' * 64} now and was {'a' * 64} then"):
        record.begin({"format": 1}, {"torch": "1", "data": {"sha256": "b" * 64}})
    assert record.environment()["data"] == {"sha256": "a" * 64}
