"""SAMME against scikit-learn's AdaBoost, stage by stage, and against what it claims to minimise."""

import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.ensemble import AdaBoostClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
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
    "stumps": None,
    "random trees": DecisionTreeClassifier(max_depth=2, max_features=2),
    "naive Bayes": GaussianNB(),
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.filterwarnings("ignore:divide by zero encountered in log")  # scikit-learn's log(0)
def test_equals_scikit_learn_stage_by_stage(data: str, learner: str, weighted: bool) -> None:
    x, y = DATA[data]
    weight = np.random.default_rng(0).integers(0, 3, len(y)) if weighted else None
    settings: dict[str, Any] = {"n_estimators": 15, "random_state": 7}
    ours = SAMMEClassifier(LEARNERS[learner], **settings).fit(x, y, sample_weight=weight)
    theirs = AdaBoostClassifier(LEARNERS[learner], **settings).fit(x, y, sample_weight=weight)
    assert len(ours.estimators_) == len(theirs.estimators_) > 1
    assert np.array_equal(ours.classes_, theirs.classes_)
    for name in ("estimator_weights_", "estimator_errors_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-12)
    for method in ("staged_decision_function", "staged_predict"):
        stages = zip(getattr(ours, method)(x), getattr(theirs, method)(x), strict=True)
        for one, other in stages:
            np.testing.assert_allclose(one, other, atol=1e-12)
    for method in ("decision_function", "predict", "predict_proba", "predict_log_proba"):
        np.testing.assert_allclose(getattr(ours, method)(x), getattr(theirs, method)(x), atol=1e-12)


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
    assert model.estimator_weights_.tolist() == [1, 0, 0, 0, 0]
    assert model.estimator_errors_.tolist() == [0, 1, 1, 1, 1]
    assert model.score(x, y) == 1


def test_stops_when_no_better_than_guessing() -> None:
    """A constant learner names the larger class; reweighted, the classes weigh the same."""
    x, y = np.zeros((3, 1)), np.array([0, 0, 1])
    model = SAMMEClassifier(n_estimators=5, random_state=0).fit(x, y)
    theirs = AdaBoostClassifier(n_estimators=5, random_state=0).fit(x, y)
    assert len(model.estimators_) == len(theirs.estimators_) < 5
    np.testing.assert_allclose(model.estimator_weights_, [np.log(2), 0, 0, 0, 0], atol=1e-12)
    np.testing.assert_array_equal(model.estimator_errors_, theirs.estimator_errors_)


def test_nested_estimators_get_their_seeds() -> None:
    x, y = DATA["iris"]
    nested = make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=1))
    with pytest.raises(ValueError, match="Pipeline doesn't support sample_weight"):
        SAMMEClassifier(nested).fit(x, y)
    weak = DecisionTreeClassifier(max_depth=1, max_features=1)
    settings: dict[str, Any] = {"n_estimators": 3, "random_state": 1}
    ours = SAMMEClassifier(AdaBoostClassifier(weak, n_estimators=2), **settings).fit(x, y)
    theirs = AdaBoostClassifier(AdaBoostClassifier(weak, n_estimators=2), **settings).fit(x, y)
    for one, other in zip(ours.estimators_, theirs.estimators_, strict=True):
        for name in ("random_state", "estimator__random_state"):
            assert one.get_params()[name] == other.get_params()[name] is not None


def test_examples_that_fade_stay_as_scikit_learn_keeps_them() -> None:
    """A strong learner drives most weights below the smallest that either keeps."""
    x, y = DATA["iris"]
    settings: dict[str, Any] = {"n_estimators": 60, "random_state": 2}
    strong = DecisionTreeClassifier(max_depth=2)
    ours = SAMMEClassifier(strong, **settings).fit(x, y)
    theirs = AdaBoostClassifier(strong, **settings).fit(x, y)
    np.testing.assert_array_equal(ours.estimator_weights_, theirs.estimator_weights_)


def test_prediction_keeps_one_stage_in_memory() -> None:
    x, y = DATA["iris"]
    model = SAMMEClassifier(n_estimators=40, random_state=0).fit(x, y)
    many = np.tile(x, (200, 1))
    tracemalloc.start()
    model.decision_function(many)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * many.shape[0] * 3 * 8, "the stages would be 40 times that"


def test_a_single_weight_for_all_is_none() -> None:
    x, y = DATA["iris"]
    one, other = SAMMEClassifier(random_state=0), SAMMEClassifier(random_state=0)
    one.fit(x, y, sample_weight=2.0)
    other.fit(x, y)
    np.testing.assert_array_equal(one.estimator_weights_, other.estimator_weights_)


def test_bad_input_gets_a_sentence() -> None:
    x, y = DATA["iris"]
    with pytest.raises(ValueError, match="n_estimators must be a whole number from 1 on; got 0"):
        SAMMEClassifier(n_estimators=0).fit(x, y)
    with pytest.raises(ValueError, match="KNeighborsClassifier doesn't support sample_weight"):
        SAMMEClassifier(KNeighborsClassifier()).fit(x, y)
    with pytest.raises(ValueError, match=r"no better than guessing one of 2 classes"):
        SAMMEClassifier().fit(np.zeros((4, 1)), [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"for each of the 150 examples; got shape \(3,\)"):
        SAMMEClassifier().fit(x, y, sample_weight=[1, 2, 3])
    with pytest.raises(ValueError, match=r"must not be negative.*-1\.0"):
        SAMMEClassifier().fit(x, y, sample_weight=np.full(150, -1.0))


def test_without_scikit_learn_one_sentence_says_so() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import penex, penex.boosting"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "penex.boosting needs scikit-learn: pip install" in result.stderr
