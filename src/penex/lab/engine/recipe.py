"""How a model is trained: the numbers of a recipe."""

import math
from dataclasses import dataclass
from typing import Literal, get_args, get_origin, get_type_hints

from penex.lab.ground.errors import LabError, unknown
from penex.lab.records.identity import aside, since

OptimizerName = Literal["adam", "adamw", "sgd"]
ScheduleName = Literal["constant", "cosine", "linear"]
Precision = Literal["highest", "high", "medium"]
DType = Literal["float32", "float64"]

AUGMENTATIONS = ("flip", "crop")

_MOST = 1_000_000
_KINDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a word"}


@dataclass(frozen=True)
class Recipe:
    """The numbers that decide a training run, besides its data, model, loss and seed.

    Attributes:
        epochs: passes over the training data.
        lr: the learning rate (after the warm-up, before the schedule lowers it).
        optimizer: ``adam``, ``adamw`` or ``sgd``, with torch's defaults for what is not here.
        batch_size: examples a step, over all processes and micro-batches.
        schedule: ``constant``, or ``cosine`` or ``linear`` down to 0 at the end.
        warmup_epochs: how long the rate rises linearly at the start.
        clip: the largest norm of the gradient; None or infinity for no limit.
        accumulate: into how many micro-batches a batch is cut, to save memory.
        weight_decay: added to the gradient for ``adam`` and ``sgd``, decoupled for ``adamw``.
        momentum: of ``sgd``.
        matmul_precision: torch.set_float32_matmul_precision; a CPU's products stay precise.
        autocast: True to train the model in bfloat16 where that is safe; it is judged in full.
        dtype: of the parameters.
        augment: what is done to images at random while they are trained on: ``flip``, ``crop``,
            both with a comma, or nothing.
        recompute: True to compute the blocks of a network again in the backward pass instead of
            keeping what they computed: less memory, more time, the same numbers.
        shard: True to have each of several processes keep a part of the parameters, gradients and
            moments, for networks that do not fit into the memory of one.
    """

    epochs: int
    lr: float
    optimizer: OptimizerName = "adam"
    batch_size: int = 64
    schedule: ScheduleName = "constant"
    warmup_epochs: float = 0.0
    clip: float | None = None
    accumulate: int = 1
    weight_decay: float = 0.0
    momentum: float = 0.0
    matmul_precision: Precision = "highest"
    autocast: bool = False
    dtype: DType = "float32"
    augment: str = since("")
    recompute: bool = aside(False)
    shard: bool = aside(False)

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(Recipe).items():
            value = getattr(self, name)
            if get_origin(hint) is Literal:
                if value not in get_args(hint):
                    raise unknown(name, str(value), get_args(hint))
            elif not _is_of(value, kinds := get_args(hint) or (hint,)):
                raise LabError(f"{name} must be {_KINDS[kinds[0]]}; got {value!r}.")
        ways = self.augment.split(",") if self.augment else []
        for way in ways:
            if way not in AUGMENTATIONS or ways.count(way) > 1:
                raise unknown("augmentation", way, AUGMENTATIONS)
        if ways != [way for way in AUGMENTATIONS if way in ways]:  # one name for one run
            raise LabError(
                f"augment names its ways as {','.join(AUGMENTATIONS)}; got {self.augment}."
            )
        for name in ("epochs", "batch_size", "accumulate"):
            value = getattr(self, name)
            if not 1 <= value <= _MOST:
                raise LabError(f"{name} must be at least 1 and at most {_MOST:,}; got {value}.")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise LabError(f"lr must be a finite number above 0; got {self.lr}.")
        if self.clip is not None and not self.clip > 0:
            raise LabError(f"clip must be above 0 (inf for no limit); got {self.clip}.")
        if self.autocast and self.dtype == "float64":
            raise LabError("autocast would throw away what float64 is for: choose one of them.")
        for name in ("warmup_epochs", "weight_decay", "momentum"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise LabError(f"{name} must be a finite number of at least 0; got {value}.")
        if self.accumulate > self.batch_size:
            raise LabError(
                f"A batch of {self.batch_size} cannot be cut into {self.accumulate} micro-batches."
            )


def _is_of(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether a value is of one of some kinds; a whole number is a number too, True is none.

    >>> _is_of(3, (float,)), _is_of(True, (int,)), _is_of(1.5, (int,)), _is_of(None, (float,))
    (True, False, False, False)
    """
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) or (isinstance(value, int) and float in kinds)
