"""SAMME against the paper's algorithm in plain loops, and against what it claims to minimise."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from penex import functional as F
from penex.boosting import SAMMEClassifier

DATA = {
    "iris": load_iris(return_X_y=True),
    "digits": tuple(part[:600] for part in load_digits(return_X_y=True)),
    "binary": make_classification(n_samples=200, random_state=0),
}
LEARNERS = {
    "stumps": DecisionTreeClassifier(max_depth=1, random_state=0),
    "naive Bayes": GaussianNB(),
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("learner", LEARNERS)
def test_alg_2_samme_round_by_round(data: str, learner: str) -> None:
    """Each round on the weights that the rounds before it leave, computed by hand."""
    x, y = DATA[data]
    model = SAMMEClassifier(LEARNERS[learner], n_estimators=8, random_state=0).fit(x, y)
    assert len(model.estimators_) > 1
    k = model.n_classes_
    weight, f, total = np.full(len(y), 1 / len(y)), np.zeros((len(y), k)), 0.0
    for m, (g, stage) in enumerate(
        zip(model.estimators_, model.staged_decision_function(x), strict=True)
    ):
        named = g.predict(x)
        refitted = g.__class__(**g.get_params()).fit(x, y, sample_weight=weight)
        assert (refitted.predict(x) == named).mean() > 0.99  # rounding decides between equal stumps
        wrong = named != y
        eps = weight[wrong].sum()
        eta = np.log((1 - eps) / eps) + np.log(k - 1)
        assert model.estimator_errors_[m] == pytest.approx(eps)
        assert model.estimator_weights_[m] == pytest.approx(eta)
        f += eta * np.where(named[:, None] == model.classes_, 1.0, -1 / (k - 1))
        total += eta
        shown = f[:, 1] - f[:, 0] if k == 2 else f
        np.testing.assert_allclose(stage, shown / total, atol=1e-12)
        weight = weight * np.exp(eta * wrong)
        weight /= weight.sum()


@pytest.mark.parametrize("data", DATA)
def test_minimises_conex_round_by_round(data: str) -> None:
    """Its logits sum to zero, and EX at alpha = 1 / (K - 1) falls by the predicted factor.

    The greedy minimiser of CONEX weighs g_m with (K - 1)^2 / K eta_m; then EX is multiplied by
    (1 - eps) exp(-(K - 1) eta / K) + eps exp(eta / K), which is below 1.
    """
    x, y = DATA[data]
    model = SAMMEClassifier(n_estimators=20, random_state=0).fit(x, y)
    k = model.n_classes_
    total = np.cumsum(model.estimator_weights_)
    before = 1.0
    for m, stage in enumerate(model.staged_decision_function(x)):
        columns = np.stack([-stage, stage], axis=1) / 2 if k == 2 else stage
        np.testing.assert_allclose(columns.sum(axis=1), 0, atol=1e-12)
        f = torch.tensor(columns * total[m] * (k - 1) ** 2 / k)
        ex = F.exponential(f, torch.tensor(y), alpha=1 / (k - 1)).mean().item()
        eta, eps = model.estimator_weights_[m], model.estimator_errors_[m]
        factor = (1 - eps) * np.exp(-(k - 1) * eta / k) + eps * np.exp(eta / k)
        assert ex == pytest.approx(before * factor, rel=1e-9)
        assert ex < before
        before = ex


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:divide by zero encountered in log")  # an example of weight 0
def test_scikit_learns_own_checks() -> None:
    """The two that scikit-learn's AdaBoost fails, it fails for the same reason."""
    reason = "among equally good stumps, rounding decides: repeating is not quite weighting"
    expected = {
        "check_sample_weight_equivalence_on_dense_data": reason,
        "check_sample_weight_equivalence_on_sparse_data": reason,
    }
    check_estimator(SAMMEClassifier(), on_skip=None, expected_failed_checks=expected)


def test_stops_at_a_perfect_round() -> None:
    x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
    model = SAMMEClassifier(n_estimators=5).fit(x, y)
    assert len(model.estimators_) == 1
    assert model.estimator_errors_.tolist() == [0, 1, 1, 1, 1]
    assert model.score(x, y) == 1


def test_stops_when_no_better_than_guessing() -> None:
    """A constant learner names the larger class; reweighted, the classes weigh the same."""
    x, y = np.zeros((3, 1)), np.array([0, 0, 1])
    model = SAMMEClassifier(n_estimators=5, random_state=0).fit(x, y)
    assert len(model.estimators_) < 5
    np.testing.assert_allclose(model.estimator_weights_, [np.log(2), 0, 0, 0, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n_estimators": 0}, r"'n_estimators' .* must be an int in the range \[1, inf\)"),
        ({"estimator": KNeighborsClassifier()}, "KNeighborsClassifier doesn't support sample_wei"),
    ],
)
def test_bad_input_gets_a_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        SAMMEClassifier(**settings).fit(*DATA["iris"])


def test_without_scikit_learn_one_sentence_says_so() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import penex, penex.boosting"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "penex.boosting needs scikit-learn: pip install" in result.stderr
