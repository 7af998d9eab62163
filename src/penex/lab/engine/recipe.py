"""How a model is trained: the numbers of a recipe, and the paper's own recipes."""

import math
from dataclasses import dataclass
from typing import Literal, get_args, get_origin, get_type_hints

from penex.lab.ground.errors import LabError, unknown

OptimizerName = Literal["adam", "adamw", "sgd"]
ScheduleName = Literal["constant", "cosine", "linear"]
Precision = Literal["highest", "high", "medium"]
DType = Literal["float32", "float64"]

_MOST = 1_000_000


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
        matmul_precision: torch.set_float32_matmul_precision.
        autocast: True to train the model in bfloat16 where that is safe; it is judged in full.
        dtype: of the parameters.
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

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(Recipe).items():
            if get_origin(hint) is Literal and getattr(self, name) not in get_args(hint):
                raise unknown(name, str(getattr(self, name)), get_args(hint))
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


# The table of the appendix "Training", row by row. Adam and AdamW have torch's defaults; so
# AdamW decays by 0.01. Momentum and weight decay of SGD stand beside the results of ResNet-18.
_CIFAR10 = Recipe(epochs=200, lr=1e-4, clip=5.0, matmul_precision="medium")
_RESNET18 = Recipe(
    epochs=200,
    lr=1e-1,
    optimizer="sgd",
    batch_size=128,
    schedule="cosine",
    clip=5.0,
    weight_decay=5e-4,
    momentum=0.9,
    matmul_precision="medium",
)
PAPER: dict[str, Recipe] = {
    "cifar10": _CIFAR10,
    "cifar10_noisy": _CIFAR10,
    "cifar100": Recipe(epochs=200, lr=1e-4, clip=15.0, matmul_precision="medium"),
    "pathmnist": Recipe(epochs=200, lr=1e-4, clip=10.0, matmul_precision="medium"),
    "cifar10_resnet18": _RESNET18,
    "cifar100_resnet18": _RESNET18,
    "imagenet": Recipe(
        epochs=300,
        lr=1e-3,
        batch_size=2048,
        schedule="cosine",
        warmup_epochs=10,
        clip=1.0,
        matmul_precision="medium",
    ),
    "bbc_news": Recipe(
        epochs=200,
        lr=5e-6,
        optimizer="adamw",
        batch_size=8,
        schedule="linear",
        clip=5.0,
        accumulate=2,
        weight_decay=0.01,
        matmul_precision="high",
    ),
}

# On ImageNet the paper trains PENEX, and PENEX alone, at another rate.
PAPER_RATES: dict[str, dict[str, float]] = {"imagenet": {"penex": 1e-5}}
