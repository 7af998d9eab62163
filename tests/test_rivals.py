"""What the rivals are by themselves: their minimisers, their extremes, and ELR's memory."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from penex import cli, metrics, registry
from penex.baselines import CrossEntropyLoss
from penex.lab import tasks, training
from penex.lab.engine.packed import Pack
from penex.lab.engine.step import HISTORY, step
from penex.lab.ground.errors import Interrupted
from penex.lab.records import Record
from penex.lab.tasks import runs
from penex.lab.training import packing
from penex.rivals import ActivePassive, Brier, EarlyLearning, GeneralisedCrossEntropy

from strategies import make

CPU = torch.device("cpu")
DIGITS = tasks.find("digits")
RIVALS = ["brier", "gce", "nce_rce", "elr"]


@pytest.mark.parametrize("loss", [Brier(), *(GeneralisedCrossEntropy(q) for q in (0.2, 0.7))])
def test_the_minimiser_of_the_expected_loss_predicts_the_truth(loss: Any) -> None:
    """Found by a search from scratch, at the temperature that the loss names."""
    truth = torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=torch.float64)
    f = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [f], max_iter=500, tolerance_grad=1e-13, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def expected() -> float:
        search.zero_grad()
        value: Tensor = loss(f, truth)
        torch.autograd.backward(value)
        return value.item()

    search.step(expected)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss.probabilities(f.detach()), truth, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("soft", [False, True])
def test_extreme_logits_are_finite(name: str, dtype: torch.dtype, label: int, soft: bool) -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0, 1.0]], dtype=dtype, requires_grad=True)
    target = torch.tensor([label])
    if soft:
        target = torch.nn.functional.one_hot(target, 4).to(dtype)
    loss = make(name)
    for _ in range(3):
        value = loss(logits, target)
        (gradient,) = torch.autograd.grad(value, logits)
        assert value.isfinite()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("soft", [False, True])
def test_brier_keeps_its_digits_where_the_model_is_certain(soft: bool) -> None:
    logits = torch.tensor([[30.0, 0.0, -1.0], [0.0, 2.0, 25.0], [1.0, 0.0, 0.5]])
    target = torch.tensor([0, 2, 1])
    given = torch.nn.functional.one_hot(target, 3).float() if soft else target
    ours, wide = logits.clone().requires_grad_(), logits.double().requires_grad_()
    rows = Brier(reduction="none")(ours, given)
    p = wide.softmax(1)
    others = p.masked_fill(torch.nn.functional.one_hot(target, 3).bool(), 0.0)
    expected = others.sum(1).square() + others.square().sum(1)
    torch.testing.assert_close(rows.double(), expected, rtol=1e-5, atol=0)
    (slope,), (right,) = (
        torch.autograd.grad(v.sum(), f) for v, f in ((rows, ours), (expected, wide))
    )
    torch.testing.assert_close(slope.double(), right, rtol=1e-5, atol=1e-25)


def test_brier_is_the_metric() -> None:
    logits, target = torch.randn(50, 7), torch.randint(7, (50,))
    torch.testing.assert_close(Brier()(logits, target), metrics.brier(logits, target))


@pytest.mark.parametrize("q", [1e-3, 1e-6, 1e-9])
def test_gce_tends_to_cross_entropy(q: float) -> None:
    """-log p_y - (1 - p_y^q) / q is q (log p_y)^2 / 2 and less, and no digit is lost on the way."""
    logits, target = torch.randn(20, 4, dtype=torch.float64), torch.randint(4, (20,))
    ours = GeneralisedCrossEntropy(q, reduction="none")(logits, target)
    theirs = CrossEntropyLoss(reduction="none")(logits, target)
    gap = theirs - ours
    torch.testing.assert_close(gap, q * theirs.square() / 2, rtol=10 * q, atol=1e-14)


def test_a_masked_class_is_as_if_it_were_not_there() -> None:
    logits, target = torch.randn(6, 3), torch.randint(3, (6,))
    for mask in (-math.inf, torch.finfo(torch.float32).min):
        masked = torch.cat([logits, torch.full((6, 1), mask)], dim=1)
        torch.testing.assert_close(ActivePassive()(masked, target), ActivePassive()(logits, target))
    assert ActivePassive()(torch.randn(6, 1), torch.zeros(6).long()) == 0


class Published:
    """Early-learning regularisation number by number, as its authors' code goes about it."""

    def __init__(self, examples: int, classes: int, lambda_: float, beta: float) -> None:
        self.memory = [[0.0] * classes for _ in range(examples)]
        self.lambda_, self.beta = lambda_, beta

    def __call__(self, logits: Tensor, target: Tensor, index: Tensor) -> Tensor:
        """The mean loss of a batch, after its examples' memory has moved."""
        total = logits.new_zeros(())
        for f, y, i in zip(logits, target.tolist(), index.tolist(), strict=True):
            p = [v / sum(v.exp() for v in f) for v in f.exp()]
            near = [v.clamp(1e-4, 1 - 1e-4) for v in p]
            whole = sum(v.item() for v in near)
            self.memory[i] = [
                self.beta * t + (1 - self.beta) * v.item() / whole
                for t, v in zip(self.memory[i], near, strict=True)
            ]
            agreement = sum(v * t for v, t in zip(near, self.memory[i], strict=True))
            total = total - p[y].log() + self.lambda_ * (1 - agreement).log()
        return total / len(target)


def test_elr_is_the_published_one_over_many_batches() -> None:
    """Values, gradients and the memory, in an order in which examples come again."""
    ours, theirs = EarlyLearning(7.0, 0.9), Published(20, 4, 7.0, 0.9)
    ours.remember(20, 4)
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        logits = 4 * torch.randn(6, 4, generator=generator, dtype=torch.float64)
        target = torch.randint(4, (6,), generator=generator)
        index = torch.randperm(20, generator=generator)[:6]
        one, two = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        value, expected = ours(one, target, index=index), theirs(two, target, index)
        torch.testing.assert_close(value, expected)
        (slope,), (right,) = torch.autograd.grad(value, one), torch.autograd.grad(expected, two)
        torch.testing.assert_close(slope, right)
    torch.testing.assert_close(ours.memory, torch.tensor(theirs.memory, dtype=torch.float64))
    before = ours.memory.clone()
    ours.eval()(logits, target, index=index)
    assert torch.equal(ours.memory, before)


def test_elr_moves_what_it_sees_and_nothing_else() -> None:
    loss = EarlyLearning()
    loss.remember(6, 3)
    target = torch.tensor([[0, -100], [2, 1]])
    loss(torch.randn(2, 3, 2), target, index=torch.tensor([[0, 1], [2, 5]]))
    assert loss.memory.sum(1).ne(0).tolist() == [True, False, True, False, False, True]
    torch.testing.assert_close(loss.memory[[0, 2, 5]].sum(1), torch.full((3,), 0.3))


def test_elr_loads_into_a_loss_that_was_just_made_and_into_no_other() -> None:
    saved = EarlyLearning()
    saved.remember(6, 3)
    saved(torch.randn(2, 3), torch.tensor([0, 1]), index=torch.tensor([4, 2]))
    fresh, other = EarlyLearning(), EarlyLearning()
    fresh.load_state_dict(saved.state_dict())
    assert torch.equal(fresh.memory, saved.memory)
    other.remember(7, 3)
    with pytest.raises(RuntimeError, match="memory"):
        other.load_state_dict(saved.state_dict())


def test_elr_says_what_it_needs() -> None:
    logits, target, index = torch.randn(2, 3), torch.tensor([0, 1]), torch.tensor([4, 2])
    loss = EarlyLearning()
    for given in (None, index):
        with pytest.raises(ValueError, match=r"call loss\.remember\(examples, classes\) once"):
            loss(logits, target, index=given)
    loss.remember(6, 3)
    with pytest.raises(ValueError, match=r"must know which examples a batch has"):
        loss(logits, target)
    for wrong in (index[:1], index.float()):
        with pytest.raises(ValueError, match=r"an int64 number for each target, in the shape \(2,"):
            loss(logits, target, index=wrong)
    with pytest.raises(ValueError, match="remembers 3 classes, the logits have 4"):
        loss(torch.randn(2, 4), target, index=index)
    with pytest.raises(IndexError):
        loss(logits, target, index=index + 4)
    assert (loss.memory == 0).all()


def planned(words: list[str], **changes: Any) -> list[runs.Run]:
    return [
        runs.plan(DIGITS, runs.LossSpec.parse(word), seed, 97, changes)
        for seed, word in enumerate(words)
    ]


def test_elr_in_a_pack_is_as_alone_with_its_memory() -> None:
    """Of several lambdas and betas, beside other losses."""
    some = planned(["elr", "ce", "elr:lambda_=7,beta=0.9", "elr:beta=0"], dtype="float64")
    data = [*map(training.Place(Path(), CPU).data, some)]
    packed, alone = (
        [training.learner_of(run, one, CPU) for run, one in zip(some, data, strict=True)]
        for _ in range(2)
    )
    pack = Pack(packed, data)
    pack.train(True)
    rates = torch.full((4, 1), 1e-2, dtype=torch.float64)
    for k in range(6):
        rows = torch.randperm(97, generator=torch.Generator().manual_seed(k))[:32]
        pack.step(rows.expand(4, -1), rates, torch.zeros(4, len(HISTORY), dtype=torch.float64))
        for learner, one in zip(alone, data, strict=True):
            learner.train()
            step(learner, one, rows, rates[0, 0], torch.zeros(len(HISTORY), dtype=torch.float64))
    pack.scatter()
    for ours, theirs in zip(packed, alone, strict=True):
        torch.testing.assert_close(ours.theta, theirs.theta, rtol=1e-8, atol=1e-10)
        if isinstance(ours.loss, EarlyLearning):
            assert isinstance(theirs.loss, EarlyLearning)
            assert (ours.loss.memory.sum(1) > 0).sum() > 60
            torch.testing.assert_close(ours.loss.memory, theirs.loss.memory)


@pytest.mark.parametrize("pack", [1, 8])
def test_elr_goes_on_bit_for_bit_after_it_was_stopped(pack: int, tmp_path: Path) -> None:
    some = planned(["elr", "elr:beta=0.9"], epochs=3)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    def place(name: str, **watched: Any) -> training.Place:
        return training.Place(tmp_path / name, CPU, training.Hooks(**watched))

    packing.train(some, place("whole"), pack)
    with pytest.raises(Interrupted):
        packing.train(some, place("broken", stop=stop), pack)
    assert list((tmp_path / "broken").rglob("step-*.safetensors"))
    packing.train(some, place("broken"), pack)
    for run in some:
        whole, broken = (
            Record.of(tmp_path / name, run.config).folder for name in ("whole", "broken")
        )
        for name in ("metrics.jsonl", "model.safetensors"):
            assert (whole / name).read_bytes() == (broken / name).read_bytes()


@pytest.mark.slow
def test_the_command_gives_the_same_numbers_packed_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    start = ["compare", "digits", "--losses", *RIVALS, "focal:detach=true", "--epochs", "2"]
    start += ["--seeds", "1", "--train-size", "97", "--dtype", "float64", "--device", "cpu"]
    for pack in ("off", "8"):
        cli.main([*start, "--pack", pack, "--out", pack])
    said = capsys.readouterr()
    assert "Not packed" not in said.err
    assert all(registry.find(name).title in said.out for name in RIVALS)
    done = sorted((tmp_path / "off").rglob("done.json"))
    assert len(done) == 5
    for path in done:
        twin = tmp_path / "8" / path.relative_to(tmp_path / "off")
        alone, packed = (json.loads(one.read_text())["test"] for one in (path, twin))
        assert packed == pytest.approx(alone, rel=1e-6)


def test_elr_takes_batches_of_fewer_examples_than_micro_batches() -> None:
    (run,) = planned(["elr"], accumulate=4, epochs=1)
    data = training.Place(Path(), CPU).data(run)
    learner = training.learner_of(run, data, CPU)
    learner.train()
    step(learner, data, torch.tensor([5, 9]), torch.tensor(1e-3), torch.zeros(len(HISTORY)))
    assert isinstance(learner.loss, EarlyLearning)
    assert learner.loss.memory.sum(1).nonzero().flatten().tolist() == [5, 9]


def test_the_rivals_are_known_by_their_published_values() -> None:
    assert {name: registry.find(name).defaults for name in RIVALS} == {
        "brier": {},
        "gce": {"q": 0.7},
        "nce_rce": {"a": 1.0},
        "elr": {"lambda_": 3.0, "beta": 0.7},
    }
