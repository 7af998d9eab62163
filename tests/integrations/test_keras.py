"""A loss in real Keras on torch: validation, weights, accumulation, resuming, predicting."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import penex

os.environ["KERAS_BACKEND"] = "torch"
keras = pytest.importorskip("keras")
from penex.integrations.keras import PenexCheckpoint, PenexLoss, predictor  # noqa: E402

pytestmark = pytest.mark.frameworks

X = np.random.default_rng(0).normal(size=(28, 4)).astype(np.float32)
Y = np.arange(28) % 3
BATCHES = [*zip(torch.split(torch.tensor(X), 4), torch.split(torch.tensor(Y), 4), strict=True)]


def network() -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])


def compiled(loss: penex.PENEX, **options: Any) -> Any:
    model = network()
    model.compile(keras.optimizers.SGD(0.5, **options), PenexLoss(loss), metrics=[])
    return model


def fit(model: Any, epochs: int, **options: Any) -> None:
    model.fit(X, Y, batch_size=4, epochs=epochs, shuffle=False, verbose=0, **options)


def plain_loop(epochs: int, steps: int = 1) -> tuple[nn.Linear, penex.PENEX]:
    """Of seven batches an epoch, `steps` make one step of the optimiser, across epochs too."""
    weight, bias = (torch.tensor(w) for w in network().get_weights())
    model, loss = nn.Linear(4, 3), penex.PENEX(0.4, accumulate=steps, scale="paper")
    model.load_state_dict({"weight": weight.T, "bias": bias})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for number, (x, y) in enumerate(BATCHES * epochs, 1):
        (loss(model(x), y) / steps).backward()
        if number % steps == 0:
            optimizer.step()
            optimizer.zero_grad()
    return model, loss


@pytest.mark.parametrize("steps", [1, 2])
def test_fit_is_a_plain_loop_and_validation_moves_nothing(steps: int) -> None:
    loss = penex.PENEX(0.4, accumulate=steps, scale="paper")
    options = {"gradient_accumulation_steps": 2} if steps == 2 else {}
    model = compiled(loss, **options)
    fit(model, 3, validation_data=(X, Y))
    twin, expected = plain_loop(3, steps)
    torch.testing.assert_close(loss.rho, expected.rho, rtol=1e-5, atol=0)
    np.testing.assert_allclose(model.get_weights()[0], twin.weight.detach().T, atol=1e-5)
    value = model.evaluate(X, Y, verbose=0)
    probabilities = predictor(model, loss).predict(X, verbose=0)
    torch.testing.assert_close(loss.rho, expected.rho, rtol=1e-5, atol=0)
    with torch.no_grad():
        logits = twin(torch.tensor(X))
        np.testing.assert_allclose(probabilities, torch.softmax(1.4 * logits, 1), atol=1e-5)
        assert value == pytest.approx(expected.eval()(logits, torch.tensor(Y)).item(), rel=1e-5)


def test_a_fit_that_was_stopped_goes_on_with_rho(tmp_path: Path) -> None:
    for epochs in (1, 3):
        loss = penex.PENEX(0.4, scale="paper")
        model = compiled(loss)
        if epochs == 3:
            model.load_weights(tmp_path / "model.weights.h5")
        callback = PenexCheckpoint(loss, tmp_path / "loss.pt")
        fit(model, epochs, initial_epoch=0 if epochs == 1 else 1, callbacks=[callback])
        model.save_weights(tmp_path / "model.weights.h5")
    _, expected = plain_loop(3)
    torch.testing.assert_close(loss.rho, expected.rho, rtol=1e-5, atol=0)


def test_a_file_of_another_training_moves_nothing(tmp_path: Path) -> None:
    """A fit from the first epoch on is a new one, whatever lies there."""
    for _ in range(2):
        loss = penex.PENEX(0.4, scale="paper")
        fit(compiled(loss), 2, callbacks=[PenexCheckpoint(loss, tmp_path / "loss.pt")])
    _, expected = plain_loop(2)
    torch.testing.assert_close(loss.rho, expected.rho, rtol=1e-5, atol=0)


def test_a_loss_goes_on_from_the_epoch_that_the_weights_are_of(tmp_path: Path) -> None:
    """The file is one epoch ahead of the weights if a process was killed between the two."""
    loss = penex.PENEX(0.4, scale="paper")
    model, file = compiled(loss), tmp_path / "loss.pt"
    callback = PenexCheckpoint(loss, file)
    fit(model, 1, callbacks=[callback])
    model.save_weights(tmp_path / "model.weights.h5")
    fit(model, 2, initial_epoch=1, callbacks=[callback])
    loss = penex.PENEX(0.4, scale="paper")
    model = compiled(loss)
    model.load_weights(tmp_path / "model.weights.h5")
    fit(model, 3, initial_epoch=1, callbacks=[PenexCheckpoint(loss, file)])
    _, expected = plain_loop(3)
    torch.testing.assert_close(loss.rho, expected.rho, rtol=1e-5, atol=0)
    with pytest.raises(ValueError, match="after 2 and 3 epochs; training goes on after 7"):
        fit(model, 8, initial_epoch=7, callbacks=[PenexCheckpoint(loss, file)])


def test_the_model_that_predicts_is_saved_with_the_temperature(tmp_path: Path) -> None:
    loss = penex.PENEX(0.4)
    model = compiled(loss)
    model.save(tmp_path / "logits.keras")
    logits = keras.models.load_model(tmp_path / "logits.keras", compile=False)
    np.testing.assert_allclose(logits.predict(X, verbose=0), model.predict(X, verbose=0), rtol=1e-6)
    whole = predictor(model, loss)
    before = whole.predict(X, verbose=0)
    whole.save(tmp_path / "model.keras")
    np.testing.assert_allclose(
        keras.models.load_model(tmp_path / "model.keras").predict(X, verbose=0), before, rtol=1e-6
    )


def test_a_model_without_known_inputs_is_refused() -> None:
    class Own(keras.Model):  # type: ignore[name-defined]
        pass

    with pytest.raises(ValueError, match=r"Rescaling\(1.4\)"):
        predictor(Own(), penex.PENEX(0.4))


def test_kinds_of_labels_and_weights() -> None:
    """Columns, one-hot rows and pictures with the classes last."""
    one = PenexLoss(penex.PENEX(0.4, rho=0.1, scale="paper"))
    logits = torch.randn(6, 3)
    labels = torch.arange(6) % 3
    expected = penex.PENEX(0.4, rho=0.1, scale="paper")(logits, labels)
    torch.testing.assert_close(one(labels[:, None], logits), expected)
    torch.testing.assert_close(one(nn.functional.one_hot(labels), logits), expected)
    torch.testing.assert_close(one(labels.view(2, 3), logits.view(2, 3, 3)), expected)
    weights = torch.tensor([1.0, 0, 0, 0, 0, 0])
    first = penex.PENEX(0.4, rho=0.1, scale="paper")(logits[:1], labels[:1]) / 6
    torch.testing.assert_close(one(labels, logits, sample_weight=weights), first)
