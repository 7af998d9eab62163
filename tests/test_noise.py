"""Confident learning: against plain loops, and on labels that were flipped at a known rate."""

import pytest
import torch
from torch import Tensor

from penex import noise


def plain_joint(p: list[list[float]], y: list[int]) -> list[list[float]]:
    """The calibrated joint, as the paper has it, example by example."""
    classes = range(len(p[0]))
    thresholds = {}
    for j in classes:
        own = [p[i][j] for i in range(len(y)) if y[i] == j]
        if own:
            thresholds[j] = sum(own) / len(own) - 1e-12
    counts = [[0.0 for _ in classes] for _ in classes]
    for i in range(len(y)):
        above = [j for j in thresholds if p[i][j] >= thresholds[j]]
        if above:
            counts[y[i]][max(above, key=lambda j: p[i][j])] += 1
    found = []
    for j in classes:
        row = counts[j] if sum(counts[j]) else [float(k == j) for k in classes]
        share = sum(label == j for label in y) / len(y)
        found.append([share * value / sum(row) for value in row])
    return found


@pytest.mark.parametrize("seed", range(8))
def test_the_joint_equals_plain_loops(seed: int) -> None:
    """With classes that label nothing, too."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.randn(60, 5, generator=generator, dtype=torch.float64).mul(2).softmax(1)
    y = torch.randint(5 - seed % 2, (60,), generator=generator)
    expected = torch.tensor(plain_joint(p.tolist(), y.tolist()), dtype=torch.float64)
    assert torch.allclose(noise.joint(p, y), expected)
    assert noise.wrong_share(p, y) == pytest.approx(1 - expected.trace().item())


def flipped(rate: float, n: int = 20_000, k: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities of right classes that are clear but not certain, given labels, right ones."""
    generator = torch.Generator().manual_seed(0)
    right = torch.randint(k, (n,), generator=generator)
    away = torch.randint(1, k, (n,), generator=generator)
    hit = torch.rand(n, generator=generator) < rate
    given = torch.where(hit, (right + away) % k, right)
    logits = torch.randn(n, k, generator=generator)
    logits[torch.arange(n), right] += 5
    return logits.softmax(1), given, right


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_a_known_rate_is_found(rate: float) -> None:
    p, given, right = flipped(rate)
    truth = (given != right).double().mean().item()
    assert noise.wrong_share(p, given) == pytest.approx(truth, abs=0.02)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4])
def test_a_rate_is_found_where_models_err(rate: float) -> None:
    """On two fifths of the examples, of which they are not sure: those are not taken for wrong."""
    generator = torch.Generator().manual_seed(0)
    right = torch.randint(10, (5000,), generator=generator)
    logits = torch.randn(5000, 10, generator=generator)
    logits[torch.arange(5000), right] += 4 * torch.rand(5000, generator=generator)
    away = torch.randint(1, 10, (5000,), generator=generator)
    hit = torch.rand(5000, generator=generator) < rate
    given, p = torch.where(hit, (right + away) % 10, right), logits.softmax(1)
    found = noise.estimate(p, given, torch.arange(5000) % 5)
    assert found.way == "sure"
    assert found.share == pytest.approx((given != right).double().mean().item(), abs=0.04)
    assert abs(noise.wrong_share(p, given) - found.share) > 0.15


def overlapping(n: int, seed: int, shift: float) -> tuple[Tensor, Tensor]:
    """The true probabilities of two classes that overlap, and labels drawn with them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    p = (1.5 * x - shift).sigmoid()
    given = (torch.rand(n, generator=generator, dtype=torch.float64) < p).long()
    return torch.stack([1 - p, p], 1), given


def test_right_labels_of_classes_that_overlap_are_not_wrong() -> None:
    p, given = overlapping(4000, 0, 2.0)
    found = noise.estimate(p, given, torch.arange(4000) % 5)
    assert found.share < 0.04 < 0.1 < noise.wrong_share(p, given)


def test_few_examples_are_bounded_by_what_models_disagree_with() -> None:
    p, given = overlapping(30, 0, 2.0)
    found = noise.estimate(p, given, torch.arange(30) % 5)
    assert found.share == (p.argmax(1) != given).double().mean() < noise.wrong_share(p, given)
    assert (found.way, found.error != found.error) == ("disagreement", True)


def test_the_sure_examples_are_those_of_each_predicted_class() -> None:
    """Half of each, as there are few: of three the two surest, of one that one."""
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
    share, error = noise.sure_share(p, torch.tensor([1, 0, 1, 1]))
    assert share == pytest.approx(3 / 4 * 1 / 2)
    assert error == pytest.approx((17 / 40 * 23 / 40 / 3) ** 0.5)


def test_where_the_flips_go_is_found() -> None:
    """A class that is taken for one other: the joint says which, and how often."""
    p, _, right = flipped(0.0)
    hit = torch.rand(len(right), generator=torch.Generator().manual_seed(1)) < 0.2
    given = torch.where(hit & (right == 0), 2, right)
    found = noise.joint(p, given)
    truth = ((given == 2) & (right == 0)).double().mean()
    assert found[2, 0].item() == pytest.approx(truth.item(), abs=0.015)
    assert found.sum().item() == pytest.approx(1)
    assert found.fill_diagonal_(0).argmax() == 2 * 4 + 0


def test_the_score_puts_flipped_labels_first() -> None:
    p, given, right = flipped(0.1, n=1000)
    worst = noise.self_confidence(p, given).argsort()[: int((given != right).sum())]
    assert (given != right)[worst].double().mean() > 0.9


def test_the_jackknife_is_that_of_its_formula() -> None:
    p, given, _ = flipped(0.1, n=500)
    group = torch.arange(500) % 3
    shares = [noise.wrong_share(p[group != g], given[group != g]) for g in range(3)]
    mean = sum(shares) / 3
    expected = (2 / 3 * sum((share - mean) ** 2 for share in shares)) ** 0.5
    assert noise.wrong_share_error(p, given, group) == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(0, 3), (2, 3), (4,)])
def test_what_does_not_fit_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="class indices"):
        noise.self_confidence(torch.ones(shape), torch.zeros(1 if shape[0] else 0).long())
