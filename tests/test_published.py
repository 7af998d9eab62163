"""The tables of the documents say what the records in results/ say (`make test-all`)."""

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from benchmarks import level, many_tables, noise, schedules, workers_record

from penex import cli
from penex.lab.bench import LARGE, SMALL
from penex.lab.records.views import View
from penex.lab.training.compare import listing_of
from penex.paper import claims, plan
from penex.paper.fair import names
from penex.paper.printed import PRINTED
from penex.report import results
from penex.report.statistics import Interval, holm, paired_difference

pytestmark = pytest.mark.records

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
SHOWN = ("accuracy", "cross_entropy", "brier", "ece")
ROWS = {
    "cifar10": "CIFAR-10",
    "cifar10_noisy": "a tenth of the labels wrong",
    "cifar100": "CIFAR-100",
    "pathmnist": "PathMNIST",
}
# The README's table: where its rows are from, and how they are judged.
WHEN: dict[str, tuple[str, View | float | int]] = {
    "clean labels: CIFAR-10": ("fair/cifar10", View("best", True)),
    "clean labels, 100 classes: CIFAR-100": ("fair/cifar100", View("best", True)),
    "clean labels, 2,000 images: CIFAR-10": ("size", 2_000),
    "a tenth of the labels wrong: CIFAR-10": ("fair/cifar10_noisy", View("best", True)),
    "40 % wrong, by people: CIFAR-10N": ("fair/cifar10n_worse", View("best", True)),
    "43 small tables": ("many-tables", 0.0),
    "43 small tables, a fifth or more wrong": ("many-tables", 0.4),
    "13 sets of texts, a fifth or more wrong": ("many-texts", 0.4),
}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, results.Row]]:
    """The rows of the main table by task and loss."""
    return {
        task: {row.loss: row for row in results.load(RESULTS / task).rows} for task in plan.TABLE1
    }


def table(page: str, head: str) -> dict[str, list[str]]:
    """The rows of the table whose first heading is given, by their first cell, without marks."""
    lines = iter((ROOT / page).read_text().splitlines())
    assert any(line.startswith(f"| {head} |") for line in lines), head
    next(lines)
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            break
        first, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        rows[first] = cells
    return rows


def mean(row: results.Row, metric: str) -> float:
    return fmean(row.values(metric).values())


def spread(values: list[float]) -> str:
    return f"{fmean(values):.3f} ± {stdev(values):.3f}"


def test_the_tables_of_the_paper_were_written_after_the_last_change_of_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make claims` writes docs/reproduction.md."""
    shutil.copytree(RESULTS, tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "table1", "--read-only", "--out", "results"]
    monkeypatch.setattr("sys.argv", ["penex", *words])
    cli.main(words)
    written = (tmp_path / "results" / "claims.md").read_text()
    assert written == (ROOT / "docs" / "reproduction.md").read_text()
    leads = claims.leads([results.load(RESULTS / name) for name in plan.TABLE1])
    assert leads in written
    assert leads in (ROOT / "docs" / "results.md").read_text()


def test_which_loss_when() -> None:
    """The README's table: accuracy and cross-entropy of six losses, where they were trained."""
    said = table("README.md", "accuracy / cross-entropy")
    assert list(said) == list(WHEN)
    for title, (place, view) in WHEN.items():
        if isinstance(view, float):
            assert said[title][:6] == list(_on_tables(place, view))
            continue
        if isinstance(view, View):
            rows = results.load(RESULTS / place, view=view).rows
        else:
            rows = _of_size(View("best", True)).at(int(view))
        known = {names(row.label)[0]: row for row in rows}
        negative = "PENEX, alpha < 0 (rho=1e-06)"
        losses = "CE", "label smoothing", "GCE", "PENEX", "PENEX (rho=1e-06)", negative
        for cell, loss in zip(said[title], losses, strict=False):
            row = known.get(loss)
            if row is None:
                assert (cell, loss) in {("–", negative), ("–", "GCE")}
                continue
            assert cell == f"{mean(row, 'accuracy'):.3f} / {mean(row, 'cross_entropy'):.3f}"


def test_what_rivals_gain_beside_what_was_published() -> None:
    """Accuracy after the last and the best epoch, and its distance from cross-entropy's."""
    said = table("docs/results.md", "CIFAR-10N, 40 % wrong")
    for column, view in ((1, View("last", True)), (2, View("best", True))):
        rows = results.load(RESULTS / "fair/cifar10n_worse", view=view).rows
        known = {names(row.label)[0]: mean(row, "accuracy") for row in rows}
        assert said["cross-entropy"][column] == f"{known['CE']:.3f}"
        for loss in ("GCE", "ELR"):
            gained = f"{known[loss] - known['CE']:+.3f}".replace("-", "−")
            assert said[loss][column] == f"{known[loss]:.3f} ({gained})"


def _of_size(view: View | None = None) -> results.Results:
    """CIFAR-10 with several numbers of training images."""
    (sweep,) = plan.sweeps()["size"]
    listing = listing_of(plan.plan_sweep(sweep, 5), RESULTS, "")
    return results.load(RESULTS / "cifar10", listing, view=view or View())


def test_few_training_images() -> None:
    """docs/results.md: the table by size, and what is said to be beyond luck."""
    said = table("docs/results.md", "test set, last epoch: accuracy / cross-entropy / ECE")
    for column, size in enumerate((500, 2_000, 10_000, 40_000)):
        rows = _of_size().at(size)
        for cells, row in zip(said.values(), rows, strict=True):
            three = (mean(row, metric) for metric in ("accuracy", "cross_entropy", "ece"))
            assert cells[column].replace("*", "") == " / ".join(f"{one:.3f}" for one in three)
        *others, floor = rows
        for metric in ("cross_entropy", "ece"):
            better = [paired_difference(floor.values(metric), row.values(metric)) for row in others]
            clear = all(lead.high < 0 for lead in better)
            assert clear == ((size, metric) != (40_000, "ece")), (size, metric)
    early = _of_size(View("best", True))
    for size in (500, 2_000, 10_000):
        *others, floor = early.at(size)
        for row in others:
            assert mean(floor, "accuracy") > mean(row, "accuracy")
            assert mean(floor, "cross_entropy") < mean(row, "cross_entropy")


def _at_epoch(history: list[dict[str, Any]], epoch: int) -> dict[str, Any]:
    return min(history, key=lambda line: abs(line["epoch"] - epoch))


def test_short_training() -> None:
    """docs/results.md: what the same runs had reached early, and who was ahead when."""
    page = (ROOT / "docs" / "results.md").read_text().split("| validation accuracy after |")[1]
    lines = iter(page.splitlines()[2:])
    for size in (500, 2_000, 10_000, 40_000):
        rows = {names(row.label)[0]: row for row in _of_size().at(size)}
        reached = {}
        for loss in ("CE", "PENEX", "PENEX (rho=1e-06)"):
            runs = rows[loss].records.values()
            reached[loss] = [
                fmean(_at_epoch(run.history, epoch)["validation"]["accuracy"] for run in runs)
                for epoch in (25, 50, 100, 200)
            ]
            said = [cell.strip() for cell in next(lines).strip("|").split("|")][1:]
            assert said == [f"{one:.3f}" for one in reached[loss]], (size, loss)
        low, ce = reached["PENEX (rho=1e-06)"], reached["CE"]
        assert 0.065 < ce[0] - low[0] < 0.105
        assert [b > a for a, b in zip(ce, low, strict=True)] == [False, False, False, True]


def test_the_memory_of_a_last_layer() -> None:
    """docs/large-vocabularies.md: from the fewest to the most positions."""
    record = json.loads((RESULTS / "linear-cpu.json").read_text())
    text = " ".join((ROOT / "docs" / "large-vocabularies.md").read_text().split())
    said = {"linear PENEX": ("goes from {} at 768", "and from {} at 256"),
            "cross-entropy on logits": ("logits from {}", "and from {}:")}  # fmt: skip
    for name, sentences in said.items():
        for layer, sentence in zip(([768, 50257], [256, 128256]), sentences, strict=True):
            rows = [r for r in record["rows"] if r["name"] == name and r["size"][1:] == layer]
            ends = f"{rows[0]['peak'] / 2**30:.3f} to {rows[-1]['peak'] / 2**30:.3f}"
            assert any(sentence.format(ends + unit) in text for unit in ("", " GiB")), (name, ends)


def test_without_the_penalty() -> None:
    """docs/results.md: the ablations' table."""
    (sweep,) = plan.sweeps()["ablations"]
    listing = listing_of(plan.plan_sweep(sweep, 5), RESULTS, "")
    rows = {row.loss: row for row in results.load(RESULTS / "cifar10", listing).rows}
    said = table("docs/results.md", "test set, last epoch")
    hard = rows["conex_hard"]
    assert said.pop("CONEX, built in (1 of 5 runs ended)") == [
        f"{mean(hard, 'accuracy'):.3f}", f"{mean(hard, 'cross_entropy'):.1f}"
    ]  # fmt: skip
    assert len(hard.diverged) == 4
    broke = sorted(run.history[-1]["epoch"] for run in hard.records.values())
    assert broke == [58, 71, 73, 199, 200]
    for cells, loss in zip(
        said.values(), ("penex", "conex_penalty", "conex_lagrangian", "ex"), strict=True
    ):
        accuracy, loss_value = (
            list(rows[loss].values(metric).values()) for metric in ("accuracy", "cross_entropy")
        )
        assert cells[0] == spread(accuracy)
        digits = 1 if loss == "ex" else 3
        assert cells[1] == f"{fmean(loss_value):.{digits}f} ± {stdev(loss_value):.{digits}f}"


def test_small_and_large_alpha() -> None:
    """docs/results.md: the table, and that no alpha up to 0.8 differs beyond luck in accuracy."""
    sweep = plan.sweeps()["sensitivity"][0]
    listing = listing_of(plan.plan_sweep(sweep, 5), RESULTS, "")
    rows = results.load(RESULTS / "cifar10", listing).rows
    said = table("docs/results.md", "test accuracy / cross-entropy")
    for cells, some in zip(said.values(), (rows[:6], rows[6:]), strict=True):
        for cell, row in zip(cells, some, strict=True):
            assert len(row.values("accuracy")) == 5
            assert cell == f"{mean(row, 'accuracy'):.3f} / {mean(row, 'cross_entropy'):.3f}"
        first, *others = [row.values("accuracy") for row in some]
        leads = [paired_difference(other, first) for other in others]
        assert not any(lead.low > 0 for lead in leads)
        assert [lead.high < 0 for lead in leads][-2:] == [True, True]
        assert [lead.high < 0 for lead in leads][:2] == [False, False]


def _on_tables(name: str, rate: float) -> Iterator[str]:
    """Accuracy and cross-entropy as it comes, after the best epoch, at a fitted temperature."""
    record = json.loads((RESULTS / f"{name}.json").read_text())
    seen = [
        many_tables.means(record, rate, "as it comes", f"best_{m}") for m in many_tables.METRICS
    ]
    for loss in ("ce", "label_smoothing", "gce", "penex", "penex:rho=1e-6", "penex_negative"):
        yield " / ".join(f"{fmean(one[loss].values()):.3f}" for one in seen)


def test_many_tables() -> None:
    """docs/tables.md: its tables, and what README says is beyond luck."""
    record = json.loads((RESULTS / "many-tables.json").read_text())
    text = (ROOT / "docs" / "tables.md").read_text()
    for rate, way, best in (
        (0.0, "as it comes", "best_"),
        (0.4, "as it comes", "best_"),
        (0.4, "as it comes", ""),
        (0.0, "tuned", "best_"),
        (0.4, "tuned", "best_"),
    ):
        assert many_tables.table(record, rate, way, best) in text, (rate, way, best)
    for metric, sign in (("accuracy", 1), ("cross_entropy", -1)):
        seen = many_tables.means(record, 0.4, "as it comes", f"best_{metric}")
        for rival in ("ce", "label_smoothing", "gce"):
            lead = many_tables.leads(seen, rival)["penex_negative"]
            assert sign * lead.mean > 0
            assert (lead.p <= 0.05) == (rival != "gce"), (metric, rival)
        late = many_tables.means(record, 0.4, "as it comes", metric)
        for rival in ("ce", "label_smoothing", "gce"):
            lead = many_tables.leads(late, rival)["penex:rho=1e-6"]
            assert sign * lead.mean > 0
            assert (lead.p <= 0.05) == (rival != "gce"), (metric, rival)


def test_many_texts() -> None:
    """docs/text.md: its tables, and what it says is beyond luck and what is not."""
    record = json.loads((RESULTS / "many-texts.json").read_text())
    text = (ROOT / "docs" / "text.md").read_text()
    for rate, best in ((0.0, "best_"), (0.4, "best_"), (0.0, ""), (0.4, "")):
        assert many_tables.table(record, rate, "as it comes", best) in text, (rate, best)
    for metric, sign in (("accuracy", 1), ("cross_entropy", -1)):
        for rate in (0.0, 0.4):
            early = many_tables.means(record, rate, "as it comes", f"best_{metric}")
            for rival in ("ce", "label_smoothing"):
                found = many_tables.leads(early, rival).values()
                assert not [one for one in found if one.p <= 0.05 and sign * one.mean > 0]
        late = many_tables.means(record, 0.4, "as it comes", metric)
        low = "penex_negative:rho=1e-6"
        assert many_tables.leads(late, "label_smoothing")[low].p <= 0.05
        leads = many_tables.leads(late, low)
        assert all(sign * lead.mean < 0 < 0.05 < lead.p for lead in leads.values())
        right = many_tables.means(record, 0.0, "as it comes", "accuracy")
        for loss in ("ce", "gce", "penex"):
            assert all(right[loss][k] > right["label_smoothing"][k] for k in range(13))
        tuned = many_tables.means(record, 0.4, "tuned", "best_accuracy")
        plain = many_tables.means(record, 0.4, "as it comes", "best_accuracy")
        assert all(fmean(tuned[k].values()) < fmean(plain[k].values()) for k in plain)


def test_a_low_rho_on_bbc_news() -> None:
    """docs/text.md: with a fifth and two fifths wrong, clear of all others after the last epoch."""
    record = json.loads((RESULTS / "noise-bbc_news.json").read_text())
    low, *rivals = "penex_negative:rho=1e-06", *noise.LOSSES, "penex:rho=1e-06"
    for rate, metric in itertools.product((0.2, 0.4), ("accuracy", "cross_entropy")):
        pairs = [
            [dict(enumerate(noise.numbers(record, loss, rate, metric))) for loss in (low, rival)]
            for rival in rivals
        ]
        leads = [paired_difference(*pair) for pair in pairs]
        assert all((lead.mean > 0) is (metric == "accuracy") for lead in leads)
        assert max(holm([lead.p for lead in leads])) <= 0.05


def test_the_fair_table_was_written_after_the_last_change_of_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make claims` writes docs/fair.md."""
    shutil.copytree(RESULTS / "fair", tmp_path / "fair")
    monkeypatch.chdir(tmp_path)
    cli.main(["reproduce", "fair", "--read-only", "--out", "fair"])
    written = (tmp_path / "fair" / "fair.md").read_text()
    assert written == (ROOT / "docs" / "fair.md").read_text()


def test_early_stopping(found: dict[str, dict[str, results.Row]]) -> None:
    """Best with best, and last with best: the validation set, every fourth epoch."""
    said = table("docs/results.md", "validation cross-entropy")
    assert list(said) == list(ROWS.values())
    for task, title in ROWS.items():
        best, last, epochs = {}, {}, {}
        for loss in ("ce", "penex"):
            runs = found[task][loss].records
            history = {seed: run.history for seed, run in runs.items()}
            lines = {seed: min(all_, key=_cross_entropy) for seed, all_ in history.items()}
            best[loss] = {seed: _cross_entropy(line) for seed, line in lines.items()}
            last[loss] = {seed: _cross_entropy(all_[-1]) for seed, all_ in history.items()}
            epochs[loss] = round(fmean(line["epoch"] for line in lines.values()))
        cells = [
            f"{fmean(best[loss].values()):.3f} ({epochs[loss]}), {fmean(last[loss].values()):.3f}"
            for loss in ("ce", "penex")
        ]
        leads = [paired_difference(best["ce"], which["penex"]).words for which in (best, last)]
        assert said[title] == [*cells, *leads]


def _cross_entropy(line: dict[str, Any]) -> float:
    value: float = line["validation"]["cross_entropy"]
    return value


def test_the_other_loss_of_the_authors_code(found: dict[str, dict[str, results.Row]]) -> None:
    said = table("docs/results.md", "accuracy, cross-entropy, Brier, ECE")
    for sweep in plan.sweeps()["gap"]:
        listing = listing_of(plan.plan_sweep(sweep, 5), RESULTS)
        other = results.load(RESULTS / sweep.task, listing).rows[-2]
        rows = [found[sweep.task]["label_smoothing"], found[sweep.task]["penex"], other]
        cells = [", ".join(f"{mean(row, metric):.3f}" for metric in SHOWN) for row in rows]
        assert said[ROWS[sweep.task]] == cells


FIXED = {
    "cifar100": "CIFAR-100, α = 0.085",
    "cifar10": "CIFAR-10, α = 0.03",
    "cifar10_noisy": "CIFAR-10, a tenth of the labels wrong, α = 0.025",
    "pathmnist": "PathMNIST, 28 pixels scaled to 32, α = 0.058",
}


@pytest.mark.parametrize("task", FIXED)
def test_rho_held_fixed(task: str) -> None:
    said = table("docs/results.md", FIXED[task])
    if "printed in the paper" in said:
        printed = PRINTED[task]["penex"]
        assert said["printed in the paper"] == [f"{printed[m]:.3f}" for m in SHOWN[:3]]
    (sweep,) = [one for one in plan.sweeps()["floor"] if one.task == task]
    listing = listing_of(plan.plan_sweep(sweep, 5), RESULTS)
    first, *held = results.load(RESULTS / task, listing).rows
    for row in (first, *held) if "Algorithm 1" in said else held:
        exponent = f"{row.argument('rho') or 0:.0e}".replace("e-0", "e-")
        cells = said["Algorithm 1" if row is first else f"ρ held fixed at {exponent}"]
        assert cells == [spread(list(row.values(m).values())) for m in SHOWN[: len(cells)]]


def test_the_values_of_our_studies() -> None:
    """docs/tuning.md, with the authors' values in brackets."""
    sweep = plan.studied("cifar10", RESULTS)
    assert sweep is not None
    rows = results.load(RESULTS / "cifar10", listing_of(plan.plan_sweep(sweep, 5), RESULTS)).rows
    said = table("docs/tuning.md", "CIFAR-10, tuned")
    for cells, own, other in zip(said.values(), rows[1::2], rows[::2], strict=True):
        expected = []
        for metric in SHOWN:
            new, old = (list(row.values(metric).values()) for row in (own, other))
            expected.append(f"{spread(new)} [{fmean(old):.3f}]")
        assert cells[1:] == expected


def ratios(line: list[str]) -> Iterator[tuple[float, float]]:
    """The numbers of cells, each with half of its last digit."""
    for text in line:
        yield float(text), 0.5001 * 10 ** -len(text.partition(".")[2])


def test_what_the_loss_costs_on_a_gpu() -> None:
    """Every ratio of the table, against the record of the same run."""
    rows = json.loads((RESULTS / "bench-h200.json").read_text())["rows"]
    found = {(row["size"], row["pass"], row["loss"]): row for row in rows}
    columns = (
        "cross-entropy, compiled",
        "cross-entropy, Liger (overwrites)",
        "cross-entropy, Liger (a copy)",
        "PENEX, the paper's listing",
        "PENEX, plain formula",
        "PENEX",
    )
    text = (ROOT / "docs" / "costs.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("|") and line.count("|") == 12]
    said = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines[2:]]
    sizes = (*SMALL, *LARGE)
    assert [line[0].replace(" × ", "x") for line in said] == list(sizes)
    for size, line in zip(sizes, said, strict=True):
        shown = [found[size, "forward+backward", name]["ratio"] for name in columns]
        graph = found[size, "CUDA graph", "PENEX"]
        shown.append(graph["ratio"])
        if line[9] != "launches":
            shown.append(graph["floors"])
        for (number, half), ratio in zip(ratios(line[2 : 2 + len(shown)]), shown, strict=True):
            assert number == pytest.approx(ratio, abs=half)


def test_what_a_step_of_training_costs() -> None:
    rows = json.loads((RESULTS / "training-h200.json").read_text())["rows"]
    found = {row["what"]: row["microseconds"] for row in rows}
    said = table("docs/costs.md", "one model's step of CIFAR-10")
    names = (
        "eager, one model",
        "with Triton, 1 packed",
        "with Triton, 50 packed",
        "captured, 50 packed",
    )
    steps = 625 * 200  # of 64 of 40,000 examples, in 200 epochs
    for name, (micro, over, seconds, hour) in zip(names, said.values(), strict=True):
        time = found[name]
        assert micro == f"{time:,.0f}"
        assert float(over.strip(" ×")) == round(found[names[0]] / time)
        assert float(seconds.removesuffix(" s")) == pytest.approx(time * steps / 1e6, rel=0.02)
        assert float(hour) == pytest.approx(3600e6 / (time * steps), rel=0.01, abs=0.5)


def test_what_a_loss_without_logits_costs() -> None:
    """docs/large-vocabularies.md: milliseconds, over the products alone, and memory."""
    record = json.loads((RESULTS / "linear-h200.json").read_text())
    names = ["linear PENEX", "cross-entropy on logits", "Liger", "cut-cross-entropy"]
    said = table("docs/large-vocabularies.md", "features × classes")
    assert len(said) == 3
    for title, cells in said.items():
        width, classes = map(int, title.split(" × "))
        rows = {row["name"]: row for row in record["rows"] if row["size"] == [8192, width, classes]}
        for name, cell in zip([*names, "PENEX on logits"], cells, strict=True):
            row = rows[name]
            time = f"{1e3 * row['seconds']:.1f} ({row['ratio']:.2f} ×)"
            assert cell == f"{time}, {row['peak'] / 2**30:.1f} GiB", (title, name)


def test_losses_against_the_share_of_wrong_labels(tmp_path: Path) -> None:
    """docs/noisy-labels.md and docs/tables.md: the tables that the benchmark prints."""
    pages = {"digits": "noisy-labels.md", "bbc_news": "text.md"}
    for name in ("digits", "wine", "breast_cancer", "bbc_news"):
        record = json.loads((RESULTS / f"noise-{name}.json").read_text())
        page = pages.get(name, "tables.md")
        text = (ROOT / "docs" / page).read_text()
        for when in ("", "best_"):
            assert noise.table(record, when) in text, (name, when)
        noise.plot(record, tmp_path / "noise.png")  # as its page says that it is drawn
        assert (tmp_path / "noise.png").stat().st_size > 10_000
    record = json.loads((RESULTS / "noise-digits.json").read_text())
    found = [noise.best_alpha(record, rate) for rate in noise.rates_of(record)]
    assert found == sorted(found, reverse=True)  # the more are wrong, the lower


def test_labels_that_people_got_wrong() -> None:
    """docs/noisy-labels.md: average precisions and shares; alpha = -0.5 finds most."""
    record = json.loads((RESULTS / "suspects-people.json").read_text())
    said = table("docs/noisy-labels.md", "wrong, loss")
    assert len(said) == len(record["rows"]) == 12
    best: dict[str, tuple[float, str]] = {}
    for row in record["rows"]:
        numbers = [f"{row[key]:.3f}" for key in ("seen", "held out", "margin")]
        numbers += [f"{100 * row[key]:.1f} %" for key in ("share", "confident share")]
        assert said[f"{100 * row['wrong']:.1f} %, `{row['loss']}`"] == numbers
        assert row["wrong"] < row["share"] < row["confident share"]
        found = row["held out"], row["loss"]
        best[row["labels"]] = max(best.get(row["labels"], found), found)
    assert {loss for _, loss in best.values()} == {"penex_negative:alpha=-0.5"}


def test_no_schedule_is_better_than_a_constant() -> None:
    """docs/noisy-labels.md: the table, and that nothing in it says that it is better."""
    record = json.loads((RESULTS / "schedules-cpu.json").read_text())
    shown = schedules.table(record)
    assert shown in (ROOT / "docs" / "noisy-labels.md").read_text()
    assert "(better)" not in shown


def test_what_a_low_rho_has_to_do_with_dropout() -> None:
    """docs/why/rho.md: the table, and what the page says of it."""
    record = json.loads((RESULTS / "level-cpu.json").read_text())
    assert level.table(record) in (ROOT / "docs" / "why" / "rho.md").read_text()

    def gain(way: str, over: str) -> Interval:
        numbers = [
            {row["seed"]: row["accuracy"] for row in record["rows"] if row["way"] == name}
            for name in (way, over)
        ]
        return paired_difference(*numbers)

    estimated, low = "rho estimated, dropout 0.8", "rho 1e-6, dropout 0.8"
    assert gain(low, estimated).low > 0
    assert gain("rho 1e-6, dropout 0", "rho estimated, dropout 0").mean < 0
    assert gain("rho 1e-2, bias started low", estimated).low > 0
    assert gain("rho 1e-6, bias started high", low).high < 0
    assert gain("rho 1e-6, no noise on the level", estimated).low > 0
    assert gain("rho 1e-6, no noise on the classes", estimated).mean < 0


def test_how_many_workers_a_server_bears() -> None:
    """docs/cluster.md: what the benchmark prints."""
    record = json.loads((RESULTS / "workers-cpu.json").read_text())
    page = (ROOT / "docs" / "cluster.md").read_text()
    assert workers_record.told(record) in page
    assert {row["workers"] for row in record["rows"]} == {10, 50, 100, 200}
