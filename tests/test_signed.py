"""PENEX with alpha below 0 from the command line: compared, searched between edges of one's own."""

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import run, sentence
from penex.lab import tasks
from penex.lab.ground.errors import LabError
from penex.lab.training import Place
from penex.lab.training.compare import Comparison, compare
from penex.lab.tuning.search import Tuning, ranges_of
from penex.report import results, series

DIGITS = tasks.find("digits")
FAST = ("--epochs", 1, "--train-size", 40)
NEGATIVE = ("--loss", "penex", "--range", "alpha=-0.9:-0.05")


def tuning(*losses: str, **changes: Any) -> Tuning:
    return Tuning(DIGITS, losses, **changes)


def alphas(out: Path) -> list[float]:
    return [
        json.loads(path.read_text())["loss"]["arguments"]["alpha"]
        for path in out.glob("digits/penex/*/seed-*/config.json")
    ]


def test_the_margins_have_a_bound_above_0_only(tmp_path: Path) -> None:
    """Where the theorem has none, a page is made all the same."""
    losses = ("penex:alpha=-0.3", "penex:alpha=0.2")
    comparison = Comparison(DIGITS, losses, 1, (40,), {"epochs": 1})
    found = results.load(tmp_path / "digits", compare(comparison, Place(tmp_path), pack=1))
    panels = [margins for *_, margins in series.of(found).predicted]
    assert [len(panel.marks) for panel in panels if panel] == [1, 2]


@pytest.mark.slow
def test_a_range_is_searched_and_its_best_value_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    study = ("--trials", 4, "--batch", 4, *FAST, "--out", tmp_path)
    run("tune", *NEGATIVE, *study)
    tried = alphas(tmp_path)
    assert len(tried) == 4
    assert all(-0.9 <= alpha <= -0.05 for alpha in tried)
    losses = ("penex", "penex:alpha=0.2")
    run("compare", "--tuned", "--losses", *losses, "--seeds", 1, *FAST, "--out", tmp_path)
    (best,) = (one for one in alphas(tmp_path) if one not in (*tried, 0.2))  # rounded
    assert f"PENEX (alpha={best})" in capsys.readouterr().out
    run("tune", "--loss", "penex", *study, code=2)
    assert "its search.alpha is [-0.9, -0.05], not [1e-05, 1.0]" in sentence(capsys)


def test_a_range_is_a_part_of_the_study() -> None:
    usual = tuning("penex", "focal")
    other = tuning("penex", "focal", ranges={"alpha": (-0.9, -0.05)})
    assert other.identity("penex")["search"] == {"alpha": [-0.9, -0.05]}
    assert other.identity("focal") == usual.identity("focal")
    assert tuning("penex", ranges={"alpha": (1e-5, 1.0)}).identity("penex") == usual.identity(
        "penex"
    )


def test_a_range_of_the_recipe() -> None:
    what = tuning("ce", along=("lr",), ranges={"lr": (1e-4, 1e-3)})
    assert [(p.low, p.high, p.log) for p in what.space("ce")] == [(1e-4, 1e-3, True)]


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ({"alhpa": (0.1, 0.2)}, "no parameter to tune 'alhpa'. Did you mean 'alpha'?"),
        ({"alpha": (-1.0, -0.1)}, "alpha must be a finite number above -1 and not 0"),
        ({"alpha": (0.0, 0.5)}, "alpha must be a finite number above -1 and not 0"),
        ({"lr": (0.0, 0.1)}, "lr is searched by its logarithm, above 0; got 0.0"),
    ],
)
def test_edges_that_no_trial_could_have(ranges: dict[str, tuple[float, float]], said: str) -> None:
    with pytest.raises(LabError, match=said):
        tuning("penex", along=("lr",), ranges=ranges)


@pytest.mark.parametrize(
    "text", ["alpha", "alpha=1", "alpha=2:1", "alpha=1:1", "=1:2", "alpha=1:inf", "alpha=1:2:3"]
)
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(LabError, match="A range is name=low:high"):
        ranges_of([text])


def test_a_range_is_given_once() -> None:
    with pytest.raises(LabError, match="each name once"):
        ranges_of(["alpha=0.1:0.2", "alpha=0.2:0.3"])
