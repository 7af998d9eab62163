"""Folds: every example is judged once, by a model that did not train on it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from penex.lab import models, tasks
from penex.lab.data import Collection, Examples
from penex.lab.data.noise import LabelNoise
from penex.lab.data.split import fold, fold_size
from penex.lab.ground.errors import LabError
from penex.lab.records.folds import average_precision
from penex.lab.tasks import Task
from penex.lab.tasks.runs import Treatment
from penex.lab.training import Place, folds

DIGITS = tasks.find("digits")
FLIPS = Treatment(LabelNoise(0.2))


def examples(n: int) -> Examples:
    return Examples(torch.randn(n, 4), torch.arange(n) % 3)


def collection() -> Collection:
    return Collection(examples(103), tuple("abc"))


def few(n: int = 60) -> Task:
    """The first digits."""
    pool = DIGITS.collect()
    some = Examples(pool.train.inputs[:n], pool.train.targets[:n])
    return replace(
        DIGITS,
        collect=lambda: replace(pool, train=some),
        val=0.2,
        model="mlp",
        build=models.find("mlp"),
    )


@pytest.mark.parametrize("count", [2, 5, 7])
def test_seeds_in_a_row_test_every_example_once(count: int) -> None:
    data = collection()
    size = fold_size(data, count)
    orders = []
    for again in range(2):
        parts = [fold(data, again * count + k, count, size) for k in range(count)]
        tested = torch.cat([one.test.index for one in parts])
        assert tested.sort().values.tolist() == list(range(103))
        orders.append(tested.tolist())
        for one in parts:
            every = torch.cat([one.test.index, one.val.index, one.train.index])
            assert len(every.unique()) == len(every)  # type: ignore[no-untyped-call]
            assert len(one.train) == size
            counts = torch.bincount(one.test.targets).tolist()
            assert max(counts) - min(counts) <= 2
        assert len({len(one.val) for one in parts}) == 1  # models of a pack validate side by side
    assert orders[0] != orders[1]


def test_no_example_is_idle_in_the_largest_fold() -> None:
    one = fold(collection(), 4, 5, fold_size(collection(), 5))
    assert len(one.test) + len(one.val) + len(one.train) == 103


def test_parts_that_came_apart() -> None:
    """Those for validation stay; those for testing are not looked at."""
    apart = examples(9)
    data = replace(collection(), val=apart, test=apart)
    one = fold(data, 0, 5, fold_size(data, 5))
    assert one.val.inputs is apart.inputs
    assert one.test.inputs is data.train.inputs
    assert len(one.train) == 103 - 21


def test_all_folds_have_the_same_wrong_labels() -> None:
    runs = folds.planned(few(), "ce", folds=3, seed=1, treatment=FLIPS)
    place = Place(Path())
    labels = torch.full((60,), -1)
    for run in runs:
        data = place.data(run)
        for part in (data.test, data.val, data.train):
            known = labels[part.index]
            assert bool(((known == -1) | (known == part.targets)).all())
            labels[part.index] = part.targets
    clean = runs[0].task.collect().train.targets
    assert 3 < int((labels != clean).sum()) < 25


def test_what_is_gathered_is_what_each_model_said_of_its_test_part(tmp_path: Path) -> None:
    runs = folds.planned(few(), "penex", folds=3, changes={"epochs": 1}, treatment=FLIPS)
    place = Place(tmp_path)
    found = folds.carry_out(runs, place)
    assert found is not None
    for k, run in enumerate(runs):
        data, kept = place.data(run), place.record(run).predictions()
        expected = torch.from_numpy(kept["test_logits"]).mul(1.1).softmax(1)  # 1 + alpha
        assert torch.allclose(found.probabilities[data.test.index].float(), expected, atol=1e-6)
        assert (found.fold[data.test.index] == k).all()
        assert torch.equal(found.given[data.test.index], data.test.targets)
    assert torch.equal(found.before, runs[0].task.collect().train.targets)
    assert found.score[found.order].diff().min() >= 0


def test_a_fold_is_another_run_than_the_tasks_own() -> None:
    task = few()
    one, other = (folds.planned(task, "ce", folds=k)[0].config for k in (2, 3))
    assert one["data"] == {"folds": 2}
    assert other["data"] == {"folds": 3}


@pytest.mark.parametrize("count", [1, 61])
def test_there_are_from_two_folds_to_one_an_example(count: int) -> None:
    with pytest.raises(LabError, match="at least 2 folds and at most 60"):
        folds.planned(few(), "ce", folds=count)


def test_average_precision_is_scikit_learns() -> None:
    from sklearn.metrics import average_precision_score

    draw = torch.Generator().manual_seed(0)
    score, wrong = torch.rand(200, generator=draw), torch.rand(200, generator=draw) < 0.2
    expected = average_precision_score(wrong.numpy(), -score.numpy())
    assert average_precision(score, wrong) == pytest.approx(expected)
