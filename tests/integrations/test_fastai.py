"""A loss in a real fastai Learner: validation, accumulation, export, predictions."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import penex

import vision_here

pytestmark = pytest.mark.frameworks
vision_here.declare()
pytest.importorskip("fastai")
from fastai.callback import schedule  # noqa: E402, F401  (gives a Learner lr_find)
from fastai.callback.training import GradientAccumulation  # noqa: E402
from fastai.data.core import DataLoaders  # noqa: E402
from fastai.data.load import DataLoader  # noqa: E402
from fastai.learner import Learner, Recorder, load_learner  # noqa: E402
from fastai.optimizer import SGD  # noqa: E402

from penex.integrations.fastai import PenexCallback, PenexLoss  # noqa: E402

X = torch.randn(28, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(28) % 3
BATCHES = [*zip(torch.split(X, 4), torch.split(Y, 4), strict=True)]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(5, 3)


class Rows(list[Any]):
    def new_empty(self) -> "Rows":
        return Rows()


def learner(folder: Path, steps: int) -> Any:
    rows = Rows(zip(X, Y, strict=True))
    loaders = [DataLoader(rows, bs=4, shuffle=False, num_workers=0) for _ in range(2)]
    accumulation = [GradientAccumulation(8)] if steps == 2 else []
    loss = PenexLoss(penex.PENEX(0.4, scale="paper"))
    learn = Learner(
        DataLoaders(*loaders, device=torch.device("cpu")), network(), loss, opt_func=SGD, lr=0.5,
        cbs=[PenexCallback(), *accumulation], path=folder,
    )  # fmt: skip
    learn.remove_cbs([cb for cb in learn.cbs if cb.name in ("progress", "recorder")])
    return learn


def plain_loop(epochs: int, steps: int) -> tuple[nn.Module, penex.PENEX]:
    """Of seven batches an epoch, `steps` make one of the optimiser, across epochs too."""
    model, loss = network(), penex.PENEX(0.4, accumulate=steps, scale="paper")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for number, (x, y) in enumerate(BATCHES * epochs, 1):
        (loss(model(x), y) / steps).backward()
        if number % steps == 0:
            optimizer.step()
            optimizer.zero_grad()
    return model, loss


@pytest.mark.parametrize("steps", [1, 2])
def test_a_learner_is_a_plain_loop_and_goes_on_after_export(steps: int, tmp_path: Path) -> None:
    """Validation moves nothing; predictions are calibrated; an exported learner has rho."""
    learn = learner(tmp_path, steps)
    learn.fit(2, wd=0.0)
    learn.validate()
    model, loss = plain_loop(2, steps)
    torch.testing.assert_close(learn.loss_func.loss.rho, loss.rho)
    probabilities, _, decoded = learn.get_preds(with_decoded=True)
    with torch.no_grad():
        expected = torch.softmax(1.4 * model(X), 1)
    torch.testing.assert_close(torch.Tensor(probabilities), expected, rtol=1e-4, atol=1e-5)
    assert decoded.equal(expected.argmax(1))
    learn.export("learner.pkl")
    again = load_learner(tmp_path / "learner.pkl")
    torch.testing.assert_close(again.loss_func.loss.rho, loss.rho)
    assert again.loss_func.loss.temperature == loss.temperature


def test_what_is_saved_of_the_model_has_the_loss(tmp_path: Path) -> None:
    """Also in a search for the rate, which loads the model as it was before it."""
    for epochs in (1, 2):
        learn = learner(tmp_path, 1)
        if epochs == 2:
            learn.load("weights")
            with learn.no_bar(), learn.no_logging():
                learn.add_cb(Recorder()).lr_find(show_plot=False, num_it=10)
            learn.remove_cb(Recorder)
        learn.fit(epochs, wd=0.0)
        learn.save("weights")
    model, loss = plain_loop(3, 1)
    torch.testing.assert_close(learn.loss_func.loss.rho, loss.rho)
    torch.testing.assert_close(learn.model.weight, model.get_parameter("weight"))
    torch.testing.assert_close(learn.model.state_dict()["penex_loss.rho"], loss.rho)


def test_a_sequence_has_the_loss_beside_it_and_not_in_it(tmp_path: Path) -> None:
    learn = learner(tmp_path, 1)
    learn.model = nn.Sequential(network())
    learn.create_opt()
    learn.fit(1, wd=0.0)
    learn.save("weights")
    again = learner(tmp_path, 1)
    again.model = nn.Sequential(network())
    again.add_cb(PenexCallback())
    again("after_create")
    again.load("weights", with_opt=False)
    assert again.loss_func.loss.rho == learn.loss_func.loss.rho > 0


def test_another_loss_is_refused(tmp_path: Path) -> None:
    learn = learner(tmp_path, 1)
    learn.loss_func = nn.CrossEntropyLoss()
    with pytest.raises(ValueError, match=r"needs a PenexLoss.*CrossEntropyLoss"):
        learn.fit(1)
