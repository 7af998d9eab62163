"""A model of one's own with the temperature built in: for torch.export, ONNX and deployment."""

import json
import logging
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penex import targets
from penex.predictor import Predictor


class Calibrated(nn.Module):
    """A model from its inputs to the probabilities of the classes, in eval() mode.

    The temperature is a number of the graph and the loss is no part of it, so that it is all that
    torch.export and ONNX need: ``torch.export.export(Calibrated(model, loss), (example,))``.

    Args:
        model: from inputs to logits (or to an object that has them as ``logits``); it is shared,
            not copied, and in eval() mode from now on.
        loss: what it was trained with.

    >>> from penex import PENEX
    >>> model = Calibrated(nn.Identity(), PENEX(alpha=1.0))
    >>> model(torch.tensor([[0.0, 1.0]]))
    tensor([[0.1192, 0.8808]])
    """

    def __init__(self, model: nn.Module, loss: Predictor) -> None:
        super().__init__()
        self.model = model
        self.temperature = loss.temperature
        self.eval()

    def forward(self, inputs: Any = None, *others: Any, **named: Any) -> Tensor:
        """softmax(logits / temperature) over the classes, at least in float32."""
        given = () if inputs is None else (inputs, *others)
        outputs = self.model(*given, **named)
        logits: Tensor = getattr(outputs, "logits", outputs)
        logits = logits.to(targets.statistics_dtype(logits)) / self.temperature
        return torch.softmax(logits, dim=targets.class_dim(logits))


def write_onnx(
    model: nn.Module,
    loss: Predictor,
    example: Tensor,
    file: str | Path,
    *,
    classes: list[str] | None = None,
) -> None:
    """Write a model as ONNX, from a batch of inputs to calibrated probabilities.

    The number of examples is free, the rest of the shape is the example's. The temperature and the
    names of the classes travel in the metadata. Needs onnx and onnxscript.

    Args:
        model: from inputs (N, ...) to logits.
        loss: what it was trained with.
        example: a batch of at least two, on the model's device.
        file: where; it is written whole or not at all.
        classes: the names of the classes.
    """
    if not example.dim() or len(example) < 2:
        raise ValueError(
            f"example must be a batch of at least two inputs; got shape {tuple(example.shape)}."
        )
    facts = {"temperature": repr(loss.temperature)}
    if classes is not None:
        facts["classes"] = json.dumps(classes)
    file = Path(file)
    part = file.with_name(f"{file.name}.part")
    trained = [module for module in model.modules() if module.training]
    try:
        part.write_bytes(onnx_graph(Calibrated(model, loss), example, facts).SerializeToString())
    finally:
        for module in trained:  # whoever goes on training finds it as it was
            module.training = True
    os.replace(part, file)


def onnx_graph(model: nn.Module, example: Tensor, facts: Mapping[str, str]) -> Any:
    """The ONNX model of a network from ``inputs``, of any number, to ``probabilities``.

    Args:
        model: the network, in eval() mode.
        example: a batch of at least two.
        facts: what its metadata say.
    """
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, on its own code
        program = torch.onnx.export(
            model,
            (example,),
            dynamo=True,
            input_names=["inputs"],
            output_names=["probabilities"],
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch could not export this model to ONNX.")
    proto = program.model_proto
    for key, value in facts.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    return proto
