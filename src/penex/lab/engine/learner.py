"""Everything that training changes, as tensors."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from penex.base import Loss
from penex.baselines import CrossEntropyLoss
from penex.lab.engine import optimizers
from penex.lab.engine.augmentation import Augmentation
from penex.lab.engine.recipe import Recipe
from penex.lab.ground import ranks
from penex.lab.ground.batches import Batches
from penex.lab.models import state
from penex.lab.models.layers import recompute_all, seed_all

AnyLoss = Loss | CrossEntropyLoss

# Each parameter starts at a multiple of 64 bytes, as if it had been allocated alone.
_ALIGN = 16


class Segment(NamedTuple):
    """Where a parameter lies in theta."""

    name: str
    start: int
    shape: torch.Size

    @property
    def padded(self) -> int:
        """How many places it takes."""
        return -(-self.shape.numel() // _ALIGN) * _ALIGN

    def of(self, flat: Tensor) -> Tensor:
        """This parameter's part of a flat tensor, as a view."""
        return flat[self.start : self.start + self.shape.numel()].view(self.shape)


class Learner:
    """A model, its loss and its optimiser, with all that a step changes in a few flat tensors.

    The parameters are views of theta, their gradients views of grad, the optimiser's moments are
    flat too: clipping and the update are a handful of operations whatever the model, and many
    models are theta with one more axis. A step changes these tensors, in place, and nothing else.

    Args:
        model: its trainable parameters move into theta.
        loss: one of the registry.
        recipe: how it is trained.
        device: where it is trained.
        seed: of the dropout, below 2^32.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: AnyLoss,
        recipe: Recipe,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        self.recipe = recipe
        self.device = device
        self.seed = seed
        self.dtype: torch.dtype = getattr(torch, recipe.dtype)
        # MPS has no float64; the step count and the rates are scalars, so it costs nothing.
        self.wide = torch.float32 if device.type == "mps" else torch.float64
        self.module = model.to(self._home, self.dtype)
        self.loss = loss.to(device)
        if self.dtype == torch.float64:
            self.loss = loss.double()
        # Batch norm has no variance of one example.
        self.least = 2 if any(isinstance(m, _BatchNorm) for m in model.modules()) else 1
        # torch's "medium" lets float32 products be computed in bfloat16 where that is fast.
        single = self.dtype == torch.float32
        medium = single and recipe.matmul_precision == "medium" and device.type == "cuda"
        self.half = recipe.autocast or medium
        # Convolutions in bfloat16 are fast on a GPU where an image's channels lie side by side.
        convolves = any(isinstance(m, nn.Conv2d) for m in model.modules())
        self._side_by_side = self.half and convolves and device.type == "cuda"

        self.segments: list[Segment] = []
        trained = self._lay_out()
        self.count = self._constant(0.0)
        self.dropouts = seed_all(trained, torch.tensor(seed, device=device), self.count)
        self.augmentation = Augmentation(
            recipe.augment, torch.tensor(seed, device=device), self.count
        )
        if recipe.recompute:
            recompute_all(trained)
        self.batches = Batches(device)
        self.best: dict[str, Tensor] = {}  # the network's state after its best epoch so far
        self.model = self._joined(trained)
        self.joins = False  # whether micro-batches go through the network together
        self.compiled: dict[int, Callable[[Tensor], Tensor]] = {}  # by the size of a micro-batch

    @property
    def _home(self) -> torch.device:
        """Where the whole network is."""
        return self.device

    def _lay_out(self) -> nn.Module:
        """Move the parameters to where a step changes them; the network that is trained."""
        parameters = [(n, p) for n, p in self.module.named_parameters() if p.requires_grad]
        end = self._segment({name: parameter.shape for name, parameter in parameters})
        self.theta = torch.zeros(end, dtype=self.dtype, device=self.device)
        self.grad = torch.zeros_like(self.theta)
        for (_, parameter), segment in zip(parameters, self.segments, strict=True):
            view = segment.of(self.theta)
            view.copy_(parameter.detach())
            parameter.data = view
            parameter.grad = segment.of(self.grad)
        self.optimizer, self.slots = optimizers.make(self.recipe, self.theta)
        return self.module

    def _segment(self, shapes: dict[str, torch.Size]) -> int:
        """Give parameters their places in flat tensors, and say how long these are."""
        end = 0
        for name, shape in shapes.items():
            self.segments.append(Segment(name, end, shape))
            end += self.segments[-1].padded
        return end

    def _joined(self, trained: nn.Module) -> nn.Module:
        """The network that is trained, in step with those of the other processes."""
        if ranks.world() == 1:
            return trained
        ids = [self.device] if self.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(trained, device_ids=ids)

    def logits(self, inputs: Tensor) -> Tensor:
        """The logits of normalised inputs, as precise as the recipe wants it in train() and eval().

        Those of training may be bfloat16.
        """
        if self._side_by_side and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        trains = self.module.training
        half = self.half and trains  # logits of bfloat16 have ties: of 1000 classes 3 % of the time
        network = self.compiled.get(len(inputs), self.model) if trains else self.module
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            found: Tensor = network(inputs)
        return found if trains else found.to(self.dtype)

    def zero_grad(self) -> None:
        """Forget the last gradient."""
        self.grad.zero_()

    def clip(self) -> Tensor:
        """Scale the gradient down to the recipe's largest norm; its norm before."""
        return optimizers.clip_(self.grad, self.recipe.clip)

    def update(self, rate: Tensor) -> None:
        """Move the parameters against the gradient."""
        factors = self.optimizer.factors(rate, self.count)
        self.optimizer.update(self.theta, self.grad, self.slots, factors)

    def is_finite(self) -> Tensor:
        """Whether all parameters are, the same on all processes: 0-dim, on the device."""
        return self.theta.isfinite().all()

    def gather(self, *, slots: bool = False) -> None:
        """Bring `module`, and the optimiser's slots, up to date on the first process: they are."""

    @contextmanager
    def seeing(self) -> Iterator[None]:
        """Have the whole network on the device for a while: it is."""
        yield

    def share(self) -> None:
        """Give every process the state that the first one has loaded."""
        # The loss's settings are the constructor's, the same everywhere: they stay on the host.
        states = self.tensors().items()
        ranks.share([v for k, v in states if not k.endswith("_extra_state")], self.device)

    def train(self, mode: bool = True) -> None:
        """Switch model and loss between training and evaluation."""
        self.model.train(mode)
        self.loss.train(mode)

    @property
    def rho(self) -> Tensor:
        """The weight of the loss's penalty, estimated or set; NaN for a loss without one."""
        value = getattr(self.loss, "rho", math.nan)
        return value if isinstance(value, Tensor) else self._constant(value)

    def _constant(self, value: float) -> Tensor:
        return torch.full((), value, dtype=self.wide, device=self.device)

    def keep(self) -> None:
        """Keep the network as it is now: it has never been better."""
        live = state.of(self.module)
        if not self.best:
            self.best = {name: torch.empty_like(value) for name, value in live.items()}
        with torch.no_grad():
            torch._foreach_copy_([*self.best.values()], [*live.values()])

    @contextmanager
    def at_best(self) -> Iterator[None]:
        """The network as it was when it was best, for a while."""
        last = {name: value.clone() for name, value in state.of(self.module).items()}
        state.take(self.module, self.best)
        try:
            yield
        finally:
            state.take(self.module, last)

    def tensors(self) -> dict[str, Tensor]:
        """The state by name: live tensors, so that writing to them is loading."""
        live = {f"model.{name}": value for name, value in state.of(self.module).items()}
        live |= self._slot_tensors()
        live |= {f"loss.{name}": value for name, value in self.loss.state_dict().items()}
        live["count"] = self.count
        return live

    def _slot_tensors(self) -> dict[str, Tensor]:
        """The optimiser's state by name."""
        return {
            f"optimizer.{slot}.{s.name}": s.of(flat)
            for slot, flat in self.slots.items()
            for s in self.segments
        }

    def kept(self) -> dict[str, Tensor]:
        """What `keep` kept, by name."""
        return {f"best.{name}": value for name, value in self.best.items()}

    def load(self, saved: dict[str, Tensor]) -> None:
        """Take a state that `tensors` gave; a KeyError or ValueError if it is of another kind."""
        best = _below("best.", saved)
        saved = {name: value for name, value in saved.items() if not name.startswith("best.")}
        live = self.tensors()
        if live.keys() != saved.keys():
            raise KeyError(f"{sorted(live.keys() ^ saved.keys())[0]} does not belong to both")
        for name, tensor in live.items():
            if name.startswith("loss."):
                continue
            if tensor.shape != saved[name].shape or tensor.dtype != saved[name].dtype:
                raise ValueError(f"{name} has another shape or type")
            if not name.startswith("model."):
                tensor.copy_(saved[name])
        self.loss.load_state_dict(_below("loss.", saved))
        state.take(self.module, _below("model.", saved))
        if best:
            self.keep()  # for its shapes
            if best.keys() != self.best.keys():
                raise ValueError("its best network is another's")
            for name, value in best.items():
                self.best[name].copy_(value)


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names have a prefix, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
