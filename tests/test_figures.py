"""The paper's figures: the values that are drawn, and how captions are judged by them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from our_results import RESULTS
from penex import cli
from penex.boosting import SAMMEClassifier
from penex.lab import tasks
from penex.lab.records import Record
from penex.lab.training import Place
from penex.lab.training.compare import Comparison, compare
from penex.metrics import METRICS
from penex.paper import figures, plan
from penex.paper.figures import (
    ablations,
    boosting,
    curves,
    imagenet,
    margins,
    over_epochs,
    sensitivity,
    shape,
    size,
)  # fmt: skip
from penex.paper.figures.picture import Source, rise, stays
from penex.paper.standins import write_stand_ins
from penex.report import results
from penex.report.finished import Finished
from penex.report.results import Row

from made_rows import made, row

Drawn = dict[str, tuple[list[float], list[float]]]


def lines(axis: Any) -> Drawn:
    """The named lines of a part of a figure, as (x, y)."""
    named = {line.get_label(): line for line in axis.get_lines()}
    return {
        name: (list(line.get_xdata()), list(line.get_ydata()))
        for name, line in named.items()
        if not name.startswith("_")
    }


# Loss and gradient, by hand.


@pytest.mark.parametrize("alpha", [1.0, 0.1])
def test_loss_and_gradient_are_the_formulas(alpha: float) -> None:
    drawn = shape.draw()
    name = f"PENEX (alpha={alpha:g}, rho={alpha / 2:g})"
    for axis, k in zip(drawn.axes, (0, 1), strict=True):
        f, ce = (np.array(values) for values in lines(axis)["CE"])
        exact = np.log1p(np.exp(-f)) if k == 0 else -1 / (1 + np.exp(f))
        np.testing.assert_allclose(ce, exact, rtol=1e-12)
        _, penex = lines(axis)[name]
        up, down = np.exp(f), np.exp(-alpha * f)
        exact = down + alpha / 2 * (up + 1) if k == 0 else -alpha * down + alpha / 2 * up
        np.testing.assert_allclose(penex, exact, rtol=1e-9, atol=1e-12)


def test_the_shapes_caption_holds_in_part() -> None:
    more, falls = shape.points()
    assert (more.verdict, falls.verdict) == ("unclear", "holds")
    place = shape.steeper_below(0.1)
    gradients = [shape.curve(alpha, place, place + 1, 2).gradient[0] for alpha in (None, 0.1)]
    assert gradients[0] == pytest.approx(gradients[1], abs=1e-9)


# Margins.


def test_a_margin_is_the_nearest_place_where_the_prediction_changes() -> None:
    """Against a walk round every point: on a circle just inside its margin nothing changes."""
    from sklearn.svm import SVC

    found = margins.fit("svm", 1)
    model = SVC(C=1e3, kernel="rbf").fit(found.points, found.labels)
    assert (np.abs(model.decision_function(found.nearest)) < 0.05).all()
    angles = np.linspace(0, 2 * np.pi, 360)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for point, label, margin in zip(found.points, found.labels, found.margins, strict=True):
        assert margin > 0
        assert (model.predict(point + 0.97 * margin * circle) == label).all()
        assert (model.predict(point + 1.03 * margin * circle) != label).any()


def test_a_point_on_the_wrong_side_has_a_margin_below_0() -> None:
    found = margins.fit("ce", 0, epochs=20)  # not trained enough
    assert (found.margins < 0).any()
    assert (found.margins > 0).any()


def test_the_five_smallest_margins_are_drawn() -> None:
    found = margins.fit("svm", 0)
    (axis,) = margins.draw({"svm": found}).axes
    green = [line for line in axis.get_lines() if line.get_color() == "#009E73"]
    ends = {tuple(np.round([line.get_xdata()[0], line.get_ydata()[0]], 9)) for line in green}
    nearest = found.margins.argsort()[:5]
    assert ends == {tuple(np.round(found.points[k], 9)) for k in nearest}
    lengths = [math.dist(*zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in green]
    assert lengths == pytest.approx(sorted(found.margins)[:5])
    assert f"{found.margins.min():.3f}" in axis.get_title()


def test_margins_are_judged_seed_by_seed() -> None:
    def smallest(*values: float) -> dict[int, float]:
        return dict(enumerate(values))

    base = {"svm": smallest(0.20, 0.21, 0.19, 0.2), "ce": smallest(0.10, 0.11, 0.09, 0.1)}
    larger = smallest(0.19, 0.205, 0.18, 0.19)
    found = margins.points({**base, "penex": larger, "sharp": larger})
    assert [point.verdict for point in found] == ["holds", "holds"]
    found = margins.points({**base, "penex": larger, "sharp": base["ce"]})
    assert [point.verdict for point in found] == ["unclear", "does not hold"]


# AdaBoost.


def test_adaboost_and_the_network_are_measured_on_what_they_have_not_seen() -> None:
    measured = boosting.measure(seeds=1, rounds=4, epochs=2)
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    known, unseen = order[:300], order[300:]
    for k, error in enumerate(measured.stumps[0]):
        model = SAMMEClassifier(n_estimators=k + 1, random_state=0).fit(x[known], y[known])
        assert error == pytest.approx(1 - model.score(x[unseen], y[unseen]))
    assert {name: len(found[0]) for name, found in measured.error.items()} == {"ce": 2, "penex": 2}
    assert measured.cross_entropy["ce"][0][0] < math.log(10) + 0.5
    again = boosting.measure(seeds=1, rounds=4, epochs=2)
    assert again == measured


def test_adaboosts_caption_is_judged_by_its_curves() -> None:
    def seeds(*values: float) -> dict[int, list[float]]:
        return {k: [value + 0.0001 * k * i for i, value in enumerate(values)] for k in range(4)}

    falls, rises = seeds(0.5, 0.3, 0.2), seeds(0.5, 0.2, 0.4)
    measured = boosting.Measured(
        falls, {"ce": falls, "penex": falls}, {"ce": rises, "penex": falls}
    )
    found = boosting.points(measured)
    assert [point.verdict for point in found] == ["holds", "holds", "holds", "unclear"]
    swapped = boosting.Measured(rises, {"ce": falls, "penex": falls}, {"ce": falls, "penex": rises})
    assert [one.verdict for one in boosting.points(swapped)][:3] == ["does not hold"] * 3
    stumps, error, _ = boosting.draw(measured).axes
    assert lines(stumps)["AdaBoost, decision stumps"][1] == pytest.approx([0.5, 0.30015, 0.2003])
    assert set(lines(error)) == {"CE", "PENEX (alpha=0.1)"}


# Curves of records.


def test_curves_are_the_means_of_our_records_with_larger_being_better() -> None:
    source = Source(RESULTS, 5)
    found = source.load("cifar100", curves.losses("cifar100"), "penex")
    assert found is not None
    axes = curves.draw([found]).axes
    metrics = [metric for metric in METRICS.values() if metric.drawn]
    assert [axis.get_title() for axis in axes] == [
        "cifar100: accuracy", "− cross-entropy", "− Brier", "− ECE"
    ]  # fmt: skip
    for axis, metric in zip(axes, metrics, strict=True):
        drawn = lines(axis)
        for one in found.rows:
            ends = [run.history[-1]["validation"][metric.name] for run in one.records.values()]
            sign = 1 if metric.higher else -1
            x, y = drawn[over_epochs.short(one)]
            assert x[-1] == 200
            assert y[-1] == pytest.approx(sign * np.mean(ends))
        low, high = axis.get_ylim()
        assert low < high


def test_curves_are_judged_by_the_validation_set() -> None:
    from scipy import stats

    found = Source(RESULTS, 5).load("cifar100", curves.losses("cifar100"), "penex")
    assert found is not None
    ours, floor, ce, penex, held = curves.points(found)
    rows = {over_epochs.short(one): one for one in found.rows}
    a = rows["PENEX"].values("accuracy", "validation")
    b = rows["label smoothing"].values("accuracy", "validation")
    less = [a[seed] - b[seed] for seed in range(5)]
    low, high = stats.t.interval(0.95, 4, loc=np.mean(less), scale=stats.sem(less))
    said = f"accuracy {np.mean(less):+.3f} [{low:+.3f}, {high:+.3f}] against label smoothing"
    assert said in ours.found
    assert (ours.verdict, ce.verdict, penex.verdict) == ("does not hold", "holds", "holds")
    assert "rho held at 1e-06" in floor.claim
    assert "rho held at 1e-06" in held.claim


def curved(
    label: str, runs: Sequence[Sequence[float | None]], epochs: int = 0, **arguments: float | None
) -> Row:
    """A row whose runs had these accuracies after each epoch; None is not finite."""
    last = [run[-1] for run in runs]
    one = row(label.partition(":")[0], last)
    one.label = one.title = label
    for seed, run in enumerate(runs):
        history = []
        for k, value in enumerate(run):
            values = {
                m.name: value if m.higher or value is None else 1 - value for m in METRICS.values()
            }
            history.append({"epoch": k + 1, "validation": values})
        config = {"recipe": {"epochs": epochs or len(run)}, "loss": {"arguments": arguments}}
        done = one.done[seed]
        done.setdefault("classes", 10)
        one.records[seed] = Finished(Record(Path("nowhere")), done, config, {}, history)
    return one


def test_a_run_that_diverged_ends_where_it_did_and_the_figure_says_so() -> None:
    good = [[0.3, 0.6, 0.7, 0.8], [0.3, 0.6, 0.7, 0.79], [0.3, 0.6, 0.71, 0.8]]
    worse = [[value - 0.2 - 0.01 * k for value in run] for k, run in enumerate(good)]
    found = made(
        curved("penex", good),
        curved("conex_hard", [[0.3, 0.4, None, None]] * 3),
        curved("conex_penalty", worse),
    )
    figure = ablations.draw(found)
    assert len(figure.axes) == 8
    first = figure.axes[0]
    name = "CONEX, built in (not finite after epoch 2, 3 of 3 runs)"
    low, high = first.get_ylim()
    assert low < 0.6 < 0.8 < high  # all of PENEX but its first epoch
    x, y = lines(first)[name]
    assert [b for b in y if math.isfinite(b)] == pytest.approx([0.3, 0.4])
    assert x[:2] == [1, 2]
    dots = [line for line in first.get_lines() if line.get_marker() == "o"]
    assert [(*dot.get_xdata(), *dot.get_ydata()) for dot in dots] == [(2.0, 0.4)] * 3
    points = ablations.points(found)
    assert [one.verdict for one in points] == ["not trained", "holds", "holds", "not trained"]
    assert "3 of 3 runs diverged, with no number after epoch 2, 2, 2" in points[1].found


def test_ablations_that_train_well_are_not_said_to_break_down() -> None:
    found = made(curved("penex", [[0.5, 0.8]]), curved("ex", [[0.5, 0.7]]))
    assert ablations.points(found)[0].verdict == "does not hold"
    guessing = made(curved("penex", [[0.5, 0.8]]), curved("ex", [[0.5, 0.1]]))
    assert ablations.points(guessing)[0].verdict == "holds"


def test_ablations_from_tiny_records(tmp_path: Path) -> None:
    """Every ablation trained on stand-in files, one of them at a rate at which it diverges."""
    write_stand_ins(tmp_path)
    (sweep,) = plan.sweeps()["ablations"]
    task = tasks.placed(tasks.find(sweep.task), tmp_path)
    losses = tuple(f"{name}@lr=10000.0" if name == "conex_hard" else name for name in sweep.losses)
    comparison = Comparison(task, losses, 1, (40,), {"epochs": 2})
    compare(comparison, Place(tmp_path / "runs", device=torch.device("cpu")))
    found = results.load(tmp_path / "runs" / "cifar10")
    made_of = ablations.shown(found)
    figure = made_of.draw()
    drawn: Drawn = lines(figure.axes[4])
    for one in found.rows:
        if one.loss in ("penex", "conex_penalty", "conex_lagrangian"):
            history = one.records[0].history
            expected = [line["validation"]["accuracy"] for line in history]
            x, y = drawn[over_epochs.short(one)]
            assert x == [1, 2]
            assert y == pytest.approx(expected)
    (hard,) = [one for one in found.rows if one.loss == "conex_hard"]
    assert hard.diverged == [0]
    assert "CONEX, built in (not finite after epoch 1)" in lines(figure.axes[0])
    assert [point.verdict for point in made_of.points][1] == "holds"


def test_sensitivity_is_drawn_by_alpha_and_judged() -> None:
    """Larger alphas slower, better in the end and, the largest, in leaps: as the caption has it."""
    rows = []
    for k, alpha in enumerate(plan.ALPHAS):
        runs = []
        for seed in range(3):
            leap = 0.1 + 0.01 * seed if alpha == 3.2 else 0.0
            end = 0.6 + 0.02 * k + 0.001 * seed * (k + 1) + (-0.2 if alpha == 3.2 else 0.0)
            late = [end - (leap if epoch % 2 else 0) for epoch in range(37, 0, -1)]
            runs.append([0.2, 0.5 - 0.01 * k * (1 + 0.1 * seed), *late, end])
        rows.append(curved(f"penex:alpha={alpha}", runs, alpha=alpha, rho=None))
    found = made(*rows)
    axes = sensitivity.draw([found]).axes
    assert set(lines(axes[0])) == {f"alpha {alpha:g}" for alpha in plan.ALPHAS}
    _, y = lines(axes[1])["alpha 0.2"]
    assert y[-1] == pytest.approx(-(1 - 0.622))
    colours = {line.get_label(): line.get_color() for line in axes[0].get_lines()}
    assert len({colours[f"alpha {alpha:g}"] for alpha in plan.ALPHAS}) == 6
    faster, better, rough, held = sensitivity.points(found)
    assert faster.verdict == better.verdict == rough.verdict == "holds"
    assert "alpha 1.6 less 1e-05: +0.084" in better.found
    assert held.verdict == "not trained"
    few = sensitivity.points(made(*rows[:3]))
    assert [point.verdict for point in few] == ["holds", "holds", "not trained"]


def test_two_rates_of_a_vision_transformer_are_drawn_and_judged() -> None:
    """A line a run, in logarithms where numbers lie far apart; a diverged high rate speaks."""

    def version(label: str, rate: float, rho: float | None, *ends: float | None) -> Row:
        one = curved(label, [[0.1, end] for end in ends], rho=rho)
        for run in one.records.values():
            run.config["recipe"]["lr"] = rate
            for k, line in enumerate(run.history):
                line |= {
                    "rho": 10.0**-k if rho is None else None,
                    "max_logit": 10.0,
                    "grad_norm": 0.0,
                }
        return one

    high, low = plan.IMAGENET_RATES
    rows = [version("penex:@lr=1e-5", low, None, 0.3, 0.31, 0.32)]
    rows += [version("penex:@lr=1e-3", high, None, 0.4, 0.42, 0.43), version("ce", high, None, 0.4)]
    rows += [version("penex:rho=1e-6@lr=1e-5", low, 1e-6, 0.3, 0.3, 0.3)]
    found = made(*rows, version("penex:rho=1e-6@lr=1e-3", high, 1e-6, 0.3, None, None))
    axes = imagenet.draw(found).axes
    drawn = lines(axes[2])
    assert list(drawn["PENEX, rate 0.001"][1]) == [0.0, -1.0]
    assert "PENEX, rho held at 1e-06, rate 0.001" in lines(axes[0])
    assert not [line for line in axes[4].get_lines() if len(line.get_xdata())]  # log of 0
    estimated, held = imagenet.points(found)
    assert (estimated.verdict, held.verdict) == ("does not hold", "holds")
    assert "2 of 3 runs diverged" in held.found
    few = imagenet.points(made(*rows[:1]))
    assert [point.verdict for point in few] == ["not trained", "not trained"]
    both = [version(f"penex:@lr={rate:g}", rate, None, 0.3, None) for rate in (high, low)]
    assert imagenet.points(made(*both))[0].verdict == "unclear"


def test_the_lead_by_size_is_paired_at_each_size() -> None:
    def accuracies(first: float) -> list[float]:
        return [first, first + 0.011, first - 0.01]

    few = [row("ce", accuracies(0.4), 500), row("penex", [0.48, 0.492, 0.469], 500)]
    many = [row("ce", accuracies(0.8), 2000), row("penex", [0.801, 0.813, 0.790], 2000)]
    found = made(*few, *many)
    leads = size.leads(found)
    assert [round(lead.mean, 4) for lead in leads.values()] == [0.0800, 0.0010]
    (point,) = size.points(found)
    assert point.verdict == "holds"
    (point,) = size.points(made(*few))
    assert point.verdict == "not trained"


def test_two_seeds_decide_nothing() -> None:
    """As in every other verdict of the house, however far apart two runs are."""

    def seeds(count: int) -> dict[int, list[float]]:
        return {k: [0.5, 0.2, 0.4 + 0.001 * k] for k in range(count)}

    assert [stays(rise(seeds(count)), 0.01) for count in (2, 3)] == ["unclear", "does not hold"]
    rows = [row("ce", [0.4, 0.41], 500), row("penex", [0.48, 0.492], 500)]
    rows += [row("ce", [0.8, 0.81], 2000), row("penex", [0.801, 0.8111], 2000)]
    assert size.points(made(*rows))[0].verdict == "unclear"


def test_set_ups_that_were_chosen_by_looking_are_said_to_be() -> None:
    """A reader of the page must know that others were tried, and how they came out."""
    said = boosting.CHOSEN + margins.CHOSEN
    for number in ("0.176 and 0.218", "0.41 and 0.53", "0.238 and 0.282", "100 or 300"):
        assert number in said


# The command.


def test_the_command_writes_every_form_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["reproduce", "figures", "--only", "shape", "ablations", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    folder = tmp_path / "figures"
    kinds = {"shape.png": b"\x89PNG", "shape.svg": b"<?xml", "shape.pdf": b"%PDF"}
    for name, start in kinds.items():
        assert (folder / name).read_bytes().startswith(start)
    page = (folder / "figures.html").read_text()
    assert page.count("data:image/png;base64,") == 1
    assert page.count("<h2 id=") == 3  # two figures, and how it was made
    assert "<strong>holds</strong>" in page
    assert "ablations: not drawn" in said
    assert str(tmp_path) not in page


@pytest.mark.slow
def test_a_figure_is_the_same_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        figures.write(Source(tmp_path / name, 5), ["shape"], "penex", say=lambda line: None)
    for kind in figures.KINDS:
        one, other = ((tmp_path / k / "figures" / f"shape.{kind}").read_bytes() for k in "ab")
        assert one == other


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["figures", "--only", "shapes"], "Did you mean 'shape'"),
        (["table1", "--only", "shape"], "--only is for figures and all; this is table1."),
        (["figures", "--losses", "ce"], "--losses are for table1, fair, resnet and imagenet; this"),
        (["figures", "--task", "cifar10"], "--task is for table1, floor"),
        (["runtime", "--seeds", "2"], "takes --device, --out and --smoke only."),
    ],
)
def test_one_sentence_and_exit_code_2(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["reproduce", *words, "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_every_figure_says_what_trains_its_records() -> None:
    for name, picture in figures.PICTURES.items():
        assert picture.name == name
        needed = picture.needs.split(", ") if picture.needs else []
        for command in needed:
            assert command.split()[2] in ("table1", *plan.sweeps())
