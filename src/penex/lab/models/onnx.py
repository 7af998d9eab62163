"""A trained model as ONNX, if the packages for it are installed."""

import importlib.util
import json
import logging
import warnings
from pathlib import Path

import torch

from penex.lab import files
from penex.lab.errors import LabError
from penex.lab.models.exported import Exported

_NEEDED = ("onnx", "onnxscript")


def write(model: Exported, path: Path) -> None:
    """Write a model from raw inputs (N, ...) to the probabilities of its classes.

    They are float32, or float64 for a model whose data needed it.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise LabError(f"ONNX needs {' and '.join(missing)}: pip install {' '.join(missing)}.")
    wide = model.card["preprocessing"].get("inputs") == "float64"
    example = torch.zeros(2, *model.card["shape"], dtype=torch.float64 if wide else torch.float32)
    batch = torch.export.Dim("batch", min=1)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, on its own code
        program = torch.onnx.export(
            model.cpu().eval(),
            (example,),
            dynamo=True,
            input_names=["inputs"],
            output_names=["probabilities"],
            dynamic_shapes=({0: batch},),
            verbose=False,
        )
    if program is None:
        raise LabError("torch could not export this model to ONNX.")
    proto = program.model_proto
    facts = {"classes": json.dumps(model.classes), "temperature": repr(model.temperature)}
    for key, value in facts.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    files.write(path, proto.SerializeToString())
