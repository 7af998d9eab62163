"""penex bench measures what it says, and says it."""

import json
from pathlib import Path

import pytest
import torch

from penex import PENEX, cli
from penex.lab import bench
from penex.lab.ground.errors import LabError
from penex.report import costs

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def rows() -> list[bench.Row]:
    sizes = [bench.Size(4, 3), bench.Size(2, 50)]
    with bench.threads(1):
        return bench.measure(
            sizes, CPU, torch.float32, 0.001, compiled=False, tell=lambda line: None
        )


def test_every_loss_at_every_size_and_pass(rows: list[bench.Row]) -> None:
    names = list(bench.contestants(CPU, compiled=False))
    seen = [(row["size"], row["pass"], row["loss"]) for row in rows]
    assert seen == [
        (size, kind, name)
        for size in ("4x3", "2x50")
        for kind in ("forward", "forward+backward")
        for name in names
    ]
    for row in rows:
        low, high = row["quartiles"]
        assert 0 < low <= row["seconds"] <= high
        assert row["floors"] > 0
    assert all(row["ratio"] == 1 for row in rows if row["loss"] == bench.BASE)
    used = {row["loss"]: row["implementation"] for row in rows if "implementation" in row}
    assert used == {"PENEX": "eager", "PENEX, plain formula": "reference"}


@pytest.mark.parametrize("kind", bench.PASSES[1:3])
def test_one_thread_is_what_its_pass_says(kind: str) -> None:
    several: list[bool] = []

    def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        several.append(torch._C._is_multithreading_enabled())
        return torch.nn.functional.cross_entropy(logits, target)

    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    (row,) = bench._measure({bench.BASE: loss}, logits, target, kind, 0.001, "4x3")
    assert row["pass"] == kind
    assert several[-1] == ("one thread" not in kind)
    assert torch._C._is_multithreading_enabled()


def test_the_losses_that_are_timed_agree() -> None:
    """What is faster computes the same over some steps: PENEX, and the paper's as it is printed."""
    made = {k: make() for k, make in bench.contestants(CPU, compiled=False).items()}
    made["printed"] = PENEX(scale="paper")
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        logits = torch.randn(8, 5, generator=generator)
        target = torch.randint(5, (8,), generator=generator)
        values = {name: loss(logits, target) for name, loss in made.items()}
        torch.testing.assert_close(values["PENEX"], values["PENEX, plain formula"])
        torch.testing.assert_close(values["PENEX, the paper's listing"], values["printed"])


def test_times_are_those_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls that take 2 ms and 30 ms by a clock that only they move."""
    now = 0.0

    def takes(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("penex.lab.bench.timings.time.perf_counter", lambda: now)
    times = bench.take_turns({"a": lambda: takes(2e-3), "b": lambda: takes(30e-3)}, 0.5, CPU)
    assert times["a"] == pytest.approx([2e-3] * len(times["a"]))
    assert times["b"] == pytest.approx([30e-3] * len(times["a"]))
    assert len(times["a"]) == 24  # a turn is 5 calls of a and one of b, 40 ms; the first warms up


def test_what_does_not_fit_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("penex.lab.ground.environment.free_memory", lambda: 10**9)
    found = bench.measure(
        [bench.Size(8192, 128_256)], CPU, torch.float32, 0.001, compiled=False, tell=said.append
    )
    assert found == []
    assert said == ["8192x128256 is left out: it needs 25 GB, 1 are free."]


def test_a_step_is_measured_under_both_losses() -> None:
    found = bench.training_steps(CPU, 0.001)
    assert [row["loss"] for row in found] == [bench.BASE, "PENEX"]
    assert all(row["seconds"] > 0 for row in found)


def test_the_command_writes_a_record_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["bench", "--sizes", "4x3", "--seconds", "0.001", "--no-step", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "4x3, forward+backward" in printed
    assert "x cross-entropy" in printed
    record = json.loads((tmp_path / "bench.json").read_text())
    assert record["command"].startswith("penex bench --sizes 4x3")
    assert record["environment"]["torch"] == torch.__version__
    assert costs.text(record["rows"]) in printed
    assert (tmp_path / "bench.png").stat().st_size > 10_000
    assert torch.get_num_threads() >= 1


@pytest.mark.parametrize("text", ["64", "64x", "x10", "0x10", "64x10x2", "ax3", "²x10"])
def test_a_wrong_size_is_one_sentence(text: str) -> None:
    with pytest.raises(LabError, match="A size is ROWSxCLASSES"):
        bench.Size.parse(text)


@pytest.mark.parametrize(
    "arguments", [["--seconds", "0"], ["--threads", "0"], ["--sizes", "9"], ["--device", "abacus"]]
)
def test_wrong_options_end_with_2(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", *arguments, "--out", str(tmp_path / "x")])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("penex: ")
    assert not (tmp_path / "x").exists()
