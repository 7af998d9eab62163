"""A model of one's own, exported with the temperature in it."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import penex
from penex.integrations.export import Calibrated, write_onnx


class Convolutions(nn.Module):
    """A network with a mode: dropout and batch norm must be those of eval()."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x)
        return logits


def trained() -> tuple[nn.Module, penex.PENEX, Tensor, Tensor]:
    """A model that is still in train() mode, with what it should say of some inputs."""
    model, loss, x = Convolutions(), penex.PENEX(0.4), torch.randn(6, 1, 8, 8)
    loss(model(x), torch.arange(6) % 3).backward()
    with torch.no_grad():
        model.eval()
        expected = loss.probabilities(model(x))
    return model.train(), loss, x, expected


@pytest.mark.slow
def test_torch_export_has_the_temperature_and_no_loss() -> None:
    model, loss, x, expected = trained()
    program = torch.export.export(Calibrated(model, loss), (x,))
    torch.testing.assert_close(program.module()(x), expected)
    assert not [name for name in program.state_dict if "rho" in name]


@pytest.mark.slow
def test_several_inputs_and_any_number_of_examples() -> None:
    """As a transformers model has them, such as words and a mask."""

    class Two(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x * mask

    x, mask, rows = torch.randn(6, 3), torch.ones(6, 3), torch.export.Dim("rows")
    free = {0: rows}
    program = torch.export.export(
        Calibrated(Two(), penex.PENEX(0.4)), (x, mask), dynamic_shapes=(free, (free,))
    )
    torch.testing.assert_close(program.module()(x[:4], mask[:4]), torch.softmax(1.4 * x[:4], 1))


def test_outputs_with_logits_and_pictures_of_classes() -> None:
    class Output:
        def __init__(self, logits: Tensor) -> None:
            self.logits = logits

    class Model(nn.Module):
        def forward(self, *, pixels: Tensor) -> Output:
            return Output(pixels)

    pixels = torch.randn(2, 3, 4, 4).half()
    given = Calibrated(Model(), penex.PENEX(0.4))(pixels=pixels)
    torch.testing.assert_close(given, torch.softmax(1.4 * pixels.float(), 1))


@pytest.mark.slow
def test_onnx_has_the_temperature_the_names_and_any_number_of_examples(tmp_path: Path) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    model, loss, x, expected = trained()
    path = tmp_path / "model.onnx"
    write_onnx(model, loss, x[:2], path, classes=["a", "b", "c"])
    session = runtime.InferenceSession(path)
    for rows in (1, 6):
        (given,) = session.run(None, {"inputs": x[:rows].numpy()})
        torch.testing.assert_close(torch.tensor(given), expected[:rows], rtol=1e-5, atol=1e-6)
    facts = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(facts["classes"]) == ["a", "b", "c"]
    assert float(facts["temperature"]) == loss.temperature
    with pytest.raises(ValueError, match="at least two"):
        write_onnx(model, loss, x[:1], path)
