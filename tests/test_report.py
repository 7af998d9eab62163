"""Who won, and how it is said: intervals against scipy, bold against its rule, words and files."""

import csv
import io
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from penex.lab.ground.errors import RecordError
from penex.metrics import METRICS
from penex.report import figures, leads, page, results, standing, tables, terminal, words
from penex.report.drawing import Line
from penex.report.results import Results, Row
from penex.report.statistics import mean_and_spread, paired_difference, verdict

from made_rows import made, row

numbers = st.floats(-10, 10).map(lambda x: round(x, 3))


def judged(found: Results) -> dict[str, bool]:
    """Whether a winner is named, wherever one could be."""
    buffer = io.StringIO()
    terminal.show(found, buffer)
    said = " ".join(words.sentences(found))
    return {
        "terminal": "*" in buffer.getvalue(),
        "words": "is best" in said,
        "markdown": "| **" in tables.markdown(found),
        "latex": "\\textbf" in tables.latex(found),
        "page": re.search(r"<td[^>]*><strong>", page.build(found)) is not None,
        "headline": "obody won" not in standing.headline(found),
        "picture": all(map(is_clear, drawn(found))) and drawn(found) != [],
    }


def drawn(found: Results) -> list[tuple[float, float, float]]:
    """The bars of the picture that a page opens with: their ends, and where the best mean is."""
    panel = standing.panel(found, found.train_sizes[-1], METRICS["accuracy"])
    lines = [mark for mark in panel.marks if isinstance(mark, Line)]
    best = [line.points[0][0] for line in lines if line.kind == "guide"]
    bars = [line.points for line in lines if line.kind == "interval"]
    assert len(best) == (len(bars) > 0)
    return [(low, high, best[0]) for (low, _), (high, _) in bars]


def is_clear(bar: tuple[float, float, float]) -> bool:
    low, high, best = bar
    return not low <= best <= high


CHANCE = [0.10, 0.11, 0.12, 0.09, 0.10]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([0.8, 0.8], [0.9, 0.9]),  # two identical seeds: an interval of no width
        ([0.8, 0.7], [0.9, 0.8]),  # two seeds
        ([0.8], [0.9]),  # one
        ([0.8, 0.7, 0.9], [0.81, 0.71, 0.91]),  # alike with every seed
        ([0.8, 0.7, 0.9], [0.8, 0.7, 0.9]),  # a tie
        (CHANCE, [value + 0.04 + value / 10 for value in CHANCE]),  # both of them guess
    ],
    ids=["identical", "two", "one", "step", "tie", "chance"],
)
def test_no_lead_in_words_or_picture(first: list[float], second: list[float]) -> None:
    """Where there is no verdict, no bar is drawn that looks like one, and no interval is said."""
    rows = [row("ce", first), row("penex", second)]
    if max(second) < 0.3:
        for one in (done for each in rows for done in each.done.values()):
            for part in ("validation", "test"):
                one[part] = {**one[part], "cross_entropy": 2.3}
    found = made(*rows)
    assert not any(judged(found).values())
    assert drawn(found) == []
    buffer = io.StringIO()
    terminal.show(found, buffer)
    for text in (buffer.getvalue(), standing.headline(found), " ".join(words.findings(found))):
        assert not re.search(r"\[[-+]|is best|leads;", text)
    assert leads.lines(found.rows) == []
    assert "dotted line" not in standing.reading(found)


def test_a_tie_is_said() -> None:
    same = [0.9, 0.8, 0.7]
    assert standing.headline(made(row("ce", same), row("penex", same))) == (
        "Nobody won: CE and PENEX are level."
    )


def test_the_picture_and_the_verdict_agree() -> None:
    """A bar stays clear of the best mean exactly where Holm leaves the lead."""
    generator = np.random.default_rng(0)
    seen = set()
    for _ in range(120):
        losses = int(generator.integers(2, 6))
        centres = 0.8 + 0.015 * generator.standard_normal((losses, 1))
        values = centres + 0.01 * generator.standard_normal((losses, 5))
        found = made(*(row(f"loss{k}", line.tolist()) for k, line in enumerate(values)))
        one = verdict(found.rows, METRICS["accuracy"])
        assert one is not None
        places = {r.label: k for k, r in enumerate(found.rows) if r is not one.leader}
        clear = {label: is_clear(bar) for label, bar in zip(places, drawn(found), strict=True)}
        assert clear == {lead.rival.label: lead in one.beaten for lead in one.leads}
        plain = [lead.seeds.excludes_zero and not lead.clear for lead in one.leads]
        seen |= {("clear", any(clear.values())), ("taken back", any(plain))}
    assert len(seen) == 4


def test_a_difference_that_holm_takes_back_is_called_luck() -> None:
    """PENEX minus CE has an interval of its own, which leaves out the other comparisons."""
    steps = np.array([-0.01, -0.005, 0.0, 0.005, 0.01])
    lead = stats.t.isf(0.01, 4) * steps.std(ddof=1) / math.sqrt(5)
    rows = [row("ce", [0.7] * 5), row("penex", (0.7 + steps + lead).tolist())]
    rows += [row(f"x{k}", (0.7 - 0.001 * k + np.roll(steps, k)).tolist()) for k in (1, 2, 3)]
    said = words.findings(made(*rows))[-1]
    assert said.startswith("PENEX minus CE")
    assert "may be luck (Holm)" in said
    assert "may be luck" not in words.findings(made(*rows[:2]))[-1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("losses", [1, 2, 7])
def test_the_picture_is_drawn_as_a_figure_whatever_its_size(losses: int) -> None:
    """With the same sentence over it, and room for its panels."""
    found = made(*(row(f"loss{k}", [0.7, 0.81 - k / 100, 0.9]) for k in range(losses)))
    figure = figures.summary(found)
    figure.draw_without_rendering()
    assert standing.headline(found) in figure.get_suptitle().replace("\n", " ")
    assert all(axis.get_position().height * figure.get_figheight() > 0.2 for axis in figure.axes)


def test_a_loss_far_behind_does_not_squeeze_the_picture() -> None:
    """It stands at the edge, and its bar still reaches the best mean if its lead may be luck."""
    near = {"ce": [0.94, 0.93, 0.96], "focal": [0.95, 0.93, 0.95], "penex": [0.94, 0.95, 0.97]}
    found = made(*(row(name, some) for name, some in near.items()), row("ex", [0.2, 0.8, 0.5]))
    panel = standing.panel(found, 300, METRICS["accuracy"])
    assert panel.x[0] > 0.8
    assert panel.x[1] <= 1
    assert panel.y_notes[-1] == "0.5000"
    assert not any(map(is_clear, drawn(found)))
    assert "stands at the edge" in standing.reading(found)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=9))
def test_the_interval_is_students(pairs: list[tuple[float, float]]) -> None:
    a, b = (dict(enumerate(side)) for side in zip(*pairs, strict=True))
    found = paired_difference(a, b)
    difference = np.array([x - y for x, y in pairs])
    assert found.mean == pytest.approx(difference.mean(), abs=1e-12)
    if difference.std() > 1e-5:
        theirs = stats.ttest_rel(list(a.values()), list(b.values())).confidence_interval(0.95)
        assert found.low == pytest.approx(theirs.low, rel=1e-6, abs=1e-9)
        assert found.high == pytest.approx(theirs.high, rel=1e-6, abs=1e-9)


def test_only_common_seeds_are_paired() -> None:
    found = paired_difference({0: 1.0, 1: 5.0, 3: 2.0}, {1: 4.0, 2: 9.0, 3: 1.5})
    assert (found.mean, found.pairs) == (0.75, 2)
    assert math.isnan(paired_difference({0: 1.0}, {0: 2.0}).low)
    assert math.isnan(paired_difference({}, {0: 2.0}).mean)


def test_mean_and_spread() -> None:
    assert mean_and_spread([0.2, 0.4]) == pytest.approx((0.3, math.sqrt(0.02)))
    assert math.isnan(mean_and_spread([1.0])[1])
    assert math.isnan(mean_and_spread([])[0])


def test_bold_needs_more_than_luck() -> None:
    """The same means: paired differences that agree are a win, differences that jump are not."""
    steady = made(row("ce", [0.90, 0.80, 0.70]), row("penex", [0.921, 0.82, 0.719]))
    shaky = made(row("ce", [0.90, 0.80, 0.70]), row("penex", [0.80, 0.90, 0.76]))
    assert ("penex", "accuracy") in tables.winners(steady.rows)
    assert ("penex", "cross_entropy") in tables.winners(steady.rows)
    assert tables.winners(shaky.rows) == set()
    assert "Accuracy: PENEX is best, by 0.0200 over CE" in " ".join(words.sentences(steady))
    assert any(judged(steady).values())
    assert not any(judged(shaky).values())
    assert "Accuracy: no clear winner. PENEX is ahead of CE" in " ".join(words.sentences(shaky))
    assert "**0.8200 ± 0.1010**" in tables.markdown(steady)
    assert "| **" not in tables.markdown(shaky)


def test_the_rivals_are_ranked_from_the_runner_up_to_the_last() -> None:
    found = verdict(
        [row("ce", [0.5, 0.6]), row("focal", [0.8, 0.9]), row("penex", [0.7, 0.8])],
        METRICS["cross_entropy"],
    )
    assert found is not None
    assert [lead.rival.label for lead in found.leads] == ["penex", "ce"]
    assert found.leader.label == "focal"
    assert found.leads[0].seeds.mean == pytest.approx(
        0.1
    )  # positive is better, also where lower is better


def test_a_loss_that_diverged_or_is_unfinished_cannot_win() -> None:
    rows = [row("ce", [0.5, 0.5]), row("ex", [0.99, None]), row("focal", [0.9], missing=[1])]
    found = verdict(rows, METRICS["accuracy"])
    assert found is not None
    assert found.leader.label == "ce"
    assert found.leads == ()
    said = " ".join(words.sentences(made(*rows)))
    assert "EX: 1 of 2 runs diverged; the loss was inf at step 7." in said
    assert "1 run is not done yet." in said
    assert tables.name(rows[1]) == "EX (1 of 2 diverged)"
    assert tables.name(rows[2]) == "FOCAL (1 of 2 missing)"
    assert verdict([row("ex", [None])], METRICS["accuracy"]) is None
    assert tables.cell(row("ex", [None]), METRICS["accuracy"]) == "diverged"


def test_differences_that_are_all_alike_prove_nothing() -> None:
    """Accuracies lie on a lattice: three seeds may hit the same step by chance."""
    step = 1 / 700
    level = made(row("ce", [0.9, 0.8, 0.7]), row("penex", [0.9 + step, 0.8 + step, 0.7 + step]))
    assert tables.winners(level.rows) == set()
    assert "ahead of CE by 0.0014 with every seed, which is too few" in words.sentences(level)[0]
    same = made(row("ce", [0.9, 0.8]), row("penex", [0.9, 0.8]))
    assert words.sentences(same)[0] == "Accuracy: CE and PENEX are level."


def test_rounding_is_no_spread() -> None:
    """Records hold float32: a step that all seeds share differs in its last digits."""
    step = 1 / 700
    before = [0.9, 0.8, 0.7, 0.6]
    after = [float(np.float32(value + step)) for value in before]
    level = made(row("ce", [float(np.float32(value)) for value in before]), row("penex", after))
    assert not any(judged(level).values())


def test_two_seeds_have_no_winner() -> None:
    """They may differ alike by chance, which makes an interval of almost no width."""
    two = made(row("ce", [0.9, 0.8]), row("penex", [0.95, 0.851]))
    assert not any(judged(two).values())
    said = " ".join(words.sentences(two))
    assert "PENEX is ahead of CE by 0.0505, with 2 seeds: that may be luck." in said
    assert "2 seeds cannot show a winner" in said


def untrained(accuracies: list[float], entropy: float, name: str) -> Row:
    made_of = row(name, accuracies)
    for done in made_of.done.values():
        for part in ("validation", "test"):
            done[part] = {**done[part], "cross_entropy": entropy}
    return made_of


@pytest.mark.parametrize(("entropy", "wins"), [(2.06, True), (2.08, False)])
def test_nobody_wins_before_anything_was_learned(entropy: float, wins: bool) -> None:
    """Ten classes: guessing has a cross-entropy of log 10 = 2.30, and 0.9 of that is 2.07."""
    ce = untrained([0.11, 0.10, 0.12], entropy, "ce")
    penex = untrained([0.19, 0.18, 0.21], entropy, "penex")
    found = judged(made(ce, penex))
    assert found == dict.fromkeys(found, wins)
    said = words.sentences(made(ce, penex))
    assert any("Nothing is better than guessing" in one for one in said) is not wins


def test_wrong_validation_labels_are_not_a_lack_of_learning() -> None:
    rows = [row("ce", [0.71, 0.70, 0.72]), row("penex", [0.79, 0.78, 0.81])]
    for one in rows:
        for done in one.done.values():
            done["validation"] = {**done["validation"], "accuracy": 0.2, "cross_entropy": 2.4}
    assert ("penex", "accuracy") in tables.winners(rows)


def test_bad_probabilities_are_not_a_lack_of_learning() -> None:
    """Label smoothing with a large epsilon: an accuracy of 0.8 at a cross-entropy near log 10."""
    ce = untrained([0.71, 0.70, 0.72], 0.9, "ce")
    smoothed = untrained([0.79, 0.78, 0.81], 2.2, "label_smoothing")
    assert ("label_smoothing", "accuracy") in tables.winners([ce, smoothed])


def test_a_metric_that_is_not_finite_cannot_win() -> None:
    broken = row("penex", [0.99, 0.98, 0.97])
    broken.done[1]["test"]["cross_entropy"] = None
    rows = [row("ce", [0.5, 0.51, 0.53]), broken]
    assert tables.cell(broken, METRICS["cross_entropy"]) == "not finite"
    found = verdict(rows, METRICS["cross_entropy"])
    assert found is not None
    assert found.leader.label == "ce"
    found = verdict(rows, METRICS["accuracy"])
    assert found is not None
    assert found.leader.label == "penex"


def test_a_narrow_terminal_shows_fewer_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_WIDTH", 50)
    buffer = io.StringIO()
    terminal.show(made(row("ce", [0.9, 0.8]), row("penex", [0.95, 0.851])), buffer)
    assert "cross-entropy" in buffer.getvalue().splitlines()[1]
    assert "Brier" not in buffer.getvalue()


def test_penex_against_ce_is_always_said() -> None:
    said = words.sentences(made(row("ce", [0.9, 0.8, 0.7]), row("penex", [0.91, 0.80, 0.72])))
    line = next(sentence for sentence in said if sentence.startswith("PENEX minus CE"))
    assert "accuracy +0.0100 [-0.0148, +0.0348]" in line
    assert "cross-entropy -0.0100 [-0.0348, +0.0148]" in line


def test_one_seed_claims_nothing() -> None:
    alone = made(row("ce", [0.5]), row("penex", [0.9]))
    assert tables.winners(alone.rows) == set()
    said = " ".join(words.sentences(alone))
    assert "with one seed" in said
    assert "One seed shows no spread" in said
    assert "±" not in tables.markdown(alone)


def test_the_csv_has_every_run_and_metric() -> None:
    found = made(row("ce", [0.9, None]), row("penex", [0.8, 0.7]))
    lines = list(csv.DictReader(io.StringIO(tables.as_csv(found))))
    assert len(lines) == 4 * 2 * len(METRICS)
    picked = [
        line
        for line in lines
        if (line["loss"], line["seed"], line["part"]) == ("penex", "1", "test")
    ]
    assert {line["metric"]: float(line["value"]) for line in picked}["accuracy"] == 0.7
    assert all(line["value"] == "" for line in lines if line["status"] == "diverged")


def test_the_terminal_shows_stars_where_bold_cannot_be_seen() -> None:
    buffer = io.StringIO()
    terminal.show(made(row("ce", [0.9, 0.8, 0.7]), row("penex", [0.95, 0.851, 0.748])), buffer)
    text = buffer.getvalue()
    assert "0.8497 ± 0.1010*" in text
    assert "* the best mean" in text
    assert all(len(line) <= 110 for line in text.splitlines() if "±" in line)


def test_a_folder_without_comparison_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="There is no comparison in"):
        results.load(tmp_path)
    listing = tmp_path / "comparison.json"
    listing.write_text("{")
    with pytest.raises(RecordError, match="is damaged"):
        results.load(tmp_path)
    listing.write_text('{"format": 0, "task": "digits", "command": "", "runs": []}')
    with pytest.raises(RecordError, match="another version of penex"):
        results.load(tmp_path)
