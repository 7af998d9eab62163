"""An encoder that stays as it is: each text becomes its features once, and a small network learns.

    token ids (N, length) -> encoder -> features (N, width) -> less their mean, over their deviation
    -> the network that is trained -> logits

So a run keeps the small network alone; the encoder is found again by its name and its checksum.
"""

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from penex.lab.data import cache, normalise
from penex.lab.ground import environment
from penex.lab.ground.errors import LabError, RecordError
from penex.lab.models.encoder import Encoder
from penex.lab.models.reading import TextReader

_FILE = "features.npy"
_AT_ONCE = 64  # texts
_POOLED = "mean of the last states"  # what features are; others would be other entries of the cache


def features(
    encoder: Encoder, ids: Tensor, progress: Callable[[int, int], None], device: str = "auto"
) -> Tensor:
    """The features of texts, (N, width) float32: from the cache, or computed.

    Args:
        encoder: what reads them.
        ids: their tokens, (N, length) int32.
        progress: (done, total) while they are computed.
        device: on which.
    """
    # In an order of their own: the same texts from another file, or split otherwise, are known.
    rows, places = np.unique(ids.numpy(), axis=0, return_inverse=True)
    decisive = repr((encoder.identity, _POOLED, rows.shape)).encode()
    name = f"features-{hashlib.sha256(decisive + rows.tobytes()).hexdigest()[:16]}"
    known = [entry for entry in cache.entries(name) if entry.is_as_written()]
    if known:
        known[0].touch()
        found = np.load(known[0].path / _FILE, allow_pickle=False)
    else:
        found = _read(encoder.reader(), torch.from_numpy(rows), progress, device).numpy()
        try:
            with cache.making() as made:
                np.save(made / _FILE, found)
                facts = {"kind": f"{len(rows)} texts, read by {encoder.name}", "sources": {}}
                cache.keep(made, name, facts)
        except OSError as error:  # they were read all the same
            print(
                f"What {encoder.name} says of the texts is not kept, so that the next command "
                f"reads them again: {error}",
                file=sys.stderr,
            )
    return torch.from_numpy(found[places.reshape(-1)])


def _read(
    reader: TextReader, ids: Tensor, progress: Callable[[int, int], None], where: str
) -> Tensor:
    """The longest first, so that the time that is left is not told too short."""
    device = environment.device_of(where)
    reader = reader.to(device)
    order = reader.lengths(ids).argsort(stable=True, descending=True)
    parts: list[Tensor] = []
    with torch.inference_mode():
        for done, rows in enumerate(torch.split(order, _AT_ONCE)):
            progress(done * _AT_ONCE, len(ids))
            parts.append(reader(ids[rows].to(device)).float().cpu())
    progress(len(ids), len(ids))
    return torch.cat(parts)[order.argsort()].clone()


def card(encoder: Encoder, made: dict[str, Any]) -> dict[str, Any]:
    """The preprocessing of model.json, given that of the features: what comes in are token ids."""
    rest = {key: value for key, value in made.items() if key != "range"}
    own = {"mean": made["mean"], "std": made["std"], **encoder.identity}
    return {**rest, "inputs": "int32", "mean": [0.0], "std": [1.0], "features": own}


class Reading(nn.Module):
    """A network that was trained on features, with the encoder that makes them of token ids."""

    mean: Tensor
    std: Tensor

    def __init__(
        self, reader: TextReader, mean: list[float], std: list[float], head: nn.Module
    ) -> None:
        super().__init__()
        self.reader = reader
        self.head = head
        for name, value in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(value), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits."""
        found: Tensor = self.reader(ids)
        dtype = next(self.head.parameters()).dtype
        logits: Tensor = self.head(normalise(found, self.mean, self.std, dtype))
        return logits


def whole(made: dict[str, Any], head: nn.Module, given: str | None) -> Reading:
    """A trained network with its encoder before it.

    Args:
        made: the preprocessing of model.json.
        head: the network.
        given: the encoder's name or folder, where it is not found by its own name.
    """
    kept = made["features"]
    encoder = Encoder(given or made["encoder"])
    try:
        same = encoder.identity["encoder_sha256"] == kept["encoder_sha256"]
    except LabError as error:
        raise RecordError(
            f"The model reads texts by the encoder {made['encoder']!r}, which it does not hold: "
            f"{error}"
        ) from error
    if not same:
        raise RecordError(
            f"{encoder.given} is not the encoder {made['encoder']!r} that the model was trained "
            "with (its checksum is another): say where that is, --encoder FOLDER."
        )
    return Reading(encoder.reader(), kept["mean"], kept["std"], head)
