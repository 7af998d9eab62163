"""PenexClassifier among scikit-learn's own parts."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

import penex
from penex import registry
from penex.integrations.sklearn import PenexClassifier

X, Y = load_iris(return_X_y=True)
X = StandardScaler().fit_transform(X)
ALL = len(X)


def quick(**options: Any) -> Any:
    return PenexClassifier(
        **{"hidden": (8,), "epochs": 5, "lr": 0.05, "random_state": 0, **options}
    )


@pytest.mark.slow
def test_scikit_learns_own_checks() -> None:
    model = PenexClassifier(hidden=(16,), epochs=40, lr=0.02, batch_size=512)
    check_estimator(model, on_skip=None)  # those that want pandas are skipped without it


def test_it_is_a_plain_loop_with_the_losss_probabilities() -> None:
    """The same weights, batches and order by hand: rho and probabilities are equal."""
    made = quick(loss_options={"alpha": 0.3}, epochs=3).fit(X, Y)
    torch.manual_seed(int(np.random.RandomState(0).randint(np.iinfo(np.int32).max)))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    loss, x, y = penex.PENEX(0.3), torch.tensor(X), torch.tensor(Y)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.0)
    for _ in range(3):
        for chosen in torch.split(torch.randperm(ALL), 64):
            optimizer.zero_grad()
            loss(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
    assert made.loss_.rho == loss.rho
    with torch.no_grad():
        expected = torch.softmax(1.3 * model(x), 1).numpy()
    np.testing.assert_allclose(made.predict_proba(X), expected, rtol=1e-12)
    assert (made.predict(X) == expected.argmax(1)).all()


@pytest.mark.parametrize("name", sorted(registry.LOSSES))
def test_every_loss_by_its_name(name: str) -> None:
    model = quick(loss=name, epochs=1).fit(X, Y, sample_weight=np.ones(ALL))
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
    assert model.predict_proba(X).shape == (ALL, 3)


def test_weights_count_as_repetitions() -> None:
    """Also in rho; of an example and of its class."""
    repeats = np.arange(ALL) % 3
    whole = {"batch_size": 1000, "epochs": 10}
    weighted = quick(**whole).fit(X, Y, sample_weight=repeats)
    repeated = quick(**whole).fit(X.repeat(repeats, 0), Y.repeat(repeats))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-9)
    np.testing.assert_allclose(weighted.loss_.rho, repeated.loss_.rho, rtol=1e-9)
    by_class = quick(class_weight={0: 2.0, 1: 1.0, 2: 1.0}, **whole).fit(X, Y)
    doubled = quick(**whole).fit(X.repeat(1 + (Y == 0), 0), Y.repeat(1 + (Y == 0)))
    np.testing.assert_allclose(by_class.predict_proba(X), doubled.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("smooth", [{"loss": "label_smoothing"}, {"label_smoothing": 0.3}])
def test_weights_count_as_repetitions_for_losses_that_smooth(smooth: dict[str, Any]) -> None:
    repeats = np.arange(ALL) % 3
    given = {"loss": smooth.get("loss", "penex"), "batch_size": 1000, "epochs": 10}
    if "loss" not in smooth:
        given["loss_options"] = smooth
    weighted = quick(**given).fit(X, Y, sample_weight=repeats)
    repeated = quick(**given).fit(X.repeat(repeats, 0), Y.repeat(repeats))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-9)
    with pytest.raises(ValueError, match="smoothing of 1"):
        quick(loss="ce", loss_options={"label_smoothing": 1.0}).fit(X, Y, sample_weight=repeats)


def test_weights_count_in_every_size_of_batch() -> None:
    """Of inputs that say nothing a balanced model gives both classes the same probability."""
    labels = (np.arange(400) % 20 == 0).astype(int)
    model = quick(hidden=(), epochs=40, batch_size=4, lr=0.01, class_weight="balanced")
    said = model.fit(np.zeros((400, 1)), labels).predict_proba(np.zeros((1, 1)))
    assert abs(said[0, 1] - 0.5) < 0.1


def test_weights_of_classes_take_the_dtype_of_the_data() -> None:
    quick(loss_options={"weight": torch.tensor([1.0, 2.0, 3.0])}, epochs=1).fit(X, Y)


def test_it_searches_calibrates_and_is_stored() -> None:
    names = np.array(["setosa", "versicolor", "virginica"])[Y]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), quick()),
        {"penexclassifier__loss_options": [{"alpha": 0.1}, {"alpha": 0.5, "scale": "paper"}]},
        cv=2,
    ).fit(X, names)
    assert search.score(X, names) > 0.8
    calibrated = CalibratedClassifierCV(search.best_estimator_, cv=2).fit(X, names)
    assert calibrated.score(X, names) > 0.8
    twin = pickle.loads(pickle.dumps(search.best_estimator_))
    assert (twin.predict_proba(X) == search.best_estimator_.predict_proba(X)).all()


def test_partial_fit_goes_on_from_where_it_is() -> None:
    """Also after it was stored: rho, the optimiser and the network are all in the estimator."""
    parts = [(X[start::2], Y[start::2]) for start in (0, 1)]
    model = quick().partial_fit(*parts[0], classes=[0, 1, 2])
    before = model.loss_.rho.item()
    twin = pickle.loads(pickle.dumps(model))
    for each in (model, twin):
        each.partial_fit(*parts[1])
    assert model.loss_.rho != before
    assert (model.predict_proba(X) == twin.predict_proba(X)).all()
    assert model.loss_.rho == twin.loss_.rho


def test_a_module_of_ones_own_takes_any_shape_and_leaves_torchs_generator() -> None:
    def network(shape: Any, outputs: int) -> nn.Module:
        assert shape == (2, 2)
        return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, outputs))

    before = torch.get_rng_state()
    models = [quick(module=network).fit(X.reshape(-1, 2, 2), Y) for _ in range(2)]
    assert torch.get_rng_state().equal(before)
    one, other = (model.predict_proba(X.reshape(-1, 2, 2)) for model in models)
    assert one.dtype == np.float32
    assert (one == other).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: quick().partial_fit(X, Y), "needs classes"),
        (lambda: quick().partial_fit(X, Y, classes=[0, 1]), "no label 2"),
        (lambda: quick(loss="elr").partial_fit(X, Y, classes=[0, 1, 2]), "use fit"),
        (lambda: quick(loss="penx").fit(X, Y), "Did you mean 'penex'"),
        (lambda: quick().fit(X, Y * 0), "one class"),
        (lambda: quick(batch_size=0).fit(X, Y), "batch_size must be"),
        (lambda: quick(class_weight=dict.fromkeys(range(3), 0.0)).fit(X, Y), "must not all be 0"),
    ],
)
def test_what_cannot_be_trained_gets_a_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
