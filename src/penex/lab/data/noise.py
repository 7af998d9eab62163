"""Label noise, as a transform of data that are already split, or of all before that."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from penex.lab.data import Collection, Data
from penex.lab.ground.errors import LabError, unknown

Kind = Literal["flip", "resample"]


@dataclass(frozen=True)
class LabelNoise:
    """Wrong labels on purpose.

    Attributes:
        rate: the probability of a label to be drawn anew.
        kind: ``flip`` draws another class, in the training part only. ``resample`` draws any
            class, the old one too, in training and validation: the published code's protocol.
    """

    rate: float
    kind: Kind = "flip"

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise LabError(f"Label noise is a rate above 0 and at most 1; got {self.rate}.")
        if self.kind not in ("flip", "resample"):
            raise unknown("label noise", self.kind, ("flip", "resample"))

    def apply(self, data: Data, seed: int) -> Data:
        """The data with noisy labels, and how many really changed in their facts."""
        generator = torch.Generator().manual_seed(seed)
        names = ("train",) if self.kind == "flip" else ("train", "val")
        changed = {}
        for name in names:
            part = getattr(data, name)
            noisy = self._noisy(part.targets.cpu(), len(data.classes), generator)
            changed[name] = int((noisy != part.targets.cpu()).sum())
            data = replace(data, **{name: replace(part, targets=noisy.to(part.targets.device))})
        return replace(data, facts={**data.facts, "labels_changed": changed})

    def spoil(self, collection: Collection, seed: int) -> Collection:
        """The data before they are split, with noisy labels in all that may be trained on."""
        pool, generator = collection.train, torch.Generator().manual_seed(seed)
        noisy = self._noisy(pool.targets.cpu(), len(collection.classes), generator)
        return replace(collection, train=pool._replace(targets=noisy.to(pool.targets.device)))

    def _noisy(self, targets: Tensor, classes: int, generator: torch.Generator) -> Tensor:
        """The labels after the noise.

        >>> noise = LabelNoise(1.0)._noisy(torch.zeros(1000).long(), 3, torch.Generator())
        >>> noise.unique().tolist()
        [1, 2]
        """
        hit = torch.rand(len(targets), generator=generator) < self.rate
        if self.kind == "resample":
            drawn = torch.randint(classes, targets.shape, generator=generator)
        else:  # a step of 1 to K - 1 around the circle of classes: another one, each alike
            away = torch.randint(1, classes, targets.shape, generator=generator)
            drawn = (targets + away) % classes
        return torch.where(hit, drawn, targets)
