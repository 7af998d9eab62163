"""The whole paper: the appendix's tables, the plan, and the page that judges every claim."""

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from our_results import RESULTS
from penex import cli
from penex.lab.bench import probing
from penex.lab.ground import environment
from penex.lab.ground.errors import RecordError
from penex.lab.records import Record
from penex.lab.tasks import find
from penex.lab.training.session import Silent
from penex.paper import (
    chapters,
    claims,
    costs,
    estimate,
    fair,
    figures,
    plan,
    resnet,
    tables,
    timings,
    whole,
)
from penex.paper.chapters import Chapter
from penex.paper.claims import Claim
from penex.paper.figures import kept
from penex.paper.figures.picture import Point, Shown, Source
from penex.paper.printed import PRINTED, RESOURCES, RUNTIME
from penex.paper.request import PARTS, Request
from penex.paper.standins import write_stand_ins
from penex.report import results
from penex.report.results import Results

from made_rows import row


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("official")
    write_stand_ins(folder)
    return folder


def asked(what: str, out: Path, **options: Any) -> Request:
    return Request(what, f"penex reproduce {what}", lambda total: Silent(), out=out, **options)


# ResNet-18.


def test_the_appendixs_table_is_the_five_losses_and_the_floor() -> None:
    every = plan.resnet_table(plan.RESNET, 3)
    runs = [run for comparison in every for run in comparison.runs]
    assert len(runs) == 2 * 6 * 3
    assert {run.recipe.augment for run in runs} == {""}
    held = [run.loss.resolved for run in runs if run.label == "penex:rho=1e-06"]
    assert {(one["alpha"], one["rho"], one["scale"]) for one in held} == {(0.1, 1e-6, "paper")}
    (changed,) = plan.resnet_table(("cifar10_resnet18",), 1, plan.AUGMENTED)
    assert {run.recipe.augment for run in changed.runs} == {"flip,crop"}
    assert asked("resnet", Path("runs")).seed_count == 3
    assert asked("table1", Path("runs")).seed_count == 5
    assert asked("resnet", Path("runs"), seeds=1).seed_count == 1


def test_what_the_paper_prints_in_bold_is_what_is_claimed() -> None:
    """The bold numbers of PENEX in its table of ResNet-18: one of CIFAR-10, three of CIFAR-100."""
    for task, bold in (
        ("cifar10_resnet18", {"ECE per batch"}),
        ("cifar100_resnet18", {"accuracy", "cross-entropy", "Brier"}),
    ):
        found = [claim.words for claim in claims.unmeasured(task)]
        best = {
            words.split(" the best ")[1].split(" of the")[0]
            for words in found[:]
            if " best " in words
        }
        assert best == bold
        assert len(found) == 4 + len(bold)
    assert PRINTED["cifar100_resnet18"]["penex"]["accuracy"] == 0.601
    (texts,) = claims.unmeasured("bbc_news")  # what is printed as worse is not claimed to be better
    assert texts.paper == "0.968 against 0.967"


def made_resnet() -> Results:
    """Three seeds of the table, PENEX ahead with rho at its floor and behind without."""
    levels = {"ce": 0.940, "label_smoothing": 0.941, "confidence_penalty": 0.942, "focal": 0.939}
    rows = [row(loss, [at, at + 0.001, at - 0.001]) for loss, at in levels.items()]
    rows.append(row("penex", [0.930, 0.932, 0.929]))
    held = row("penex", [0.950, 0.952, 0.951])
    rows.append(replace(held, label="penex:rho=1e-06", title="PENEX (rho=1e-06)"))
    return Results(Path("nowhere"), "cifar10_resnet18", "penex reproduce resnet", rows)


def test_each_version_of_penex_is_judged_and_held_against_the_print() -> None:
    found = made_resnet()
    said = {claim.words: claim.verdict for claim in claims.claims(found)}
    assert said["PENEX has a better accuracy than cross-entropy"] == "does not hold"
    assert said["PENEX (rho=1e-06) has a better accuracy than cross-entropy"] == "holds"
    assert said["PENEX (rho=1e-06) has the best ECE per batch of the five losses"] == "holds"
    head, *lines = tables.differences(resnet.block(found))
    assert head == ["ours less the paper's", "ACC", "-ECE, per batch", "-CE", "-BRIER"]
    assert lines[0][:2] == ["CE", f"{0.940 - 0.947:+.3f}"]
    assert lines[-1][:2] == ["PENEX (rho=1e-06)", f"{0.951 - 0.948:+.3f}"]


def test_the_table_of_resnet_in_every_form(tmp_path: Path) -> None:
    found = made_resnet()
    written = resnet.write(tmp_path, [found], "penex reproduce resnet")
    names = [path.name for path in written]
    assert names == ["resnet.md", "resnet.csv", "resnet.tex", "resnet.html"]
    lines = list(csv.DictReader(io.StringIO((tmp_path / "resnet.csv").read_text())))
    assert len(lines) == 6 * 5
    assert float(lines[0]["paper"]) == 0.947
    for name in ("resnet.md", "resnet.html"):
        text = (tmp_path / name).read_text()
        assert "penex:scale=cross_entropy" in text
        assert "does not hold" in text
        assert "-0.007" in text
    assert "penex:scale=cross_entropy" in resnet.text([found])


@pytest.mark.slow
def test_resnet_from_tiny_files(capsys: pytest.CaptureFixture[str]) -> None:
    """With images changed at random, under a title of their own."""
    cli.main(["reproduce", "resnet", "--smoke", "--task", "cifar10_resnet18", "--losses", "ce",
              "penex:rho=1e-06", "--augment", "flip,crop"])  # fmt: skip
    said = capsys.readouterr()
    assert "cifar10_resnet18: 2 of 2 runs to train" in said.err
    assert "images changed by flip,crop, 1 seed" in said.out
    assert "is gone: resnet.md, resnet.csv, resnet.tex, resnet.html." in said.out


# Costs.


def test_the_papers_times_stand_beside_the_recorded_ones() -> None:
    (timed,) = timings.benches(RESULTS)[-1:]
    grid = costs.runtime(timings.benches(RESULTS))
    assert grid.rows[0][1:6] == ["19 (1.00)", "74 (3.89)", "200 (10.53)", "107 (5.63)", "68 (3.58)"]
    rows = json.loads((RESULTS / timed.source).read_text())["rows"]
    (penex,) = [
        r for r in rows if (r["size"], r["pass"], r["loss"]) == ("64x10", "forward", "PENEX")
    ]
    line = next(line for line in grid.rows if line[0] == f"{timed.machine}: forward")
    assert line[5] == f"{penex['seconds'] * 1e6:.0f} ({penex['ratio']:.2f})"
    numbers = list(csv.DictReader(io.StringIO(costs.as_csv([grid]))))
    assert [float(n["value"]) for n in numbers[:5]] == [mean for mean, _ in RUNTIME.values()]
    assert "$\\pm$" not in costs.latex([grid])
    assert costs.latex([grid]).count("\\\\") == 1 + len(grid.rows)


def test_hours_are_the_records_own() -> None:
    found = results.load(RESULTS / "cifar10")
    seconds = [run.done["wall_time"] for run in found.records()]
    grid = costs.resources({"cifar10": found})
    line = next(line for line in grid.rows if line[0] == "CIFAR-10")
    assert line[1:4] == ["NVIDIA A100-SXM4-40GB", "8,096", "60"]
    assert line[4:7] == ["NVIDIA H200", str(len(seconds)), f"{sum(seconds) / len(seconds):.1f}"]
    assert line[8:] == [f"{len(seconds):.1f}", f"{sum(seconds) / 3600:.2g}"]
    assert len(grid.rows) == len(RESOURCES)
    by_title = {line[0]: line for line in grid.rows}
    assert by_title["CIFAR-100"][4] == "no records yet"
    assert by_title["ImageNet"][3:5] == ["3600", "no records yet"]


def bench_of(folder: Path, **middle_halves: list[float]) -> Path:
    """A record of `penex bench` with these times in microseconds, by pass."""
    rows = [
        {"size": "64x10", "pass": "forward", "loss": name.replace("_", " "), "ratio": 1.0,
         "seconds": 1e-6 * sum(edges) / 2, "quartiles": [1e-6 * edge for edge in edges]}
        for name, edges in middle_halves.items()
    ]  # fmt: skip
    path = folder / "bench" / "bench.json"
    path.parent.mkdir(parents=True)
    facts = {"device": "a machine", "dtype": "float32", "torch": "2"}
    content = {"format": 1, "command": "penex bench", "environment": facts, "rows": rows}
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("penex", "verdict"),
    [([10.0, 11.0], "holds"), ([18.0, 21.0], "unclear"), ([50.0, 60.0], "does not hold")],
)
def test_a_loss_is_faster_where_middle_halves_do_not_overlap(
    penex: list[float], verdict: str, tmp_path: Path
) -> None:
    rivals = ("label_smoothing", "confidence_penalty", "focal")
    others = {name: [20.0, 30.0] for name in rivals}
    bench_of(tmp_path, PENEX=penex, **others)
    found, listing = costs.claims(timings.benches(tmp_path))
    assert found.verdict == verdict
    assert found.paper == "68 µs against 74, 200, 107"
    assert listing.verdict == "not trained"
    assert costs.NO_BENCH in listing.ours


@pytest.mark.parametrize("damage", ["not json", "{}", '{"format": 7}'])
def test_a_damaged_record_of_times_is_one_sentence(damage: str, tmp_path: Path) -> None:
    path = bench_of(tmp_path, PENEX=[1.0, 2.0])
    path.write_text(damage)
    with pytest.raises(RecordError, match=r"bench\.json is no record of penex bench"):
        timings.benches(tmp_path)
    assert path.read_text() == damage


def test_a_machine_is_timed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And what has no records is said; `test_all_from_tiny_files` times one."""
    path = bench_of(tmp_path, PENEX=[1.0, 2.0])
    path.write_text(path.read_text().replace("a machine", environment.cpu_name()))
    before = path.read_bytes()
    cli.main(["reproduce", "costs", "--device", "cpu", "--out", str(tmp_path)])
    assert path.read_bytes() == before
    said = capsys.readouterr().out
    assert "no records yet" in said
    assert f"{environment.cpu_name()}, float32, torch 2: forward" in said
    assert said.splitlines()[-1].endswith("costs.md, costs.csv, costs.tex.")


# The plan.


def test_the_plan_counts_each_run_once(tmp_path: Path) -> None:
    request = asked("all", RESULTS)
    shares = {one.name: one for one in estimate.shares(request, ("floor", "rho", "resnet"))}
    assert (shares["floor"].there, len(shares["floor"].missing)) == (4 * 7 * 5, 0)
    assert (shares["rho"].there, shares["rho"].shared) == (40, 5)  # the floor's first row
    assert (shares["resnet"].there, len(shares["resnet"].missing)) == (0, 36)
    empty = estimate.shares(asked("all", tmp_path), ("floor", "rho", "costs", "tuned"))
    assert [len(one.missing) for one in empty] == [140, 35, 0, 0]
    assert [one.lacking for one in empty] == [140, 40, 0, 0]
    assert "penex tune" in empty[-1].note


def test_trials_and_what_they_decide_are_missing(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    (none,) = estimate.shares(asked("all", tmp_path), ("fair",))
    every = len(fair.TASKS) * len(fair.LOSSES) * (12 + 5)
    assert len(none.missing) == every
    (some,) = estimate.shares(asked("all", RESULTS), ("fair",))
    assert some.there + some.lacking == every
    assert some.there > 0
    closed = [name for name in fair.TASKS if fair.is_closed(RESULTS / "fair", name)]
    assert len(closed) == 4
    assert len(some.missing) == (len(fair.TASKS) - len(closed)) * len(fair.LOSSES) * (12 + 5)
    assert closed[0] in some.note


def test_studies_in_an_archive_are_shown_and_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of the paper must not stop in the third hour at a study that nobody can write to."""
    pytest.importorskip("optuna")
    shutil.copy(RESULTS / "fair" / "cifar10.zip", tmp_path)
    cli.main(["reproduce", "fair", "--task", "cifar10", "--data", str(tmp_path), "--out",
              str(tmp_path)])  # fmt: skip
    said = capsys.readouterr()
    assert "cifar10: its studies are in an archive, stay as they are and lack" in said.err
    assert "## CIFAR-10" in said.out


def test_the_time_follows_from_what_an_example_costs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a probe of each network, or by the records that this machine made."""
    probed: list[str] = []

    def probe(task: Any, shape: tuple[int, ...], device: torch.device) -> float:
        probed.append(task.model)
        return {"cnn": 1e-6, "resnet18": 1e-4}[task.model]

    monkeypatch.setattr(estimate, "example_seconds", probe)
    request = asked("all", tmp_path)
    shares = estimate.shares(request, ("rho", "resnet"))
    device = torch.device("cpu")
    found = estimate.seconds(shares, request, device)
    examples = 200 * 40_000
    assert found["rho"] == pytest.approx(40 * examples * 1e-6)
    assert found["resnet"] == pytest.approx(36 * examples * 1e-4)
    assert probed == ["cnn", "resnet18"]
    run = shares[0].missing[0]
    record = Record.of(tmp_path, run.config)
    record.folder.mkdir(parents=True)
    record.begin(run.config, {"device": environment.cpu_name()})
    record.finish({"status": "diverged", "reason": "", "wall_time": 16.0})
    assert estimate.seconds(shares, request, device)["rho"] == pytest.approx(40 * 16.0)
    said = estimate.text(shares, found, request, "a machine")
    assert "76 are missing: about 8 h 5 min on a machine" in said


def test_a_probe_times_a_step_of_the_tasks_network() -> None:
    small = replace(find("cifar10"), recipe=replace(find("cifar10").recipe, batch_size=2))
    assert 0 < probing.example_seconds(small, (3, 32, 32), torch.device("cpu")) < 60


def test_a_plan_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["reproduce", "all", "--plan", "--read-only", "--only", "resnet", "costs", "--out",
              str(tmp_path / "runs")])  # fmt: skip
    said = capsys.readouterr().out
    assert said.splitlines()[1].split()[:3] == ["resnet", "0", "36"]
    assert "36 are not there, and with --read-only none is trained" in said
    assert not (tmp_path / "runs").exists()


# The page.


def sections() -> list[whole.Section]:
    judged = [Claim("t", f"claim {k}", "1 < 2", "3", v) for k, v in enumerate(whole.VERDICTS)]
    one = Chapter("A table", judged, ["A note."], "5 seeds", "a machine", "penex x", files=["x.md"])
    none = chapters.untrained("None", "penex reproduce size", judged[-1:])
    return [whole.Section("table1", "Title", [one], "5 of 5"), whole.Section("size", "S", [none])]


def test_the_page_has_every_claim_with_its_verdict_and_how_it_was_made() -> None:
    for text in (whole.page(sections(), "penex y"), whole.markdown(sections(), "penex y")):
        for k in range(4):
            assert f"claim {k}" in text
        for said in ("5 seeds", "a machine", "penex x", "x.md", "A note.", "penex y", "5 of 5"):
            assert said in text
        assert "No records yet; command: " in text
        assert "penex reproduce size" in text
    assert "1 &lt; 2" in whole.page(sections(), "")
    last = whole.text(sections()).splitlines()
    assert last[3].split() == ["all", "1", "1", "1", "2"]
    assert last[-1] == "None: No records yet; command: penex reproduce size"


def test_every_part_has_a_title_on_the_page_and_a_command() -> None:
    assert tuple(whole._TITLES) == PARTS


def test_what_cannot_be_read_is_said_on_the_page(tmp_path: Path) -> None:
    """A damaged record keeps no other part from being shown."""
    bench_of(tmp_path, PENEX=[1.0, 2.0]).write_text("no")
    cli.main(["reproduce", "all", "--read-only", "--only", "costs", "resnet", "--out",
              str(tmp_path)])  # fmt: skip
    text = (tmp_path / "paper.md").read_text()
    assert "is no record of penex bench" in text
    assert "No records yet; command: penex reproduce resnet --task cifar10_resnet18" in text
    assert (tmp_path / "paper.html").exists()


def test_our_records_are_judged_on_the_page(tmp_path: Path) -> None:
    """The weights of rho need no tuning, by the records in the repository."""
    shutil.copy(RESULTS / "cifar10.zip", tmp_path)
    cli.main(["reproduce", "all", "--read-only", "--only", "rho", "--out", str(tmp_path)])
    text = (tmp_path / "paper.md").read_text()
    assert "| The average and the bounds of rho | 40 of 40 | 1 |" in text
    assert "NVIDIA H200" in text
    assert "files: rho.md" in text
    assert (tmp_path / "rho.md").exists()


@pytest.mark.slow
def test_all_trains_what_is_missing_and_reads_it_again(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "all", "--only", "ablations", "--data", str(files), "--epochs", "1",
             "--train-size", "40", "--seeds", "1", "--out", str(tmp_path)]  # fmt: skip
    cli.main(words)
    said = capsys.readouterr()
    assert "5 are missing: about" in said.err
    assert "In " in said.out
    page = (tmp_path / "paper.md").read_text().partition("Made by")[0]
    assert "0 of 5" in page
    cli.main([*words, "--read-only"])
    again = (tmp_path / "paper.md").read_text().partition("Made by")[0]
    assert again == page.replace("0 of 5", "5 of 5")
    assert "nothing is missing" in capsys.readouterr().err


@pytest.mark.slow
def test_all_from_tiny_files(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["reproduce", "all", "--smoke", "--only", "rho", "costs"])
    said = capsys.readouterr()
    assert "8 are missing" in said.err
    assert said.out.rstrip().endswith("gone: paper.md, paper.html. The numbers mean nothing.")


# Figures.


@pytest.mark.slow
def test_figures_from_tiny_files(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["reproduce", "figures", "--smoke", "--only", "adaboost", "margins", "ablations"])
    said = capsys.readouterr()
    assert "cifar10: 10 of 10 runs to train" in said.err
    for name in ("adaboost", "margins", "ablations"):
        assert f"{name}: {name}.png, {name}.svg, {name}.pdf" in said.out
    assert "figures/figures.html" in said.out.splitlines()[-1]


def test_a_trial_of_figures_leaves_out_what_has_no_stand_in(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli.main(["reproduce", "figures", "--smoke", "--only", "imagenet"])
    said = capsys.readouterr()
    assert "imagenet: not drawn." in said.out
    assert "to train" not in said.err


def test_what_small_models_came_to_is_kept_and_read(tmp_path: Path) -> None:
    picture = figures.PICTURES["margins"]
    shown = Shown(lambda: None, [Point("larger", "holds", "0.1 more")], "Moons.")
    path = kept.write(tmp_path, picture, shown)
    source = Source(tmp_path, 5, read_only=True)
    lines: list[str] = []
    drawn = figures.write(source, ["margins", "adaboost"], "penex", lines.append)
    first, second = drawn.chapters
    assert [(c.words, c.verdict, c.ours) for c in first.claims] == [("larger", "holds", "0.1 more")]
    assert first.machine.startswith(environment.cpu_name())
    assert second.missing.endswith("command: penex reproduce figures --only adaboost")
    image = tmp_path / "figures" / "margins.png"
    image.write_bytes(b"drawn before")
    drawn = figures.write(Source(tmp_path, 5, read_only=True), ["margins"], "penex", lines.append)
    assert drawn.chapters == [first]
    assert (tmp_path / "figures" / figures.PAGE).read_text().count("<strong>holds</strong>") == 1
    assert figures._known(Source(tmp_path, 5), picture, asked=False) == first
    assert figures._known(Source(tmp_path, 5), picture, asked=True) is None
    path.write_text('{"format": 1, "figures": {"margins": {"points": [1]}}}')
    with pytest.raises(RecordError, match=r"figures\.json is damaged"):
        kept.read(tmp_path, picture)
