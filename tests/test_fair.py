"""The fair table: who is tuned how, what is said of it, and a small one from end to end."""

from pathlib import Path

import pytest

from penex import cli, registry
from penex.lab.tasks.runs import Contender
from penex.lab.tuning.search import Tuning
from penex.paper import fair
from penex.report import results

RESULTS = Path(__file__).parents[1] / "results" / "fair"


def test_every_loss_has_the_same_effort_and_rates() -> None:
    what = fair.study(fair.task("cifar10"), fair.LOSSES, {})
    spaces = {loss: {one.name: one for one in what.space(loss)} for loss in fair.LOSSES}
    assert {space["lr"] for space in spaces.values()} == {what.space("ce")[0]}
    assert set(spaces["penex:rho=1e-6"]) == {"alpha", "lr"}
    assert max(map(len, spaces.values())) == 2
    assert what.view == fair.JUDGED
    assert what.batch == what.trials == fair.TRIALS


def test_what_is_searched_belongs_to_the_loss() -> None:
    for name, parameters in fair.SEARCH.items():
        for one in parameters:
            assert registry.make(name, **{one.name: one.low}).temperature > 0
            assert registry.make(name, **{one.name: one.high}).temperature > 0


@pytest.mark.parametrize(
    ("label", "names"),
    [
        ("ce@lr=0.001", ("CE", "lr=0.001")),
        ("elr:lambda_=3.0@lr=0.001", ("ELR", "lambda_=3.0, lr=0.001")),
        ("penex:rho=1e-06,alpha=0.1@lr=0.1", ("PENEX (rho=1e-06)", "alpha=0.1, lr=0.1")),
        ("penex", ("PENEX", "")),
    ],
)
def test_what_was_tuned_stands_beside_the_name(label: str, names: tuple[str, str]) -> None:
    assert fair.names(label) == names


@pytest.mark.records
def test_shorter_trials_choose_as_the_records_say() -> None:
    """By hand: of the twelve rates of cross-entropy, the best after 50 epochs and after 200."""
    found = {one.title: one for one in fair.lengths(RESULTS, "cifar10_noisy", fair.SHORT)}
    assert len(found) == 6
    ce = found["CE"]
    assert ce.early["lr"] == pytest.approx(1.2124591755305876e-4)
    assert ce.late["lr"] == pytest.approx(3.07359034484193e-5)
    assert ce.lost == pytest.approx(1.131 - 0.793, abs=0.002)
    assert fair.lengths(RESULTS, "cifar10", fair.SHORT) == []  # its trials had 50


@pytest.mark.records
def test_the_table_says_what_the_records_say() -> None:
    found = results.load(RESULTS / "cifar10")
    head, *rows = fair.table(found)
    row = next(row for row in rows if row[0] == "label smoothing")
    cells = dict(zip(head, row, strict=True))
    done = [run.done for run in found.rows[1].records.values()]
    best = [one["best"]["calibrated"]["test"]["cross_entropy"] for one in done]
    assert cells["cross-entropy, best epoch, fitted"].startswith(f"{sum(best) / 5:.4f} ± ")
    last = [one["test"]["accuracy"] for one in done]
    assert cells["accuracy, last epoch"].startswith(f"{sum(last) / 5:.4f} ± ")


@pytest.mark.slow
def test_all_of_it_on_stand_ins(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["reproduce", "fair", "--smoke", "--task", "cifar100n"])
    said = capsys.readouterr().out
    assert said.count("\n## ") == 1
    labels = [str(Contender.parse(loss)) for loss in fair.LOSSES]
    assert all(f"| {fair.names(label)[0]} |" in said for label in labels)


def test_a_small_one_from_end_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    some = ["--task", "cifar10n_worse", "--losses", "elr", "penex:rho=1e-6"]
    cli.main(["reproduce", "fair", *some, "--smoke"])
    said = capsys.readouterr().out
    assert "| PENEX (rho=1e-06) | alpha=" in said


def test_what_does_not_belong_to_it_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["fair", "--tuned"],
        ["fair", "--task", "pathmnist"],
        ["floor", "--trial-epochs", "3"],
    ):
        with pytest.raises(SystemExit) as end:
            cli.main(["reproduce", *words])
        assert end.value.code == 2
    assert capsys.readouterr().err.count("penex: ") == 3


def test_a_study_names_how_it_is_judged() -> None:
    what: Tuning = fair.study(fair.task("cifar100"), ("ce",), {"epochs": 50})
    assert what.identity("ce")["judged"] == {"calibrate": True}
    assert what.identity("ce")["run"]["recipe"]["epochs"] == 50
