"""A pack: many models with the same network and data, trained by one program.

They differ in seed, loss and learning rate. Each has its own clipping, penalty and history; what
one does never reaches another, not even when it diverges.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from penex.lab.data import Data, Part, normalise
from penex.lab.engine import optimizers, packed_layers, packed_losses, packed_networks
from penex.lab.engine.augmentation import Augmentation
from penex.lab.engine.learner import Learner
from penex.lab.engine.step import HISTORY
from penex.lab.ground.batches import Batches
from penex.lab.models.layers import seed_all

# How far a pack's first outputs may be from those of its members alone, as a share of them.
_CLOSE = {torch.bfloat16: 0.1, torch.float32: 1e-3, torch.float64: 1e-8}

_EVALUATED = {"cuda": 65536}  # examples at a time, over all models; elsewhere a sixteenth


def check(learner: Learner, classes: int = 3) -> None:
    """A CannotPack if a learner of so many classes cannot be part of a pack, and why."""
    if learner.recipe.accumulate != 1:
        raise packed_layers.CannotPack("micro-batches are not packed")
    if any(isinstance(layer, nn.Dropout) and layer.p for layer in learner.module.modules()):
        raise packed_layers.CannotPack("a network that draws random numbers is not packed")
    for names in (learner.module.named_parameters, learner.module.named_buffers):
        if len(list(names(remove_duplicate=False))) != len(list(names())):
            raise packed_layers.CannotPack("layers that share weights are not packed")
    packed_losses.families([learner.loss], learner.device, learner.dtype, classes)


def why_not(learner: Learner, classes: int) -> str:
    """Why a learner of so many classes cannot be part of a pack; empty if it can."""
    try:
        check(learner, classes)
    except packed_layers.CannotPack as reason:
        return str(reason)
    return ""


class Pack:
    """Learners stacked: theta is (M, P), and so is all the rest.

    Args:
        learners: fresh or loaded, all at the same step; `scatter` writes back to them.
        data: of each learner; they share their inputs.
    """

    def __init__(self, learners: Sequence[Learner], data: Sequence[Data]) -> None:
        first = learners[0]
        self.learners, self.data = list(learners), list(data)
        self.recipe, self.device, self.module = first.recipe, first.device, first.module
        self.theta = torch.stack([learner.theta for learner in learners])
        self.slots = {
            name: torch.stack([learner.slots[name] for learner in learners]) for name in first.slots
        }
        self.optimizer, _ = optimizers.make(first.recipe, self.theta[:1])
        self.count = first.count.clone()
        self.buffers = {
            name: torch.stack([dict(learner.module.named_buffers())[name] for learner in learners])
            for name, _ in first.module.named_buffers()
        }
        trained = {segment.name for segment in first.segments}
        self.frozen = {
            name: torch.stack(
                [dict(learner.module.named_parameters())[name].detach() for learner in learners]
            )
            for name, _ in first.module.named_parameters()
            if name not in trained
        }
        self.families = packed_losses.families(
            [learner.loss for learner in learners], first.device, first.dtype, len(data[0].classes)
        )
        temperatures = [learner.loss.temperature for learner in learners]
        self.temperature = torch.tensor(temperatures, dtype=first.dtype, device=first.device)
        # Once: a recorded step reads what it reads where it lies.
        seeds = torch.tensor([learner.seed for learner in learners], device=first.device)
        self.seeds = seeds
        self.augmentation = Augmentation(first.recipe.augment, seeds, self.count)
        self.fast = packed_layers.knows(self.module)
        if self.fast:
            seed_all(self.module, seeds, self.count)
        self.index = torch.stack([one.train.index for one in data])
        self.targets = torch.stack([one.train.targets for one in data])
        self.inputs = data[0].train.inputs
        self.mean = torch.stack([one.mean for one in data]).unsqueeze(1)
        self.std = torch.stack([one.std for one in data]).unsqueeze(1)
        if self.inputs.dtype != torch.float64:
            self.mean, self.std = self.mean.to(first.dtype), self.std.to(first.dtype)
        product = torch.bfloat16 if first.half else first.dtype
        self.how = packed_layers.How(product, stacked=first.device.type == "cuda")
        self.exact = first.recipe.autocast  # which is for training alone
        most = max(1, _EVALUATED.get(first.device.type, 4096) // len(learners))
        self.batches = Batches(first.device, most)

    def __len__(self) -> int:
        return len(self.learners)

    def scatter(self) -> None:
        """Write everything back to the learners."""
        self.count_everywhere()
        for k, learner in enumerate(self.learners):
            self.scatter_network(k)
            for name, values in self.slots.items():
                learner.slots[name].copy_(values[k])
        for family in self.families:
            family.scatter()

    def scatter_network(self, k: int) -> None:
        """Write a learner's parameters and buffers back to it."""
        learner = self.learners[k]
        learner.theta.copy_(self.theta[k])
        for name, buffer in learner.module.named_buffers():
            buffer.copy_(self.buffers[name][k])

    def count_everywhere(self) -> None:
        """Give the learners the number of steps."""
        for learner in self.learners:
            learner.count.copy_(self.count)

    def train(self, mode: bool) -> None:
        """Switch the shared module between training and evaluation."""
        self.module.train(mode)

    def logits(self, theta: Tensor, x: Tensor, *, exact: bool = False) -> Tensor:
        """The logits of raw inputs (M, B, ...), (M, B, K), in the parameters' precision.

        With products in that precision too, if they are to be exact.
        """
        how = self.how._replace(dtype=theta.dtype, fused=False) if exact else self.how
        normal = normalise(x, self.mean, self.std, theta.dtype)
        tensors = self._tensors(theta)
        if not self.fast:
            half = self.recipe.autocast and self.module.training
            with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
                found = packed_networks.forward(
                    self.module, tensors, normal, self.seeds, self.count
                )
            return found.to(theta.dtype)
        if normal.dim() == 5 and how.stacked:
            normal = normal.transpose(1, 2)  # channels before the batch
        elif normal.dim() == 5:
            normal = normal.transpose(0, 1).flatten(1, 2)  # models side by side, as channels
            normal = normal.contiguous(memory_format=torch.channels_last)
        elif normal.dim() > 3:
            normal = normal.flatten(2)
        found = packed_layers.forward(self.module, "", tensors, normal, how)
        return found.to(theta.dtype)

    def _tensors(self, theta: Tensor) -> dict[str, Tensor]:
        """Parameters and buffers by name, (M, ...)."""
        tensors = {**self.buffers, **self.frozen}
        sizes = [s.padded for s in self.learners[0].segments]
        for segment, chunk in zip(
            self.learners[0].segments, torch.split(theta, sizes, dim=1), strict=True
        ):
            flat = chunk[:, : segment.shape.numel()]
            tensors[segment.name] = flat.reshape(len(theta), *segment.shape)
        return tensors

    def compare(self, rows: Tensor) -> None:
        """A CannotPack if a batch's logits, or the buffers after it, are not those of each alone.

        Args:
            rows: (M, B), each model's examples.
        """
        x, _, _ = self.batch(rows)
        before = {name: values.clone() for name, values in self.buffers.items()}
        with torch.no_grad():
            together = {"its outputs": self.logits(self.theta, x)}
        together |= {f"its {name}": values.clone() for name, values in self.buffers.items()}
        for name, values in before.items():
            self.buffers[name].copy_(values)
        for k, learner in enumerate(self.learners):
            for what, alone in self._alone(learner, self.data[k], x[k]).items():
                found = together[what][k].double()
                distance = (found - alone.double()).norm() / alone.double().norm().clamp(min=1e-6)
                if not distance <= _CLOSE[self.how.dtype]:
                    raise packed_layers.CannotPack(
                        f"in a pack {what} would differ from those alone by {distance:.1g} of them"
                    )

    def _alone(self, learner: Learner, data: Data, x: Tensor) -> dict[str, Tensor]:
        """The logits of a batch and the buffers after it, of one learner.

        Args:
            learner: of this pack; it is left as it is.
            data: its own.
            x: the batch's inputs.
        """
        module = copy.deepcopy(learner.module).train()
        seed_all(module, torch.tensor(learner.seed, device=self.device), self.count)
        half = self.recipe.autocast
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            logits: Tensor = module(data.normalise(x, learner.dtype))
        buffers = {f"its {name}": buffer for name, buffer in module.named_buffers()}
        return {"its outputs": logits, **buffers}

    def step(self, rows: Tensor, rate: Tensor, history: Tensor) -> None:
        """Train every model on its own batch; all that changes are this pack's tensors.

        Args:
            rows: (M, B), each model's examples, as rows of its own training part.
            rate: (M, 1), the learning rates.
            history: (M, len(HISTORY)), where the step's numbers go.
        """
        self.count.add_(1)
        theta = self.theta.detach().requires_grad_()
        pulled, values, largest, moved = self.compute(theta, rows)
        (grad,) = torch.autograd.grad(pulled, theta)
        norm = self.move(grad, self.factors(rate))
        self.note(history, moved, loss=values, grad_norm=norm, max_logit=largest)

    def compute(
        self, theta: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, list[packed_losses.State]]:
        """What to differentiate; each batch's loss and largest logit; where the losses move.

        The losses give the gradient of the logits themselves; a product with it hands it on.
        """
        x, targets, index = self.batch(rows)
        logits = self.logits(theta, x)
        values = torch.zeros(len(theta), dtype=logits.dtype, device=logits.device)
        gradient = torch.zeros_like(logits)
        states = []
        for family in self.families:
            place = family.place
            some, slope, moved = family.values(logits[place], targets[place], index[place])
            values = values.index_copy(0, place, some)
            gradient = gradient.index_copy(0, place, slope)
            states.append(moved)
        return (logits * gradient).sum(), values, logits.detach().abs().amax(dim=(1, 2)), states

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs and targets of each model's batch, and the examples' numbers."""
        images = self.augmentation(self.inputs[self.index.gather(1, rows)])
        return images, self.targets.gather(1, rows), rows

    def trace(self, rows: Tensor) -> None:
        """Prepare batches of a size for a compiler, and what layers keep for it."""
        with torch.no_grad():
            x, targets, index = self.batch(rows)
            logits = self.logits(self.theta, x)
            for family in self.families:
                place = family.place
                family.trace(logits[place], targets[place], index[place])

    def factors(self, rate: Tensor) -> tuple[Tensor, ...]:
        """What the optimiser needs of the rates and the number of this step."""
        return self.optimizer.factors(rate, self.count)

    def note(self, history: Tensor, moved: list[packed_losses.State], **seen: Tensor) -> None:
        """Move the losses, and write down a step's numbers and the penalties after it."""
        rho = torch.full_like(seen["loss"], torch.nan)
        for family, state in zip(self.families, moved, strict=True):
            family.keep(state)
            rho = rho.index_copy(0, family.place, family.rho().to(rho.dtype))
        found = {**seen, "rho": rho}
        history.copy_(torch.stack([found[name] for name in HISTORY], dim=1))

    def move(self, grad: Tensor, factors: tuple[Tensor, ...]) -> Tensor:
        """Clip each gradient and move the parameters; the norms before."""
        norm = optimizers.clip_(grad, self.recipe.clip)
        self.optimizer.update(self.theta, grad, self.slots, factors)
        return norm

    def tensors(self) -> list[Tensor]:
        """Everything that a step changes."""
        states = [value for family in self.families for value in family.state.values()]
        return [self.theta, *self.slots.values(), *self.buffers.values(), self.count, *states]

    def predict(self, parts: Sequence[Part]) -> Tensor:
        """The logits of a part of each model's data, (M, n, K). Changes no state."""
        self.train(False)
        index = torch.stack([part.index for part in parts])

        def logits(start: int, stop: int) -> Tensor:
            inputs = parts[0].inputs[index[:, start:stop]]
            return self.logits(self.theta, inputs, exact=self.exact).transpose(0, 1)

        with torch.no_grad():
            rows = self.batches(logits, index.shape[1])
        self.train(True)
        return rows.transpose(0, 1).contiguous()
