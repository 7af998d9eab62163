"""Texts by the features of an encoder that stays as it is: a task whose inputs are vectors."""

from dataclasses import replace

import torch

from penex.lab.data.decoding import Progress
from penex.lab.data.read import quiet
from penex.lab.ground.errors import LabError
from penex.lab.models import frozen as models
from penex.lab.models.mlp import mlp
from penex.lab.tasks import Task
from penex.lab.tasks.own import RECIPE


def frozen(task: Task, progress: Progress = quiet, device: str = "auto") -> Task:
    """A task of texts with a small network on its encoder's features, which are made now.

    Args:
        task: whose inputs are texts.
        progress: (done, total) while texts are read.
        device: on which they are read.
    """
    encoder = task.encoder
    if encoder is None:
        raise LabError(
            f"--frozen leaves an encoder of texts as it is; the inputs of {task.name} are none."
        )
    collection = task.collect()
    parts = collection.parts
    ids = torch.cat([part.inputs for part in parts.values()])
    sizes = [len(part.inputs) for part in parts.values()]
    found = torch.split(models.features(encoder, ids, progress, device), sizes)
    made = {
        name: part._replace(inputs=rows)
        for (name, part), rows in zip(parts.items(), found, strict=True)
    }
    collection = replace(collection, mean=None, std=None, **made)  # type: ignore[arg-type]
    return replace(
        task,
        title=f"{task.title.partition(',')[0]}, a small network on a frozen {encoder.name}",
        collect=lambda: collection,
        model="mlp",
        build=mlp,
        recipe=RECIPE,
        arguments={},
        identity={**task.identity, "frozen": True},
        frozen=True,
    )
