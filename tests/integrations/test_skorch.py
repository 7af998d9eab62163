"""A loss in real skorch: probabilities, validation, checkpoints, searches."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from torch import nn

import penex
from penex.baselines import FocalLoss

pytest.importorskip("skorch")
from penex.integrations.skorch import PenexNet

pytestmark = pytest.mark.frameworks

X = np.random.default_rng(0).normal(size=(28, 4)).astype(np.float32)
Y = np.arange(28) % 3
BATCHES = [*zip(torch.split(torch.tensor(X), 8), torch.split(torch.tensor(Y), 8), strict=True)]


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layer(x)
        return logits


def net(**options: Any) -> PenexNet:
    given = {
        "criterion__alpha": 0.4, "criterion__scale": "paper", "lr": 0.5, "max_epochs": 3,
        "batch_size": 8, "train_split": None, "verbose": 0,
    }  # fmt: skip
    return PenexNet(Network, **{**given, **options})


def plain_loop(epochs: int) -> tuple[nn.Module, penex.PENEX]:
    model, loss = Network(), penex.PENEX(0.4, scale="paper")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(epochs):
        for x, y in BATCHES:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    return model, loss


def test_it_is_a_plain_loop_with_the_losss_probabilities(tmp_path: Path) -> None:
    """Also when it goes on from what save_params left."""
    first = net(max_epochs=1).fit(X, Y)
    files = {f"f_{part}": tmp_path / part for part in ("params", "criterion", "optimizer")}
    first.save_params(**files)
    made = net().initialize()
    made.load_params(**files)
    made.partial_fit(X, Y, epochs=2)
    model, loss = plain_loop(3)
    torch.testing.assert_close(made.criterion_.rho, loss.rho)
    with torch.no_grad():
        expected = torch.softmax(1.4 * model(torch.tensor(X)), 1).numpy()
    np.testing.assert_allclose(made.predict_proba(X), expected, rtol=1e-5)
    assert (made.predict(X) == expected.argmax(1)).all()


def test_validation_and_prediction_move_nothing() -> None:
    made = net(train_split=lambda dataset, y=None, **_: (dataset, dataset)).fit(X, Y)
    _, loss = plain_loop(3)
    torch.testing.assert_close(made.criterion_.rho, loss.rho)
    made.predict_proba(X)
    made.score(X, Y)
    torch.testing.assert_close(made.criterion_.rho, loss.rho)


def test_any_loss_is_a_criterion() -> None:
    made = PenexNet(Network, criterion=FocalLoss, criterion__gamma=1.0, train_split=None, verbose=0)
    np.testing.assert_allclose(made.fit(X, Y).predict_proba(X).sum(1), 1, rtol=1e-6)


def test_alpha_is_searched_and_a_net_is_stored() -> None:
    search = GridSearchCV(net(), {"criterion__alpha": [0.1, 0.5]}, cv=2, scoring="neg_log_loss")
    best = search.fit(X, Y).best_estimator_
    twin = pickle.loads(pickle.dumps(best))
    assert twin.criterion_.rho == best.criterion_.rho > 0
    np.testing.assert_array_equal(twin.predict_proba(X), best.predict_proba(X))
    for each in (best, twin):
        each.partial_fit(X, Y)
    assert twin.criterion_.rho == best.criterion_.rho
