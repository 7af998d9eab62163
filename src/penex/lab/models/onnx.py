"""A trained model as ONNX, if the packages for it are installed."""

import importlib.util
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from penex.integrations import export
from penex.lab.ground import files
from penex.lab.ground.errors import LabError
from penex.lab.models import raw
from penex.lab.models.exported import Exported

_NEEDED = ("onnx", "onnxscript")
_SUFFIX = ".onnx"


def check(path: Path) -> None:
    """A LabError if no ONNX file can be written at a place, said before any work."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise LabError(f"ONNX needs {' and '.join(missing)}: pip install {' '.join(missing)}.")
    if path.suffix.lower() != _SUFFIX:
        raise LabError(f"The name of an ONNX file ends with {_SUFFIX}; got {path}.")
    files.check_target(path)


class _Unchecked(nn.Module):
    """A model as a graph, which cannot refuse an input."""

    def __init__(self, model: Exported) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        return self.model.unchecked(inputs)


def write(model: Exported, path: Path) -> None:
    """Write a model from raw inputs (N, ...) to the probabilities of its classes.

    Inputs have the type of the training data and no other, so that images from 0 to 1, which are no
    uint8, are refused by whoever runs the graph; `inputs` in its metadata says which, and `columns`
    what each input of a table is.
    """
    check(path)
    made = model.card["preprocessing"]
    if made["kind"] == "texts":
        raise LabError("Texts cannot be exported as ONNX: their tokeniser has no form there.")
    kind = made.get("inputs", "float32")
    example = torch.zeros(2, *model.card["shape"], dtype=getattr(torch, kind))
    axes = ", ".join(["N", *map(str, model.card["shape"])])
    known = raw.range_of(made)
    seen = f", numbers from {known[0]:g} to {known[1]:g}" if known else ""
    inputs = f"{kind} of shape ({axes}){seen}; the graph normalises them itself"
    facts = {
        "classes": json.dumps(model.classes),
        "temperature": repr(model.temperature),
        "inputs": inputs,
    }
    if names := raw.names_of(made):
        facts["columns"] = json.dumps(names)
    try:
        proto = export.onnx_graph(_Unchecked(model.cpu().eval()).eval(), example, facts)
    except RuntimeError as error:
        sentence = str(error).partition("\n")[0]
        raise LabError(f"torch could not export this model to ONNX: {sentence}") from error
    proto.doc_string = f"From raw inputs ({inputs}) to the calibrated probabilities of the classes."
    files.write(path, proto.SerializeToString())
