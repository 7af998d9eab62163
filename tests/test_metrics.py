"""Metrics against brute force and closed forms; the bootstrap against sqrt(p (1 - p) / n)."""

import csv
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penex import metrics
from penex.report import figures, page, results, series, tables
from penex.report.results import Results


def sample(seed: int, n: int = 200, classes: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, (n,), generator=generator)


def brute_force_ece(logits: Tensor, target: Tensor, temperature: float, bins: int) -> float:
    p = torch.softmax(logits / temperature, dim=1).tolist()
    y = target.tolist()
    error = 0.0
    for m in range(1, bins + 1):
        members = [i for i, row in enumerate(p) if (m - 1) / bins < max(row) <= m / bins]
        if members:
            correct = sum(p[i].index(max(p[i])) == y[i] for i in members) / len(members)
            confidence = sum(max(p[i]) for i in members) / len(members)
            error += len(members) / len(p) * abs(correct - confidence)
    return error


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6), temperature=st.floats(0.2, 3), bins=st.sampled_from([1, 2, 15, 40])
)
def test_ece_equals_brute_force(seed: int, temperature: float, bins: int) -> None:
    logits, target = sample(seed, n=70)
    ours = metrics.ece(logits, target, temperature=temperature, bins=bins).item()
    assert ours == pytest.approx(brute_force_ece(logits, target, temperature, bins), abs=1e-12)


@pytest.mark.parametrize("n", [64, 200, 5])
def test_ece_per_batch_is_the_plain_mean_over_batches(n: int) -> None:
    logits, target = sample(1, n=n)
    parts = [
        brute_force_ece(logits[i : i + 64], target[i : i + 64], 0.7, 15) for i in range(0, n, 64)
    ]
    ours = metrics.ece_per_batch(logits, target, temperature=0.7).item()
    assert ours == pytest.approx(sum(parts) / len(parts), abs=1e-12)


@pytest.mark.parametrize(
    ("sharpness", "accuracy", "error"), [(2.0, 0.53, 0.148), (6.0, 0.82, 0.105)]
)
def test_ece_per_batch_of_a_calibrated_model_is_not_zero(
    sharpness: float, accuracy: float, error: float
) -> None:
    """Labels drawn from the model's own probabilities: the figures that docs/inside.md warns of."""
    torch.manual_seed(0)
    logits = sharpness * torch.randn(40_000, 10, dtype=torch.float64)
    target = torch.multinomial(logits.softmax(1), 1).squeeze(1)
    assert metrics.ece(logits, target) < 0.01
    assert metrics.accuracy(logits, target).item() == pytest.approx(accuracy, abs=0.01)
    assert metrics.ece_per_batch(logits, target).item() == pytest.approx(error, abs=0.003)


def test_certainty_is_in_the_last_bin() -> None:
    """A confidence of exactly 1 shares the bin of 0.97, where the two errors cancel in part."""
    logits = torch.tensor([[2000.0, 0.0], [math.log(97), math.log(3)]], dtype=torch.float64)
    target = torch.tensor([0, 1])
    assert metrics.ece(logits, target).item() == pytest.approx(abs(1 + 0 - 1 - 0.97) / 2)


def test_bins_are_closed_on_the_right() -> None:
    """Of two bins, 0.5 is in (0, 0.5] and 0.7 in (0.5, 1]: apart, their errors do not cancel."""
    logits = torch.tensor([[0.0, 0.0], [math.log(7), math.log(3)]], dtype=torch.float64)
    assert torch.softmax(logits, 1)[0, 0].item() == 0.5
    error = metrics.ece(logits, torch.tensor([0, 1]), bins=2).item()
    assert error == pytest.approx((0.5 + 0.7) / 2)
    assert metrics.ece(logits, torch.tensor([0, 1]), bins=1).item() == pytest.approx(0.2 / 2)


def test_ece_of_a_million_examples_is_not_rounded_away() -> None:
    logits = torch.zeros(10**6, 2)
    logits[:, 0] = math.log(9)
    assert metrics.ece(logits, torch.ones(10**6).long()).item() == pytest.approx(0.9, rel=1e-6)


def test_accuracy_sees_what_a_softmax_would_not() -> None:
    logits, target = torch.tensor([[0.0, 1e-8]]), torch.tensor([1])
    assert metrics.accuracy(logits, target, temperature=1e5) == 1


@given(seed=st.integers(0, 10**6), temperature=st.floats(0.2, 3))
def test_the_other_metrics_equal_torch(seed: int, temperature: float) -> None:
    logits, target = sample(seed)
    p = torch.softmax(logits / temperature, dim=1)
    one_hot = torch.nn.functional.one_hot(target, 5)
    expected = {
        metrics.accuracy: (logits.argmax(1) == target).double().mean(),
        metrics.cross_entropy: torch.nn.functional.cross_entropy(logits / temperature, target),
        metrics.brier: (p - one_hot).square().sum(1).mean(),
    }
    for metric, value in expected.items():
        torch.testing.assert_close(metric(logits, target, temperature=temperature), value)


def test_brier_of_a_sure_model_does_not_cancel() -> None:
    logits, target = torch.tensor([[12.0, 0.0]]), torch.tensor([0])
    exact = 2 * torch.sigmoid(torch.tensor(-12.0, dtype=torch.float64)) ** 2
    assert metrics.brier(logits, target).item() == pytest.approx(exact.item(), rel=0.05)


def test_half_precision_is_read_in_float32() -> None:
    logits, target = sample(2)
    half = logits.half()
    for name, value in metrics.summary(metrics.scores(half, target)).items():
        expected = metrics.summary(metrics.scores(half.float(), target))[name]
        assert value.item() == expected.item()


def test_bootstrap_spread_of_accuracy_is_binomial() -> None:
    """Within 4 standard errors: a standard deviation of R resamples is known to 1 / sqrt(2 R)."""
    logits, target = sample(3, n=2000)
    p = metrics.accuracy(logits, target).item()
    expected = math.sqrt(p * (1 - p) / 2000)
    spread = metrics.bootstrap(logits, target, resamples=400)["accuracy"].item()
    assert spread == pytest.approx(expected, rel=4 / math.sqrt(2 * 400))


def test_bootstrap_spread_of_means_is_their_standard_error() -> None:
    logits, target = sample(4, n=2000)
    cached = metrics.scores(logits, target, temperature=0.8)
    spread = metrics.bootstrap(logits, target, temperature=0.8, resamples=400)
    for name, values in (("cross_entropy", cached.nll), ("brier", cached.brier)):
        expected = values.std().item() / math.sqrt(2000)
        assert spread[name].item() == pytest.approx(expected, rel=4 / math.sqrt(2 * 400))
    assert all(value.item() > 0 for value in spread.values())


def test_bootstrap_is_a_function_of_its_seed() -> None:
    logits, target = sample(5)
    assert metrics.bootstrap(logits, target) == metrics.bootstrap(logits, target)
    assert metrics.bootstrap(logits, target) != metrics.bootstrap(logits, target, seed=1)


def test_bootstrap_is_the_deviation_of_resampled_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """One resample after another, as the docstring says it, however many are drawn at once."""
    logits, target = sample(7, n=150)
    cached = metrics.scores(logits, target, temperature=0.8, votes=logits.detach().exp())
    generator = torch.Generator().manual_seed(3)
    drawn: dict[str, list[Tensor]] = {}
    for _ in range(25):
        index = torch.randint(150, (150,), generator=generator)
        resampled = metrics.Scores(*(x[index] for x in cached if x is not None))
        for name, value in metrics.summary(resampled).items():
            drawn.setdefault(name, []).append(value)
    for at_once in (1, 7 * 600, 10**6):
        monkeypatch.setattr(metrics, "_AT_ONCE", at_once)
        spread = metrics.bootstrap_scores(cached, resamples=25, seed=3)
        for name, values in drawn.items():
            torch.testing.assert_close(spread[name], torch.stack(values).std())


def test_models_side_by_side_are_the_models_alone() -> None:
    """Each with targets and a temperature of its own; one that is broken stays by itself."""
    pairs = [sample(seed) for seed in range(6)]
    pairs[4][0][3, 1] = math.nan
    logits, target = map(torch.stack, zip(*pairs, strict=True))
    temperature = torch.linspace(0.5, 2.0, 6, dtype=torch.float64).view(2, 3, 1, 1)
    cached = metrics.scores_side_by_side(
        logits.view(2, 3, 200, 5), target.view(2, 3, 200), temperature
    )
    found = metrics.summary(cached)
    for k, ((one, its), t) in enumerate(zip(pairs, temperature.flatten().tolist(), strict=True)):
        alone = metrics.summary(metrics.scores(one, its, temperature=t))
        for name, value in alone.items():
            assert value.isnan() == (k == 4)
            torch.testing.assert_close(found[name].flatten()[k], value, equal_nan=True)


FUNCTIONS: list[Callable[..., Tensor]] = [
    metrics.accuracy,
    metrics.cross_entropy,
    metrics.brier,
    metrics.ece,
    metrics.ece_per_batch,
]


@pytest.mark.parametrize("metric", FUNCTIONS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_broken_row_never_gives_a_number(metric: Callable[..., Tensor], value: float) -> None:
    logits, target = sample(6)
    logits[3, 1] = value
    assert metric(logits, target).isnan()


@pytest.mark.parametrize("metric", FUNCTIONS)
def test_bad_input_gets_a_sentence(metric: Callable[..., Tensor]) -> None:
    logits, target = torch.zeros(3, 2), torch.tensor([0, 1, 0])
    with pytest.raises(ValueError, match=r"shape \(3,\); got torch.int64 of shape \(2,\)"):
        metric(logits, target[:2])
    with pytest.raises(ValueError, match=r"int64 class indices.*got torch.float32"):
        metric(logits, target.float())
    with pytest.raises(ValueError, match="N at least 1"):
        metric(logits[:0], target[:0])
    with pytest.raises(ValueError, match=r"shape \(N, C\)"):
        metric(logits[0], target[0])
    with pytest.raises(IndexError, match="Target 2 is out of bounds: with 2 classes"):
        metric(logits, torch.tensor([0, 2, 1]))
    with pytest.raises(IndexError, match="Target -1"):
        metric(logits, torch.tensor([0, -1, 1]))
    with pytest.raises(ValueError, match="temperature must be"):
        metric(logits, target, temperature=0.0)


def test_bad_bins_and_resamples_get_a_sentence() -> None:
    logits, target = torch.zeros(3, 2), torch.tensor([0, 1, 0])
    with pytest.raises(ValueError, match="bins must be at least 1; got"):
        metrics.ece(logits, target, bins=0)
    with pytest.raises(ValueError, match="batch_size and bins"):
        metrics.ece_per_batch(logits, target, batch_size=0)
    with pytest.raises(ValueError, match="at least 2 resamples; got 1"):
        metrics.bootstrap(logits, target, resamples=1)


def test_the_registry_names_the_functions() -> None:
    logits, target = sample(8)
    found = metrics.summary(metrics.scores(logits, target, temperature=0.7))
    assert list(found) == list(metrics.METRICS) == [metric.__name__ for metric in FUNCTIONS]
    for metric in FUNCTIONS:
        torch.testing.assert_close(found[metric.__name__], metric(logits, target, temperature=0.7))


def test_a_metric_is_registered_once() -> None:
    with pytest.raises(ValueError, match="There is a metric 'brier' already"):
        metrics.register(metrics.METRICS["brier"])


@pytest.fixture
def doubtful() -> Iterator[metrics.Metric]:
    """A metric of our own, as a user would add one."""

    def share(scores: metrics.Scores) -> Tensor:
        return (scores.confidence < scores.confidence.mean(-1, keepdim=True)).double().mean(dim=-1)

    yield metrics.register(metrics.Metric("doubtful", "share in doubt", share, digits=2))
    del metrics.METRICS["doubtful"]


def compared(out: Path, pack: int) -> Results:
    """A tiny comparison, trained in packs of a size."""
    from penex.lab import tasks
    from penex.lab.training import Place, compare

    what = compare.Comparison(tasks.find("digits"), ("ce", "penex"), 1, (40,), {"epochs": 1})
    listing = compare.compare(what, Place(out), pack=pack)
    return results.load(out / "digits", listing)


@pytest.mark.parametrize("pack", [1, 2])
def test_a_new_metric_is_recorded_and_shown(
    doubtful: metrics.Metric, tmp_path: Path, pack: int
) -> None:
    """In done.json with its spread and every epoch; then in tables, drawings and the page."""
    found = compared(tmp_path, pack)
    row = found.rows[0]
    record = row.records[0].record
    arrays, done = record.predictions(), record.done()
    logits, target = (torch.from_numpy(arrays[f"test_{x}"]) for x in ("logits", "targets"))
    scores = metrics.scores(logits, target, temperature=float(arrays["temperature"]))
    assert done["test"]["doubtful"] == pytest.approx(doubtful.of(scores).item(), abs=1e-6)
    assert done["test_spread"]["doubtful"] > 0
    assert all("doubtful" in line["validation"] for line in record.metrics())
    cell = tables.cell(row, doubtful)
    assert cell == f"{done['test']['doubtful']:.2f}"
    assert f"| {cell} |" in tables.markdown(found)
    assert "share in doubt" in tables.latex(found)
    lines = list(csv.DictReader(tables.as_csv(found).splitlines()))
    values = {(x["loss"], x["part"]): x["value"] for x in lines if x["metric"] == "doubtful"}
    assert float(values["ce", "test"]) == done["test"]["doubtful"]
    assert (40, "doubtful") in series.of(found).curves
    assert len(figures.curves(found).axes) == sum(m.drawn for m in metrics.METRICS.values())
    text = page.build(found)
    assert 'data-metric="doubtful"' in text
    assert f">{cell}" in text


def test_a_record_without_a_metric_shows_a_dash(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What was measured before the metric came is as good as it was."""
    found = compared(tmp_path, 2)
    doubtful: metrics.Metric = request.getfixturevalue("doubtful")
    found = results.load(tmp_path / "digits")
    assert [tables.cell(row, doubtful) for row in found.rows] == ["–", "–"]
    assert "–" not in tables.cell(found.rows[0], metrics.METRICS["ece"])
    assert "share in doubt" in page.build(found)
