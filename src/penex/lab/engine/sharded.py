"""A learner in parts: every process keeps a share of what training changes (torch's FSDP2)."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from penex.lab.engine import optimizers
from penex.lab.engine.learner import Learner
from penex.lab.ground import ranks
from penex.lab.ground.errors import LabError
from penex.lab.models.layers import Blocks

_HOST = torch.device("cpu")


class Sharded(Learner):
    """A learner whose parameters, gradients and moments are cut over the processes.

    `model` is what is trained: between steps a process has its rows of every parameter on its
    device, and within one the whole of a block at a time. `module` is the whole network in main
    memory, for structure; `gather` brings it up to date on the first process, which judges and
    saves it. So a checkpoint is that of any other learner, and a run goes on with more processes,
    with fewer, or in one piece.
    """

    @property
    def _home(self) -> torch.device:
        return _HOST

    def _lay_out(self) -> nn.Module:
        if ranks.world() == 1:
            raise LabError(
                "--shard cuts a network over several processes, and this one is alone: "
                "torchrun --nproc-per-node 8 -m penex starts eight."
            )
        self._mesh = init_device_mesh(self.device.type, (ranks.world(),))
        trained = copy.deepcopy(self.module)
        for blocks in [m for m in trained.modules() if isinstance(m, Blocks)]:
            for layer in blocks:
                fully_shard(layer, mesh=self._mesh)
        fully_shard(trained, mesh=self._mesh)
        self._parts = {
            name: cast(DTensor, parameter)  # fully_shard made it one
            for name, parameter in trained.named_parameters()
            if parameter.requires_grad
        }
        end = self._segment({name: part.to_local().shape for name, part in self._parts.items()})
        like = torch.empty(end, dtype=self.dtype, device=self.device)
        self.optimizer, self.slots = optimizers.make(self.recipe, like)
        self._whole: dict[str, Tensor] = {}  # the optimiser's state, on the first process
        return trained

    def _joined(self, trained: nn.Module) -> nn.Module:
        return trained

    def train(self, mode: bool = True) -> None:
        """Switch model and loss between training and evaluation."""
        super().train(mode)
        self.module.train(mode)

    def zero_grad(self) -> None:
        """Forget the last gradient."""
        for part in self._parts.values():
            part.grad = None

    def clip(self) -> Tensor:
        """Scale the gradient down to the recipe's largest norm; its norm before."""
        grads = [_local(part.grad) for part in self._parts.values() if part.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(grad) for grad in grads])
        square = norms.square().sum()
        dist.all_reduce(square)
        norm = square.sqrt()
        if self.recipe.clip is not None:
            factor = (self.recipe.clip / (norm + 1e-6)).clamp(max=1.0)
            for grad in grads:
                grad.mul_(factor)
        return norm

    @torch.no_grad()
    def update(self, rate: Tensor) -> None:
        """Move the parameters against the gradient, each process its own rows."""
        factors = self.optimizer.factors(rate, self.count)
        for segment in self.segments:
            part = self._parts[segment.name]
            mine = part.to_local().view(-1)
            if mine.numel():
                grad = torch.zeros_like(mine) if part.grad is None else _local(part.grad).view(-1)
                slots = {name: segment.of(flat).view(-1) for name, flat in self.slots.items()}
                self.optimizer.update(mine, grad, slots, factors)

    def is_finite(self) -> Tensor:
        """Whether all parameters are, the same on all processes: 0-dim, on the device."""
        parts = [part.to_local().isfinite().all() for part in self._parts.values()]
        found = torch.stack(parts).all().float()
        dist.all_reduce(found, op=dist.ReduceOp.MIN)
        return found.bool()

    @torch.no_grad()
    def gather(self, *, slots: bool = False) -> None:
        """Bring `module`, and the optimiser's slots, up to date on the first process."""
        whole, keeps = dict(self.module.named_parameters()), ranks.rank() == 0
        saved = self._slot_tensors() if slots and keeps else {}
        for segment in self.segments:
            part = self._parts[segment.name]
            found = part.full_tensor()
            if keeps:
                whole[segment.name].copy_(found)
            for name, flat in self.slots.items() if slots else ():
                found = self._cut(segment.of(flat), part).full_tensor()
                if keeps:
                    saved[f"optimizer.{name}.{segment.name}"].copy_(found)
        for (_, there), (_, here) in self._buffers():
            here.copy_(there)

    def _cut(self, local: Tensor, like: DTensor) -> DTensor:
        """A tensor of which every process has the rows that it has of a parameter."""
        return DTensor.from_local(
            local, self._mesh, [Shard(0)], run_check=False, shape=like.shape, stride=like.stride()
        )

    def _buffers(self) -> Iterator[tuple[tuple[str, Tensor], tuple[str, Tensor]]]:
        """The buffers of what is trained, and those of the whole network."""
        return zip(self.model.named_buffers(), self.module.named_buffers(), strict=True)

    @contextmanager
    def seeing(self) -> Iterator[None]:
        """Have the whole network on the device for a while."""
        self.module.to(self.device)
        try:
            yield
        finally:
            self.module.to(_HOST)

    def _slot_tensors(self) -> dict[str, Tensor]:
        """The optimiser's state by name, whole, as it was gathered or loaded."""
        if not self._whole:
            self._whole = {
                f"optimizer.{slot}.{name}": torch.zeros(part.shape, dtype=self.dtype)
                for slot in self.slots
                for name, part in self._parts.items()
            }
        return self._whole

    @torch.no_grad()
    def share(self) -> None:
        """Give every process its part of the state that the first one has loaded."""
        whole = dict(self.module.named_parameters())
        saved = self._slot_tensors() if ranks.rank() == 0 else {}
        for segment in self.segments:
            part = self._parts[segment.name]
            part.to_local().copy_(self._own_rows(whole[segment.name], part))
            for name, flat in self.slots.items():
                found = saved.get(f"optimizer.{name}.{segment.name}")
                segment.of(flat).copy_(self._own_rows(found, part))
        for (_, there), (_, here) in self._buffers():
            there.copy_(here)
        states = {**self.loss.state_dict(), "count": self.count}
        live = [value for name, value in states.items() if not name.endswith("_extra_state")]
        ranks.share([*live, *self.model.buffers()], self.device)

    def _own_rows(self, found: Tensor | None, like: DTensor) -> Tensor:
        """This process's rows of a tensor that the first one has."""
        if found is None:
            found = torch.empty(like.shape, dtype=self.dtype)
        return distribute_tensor(found.to(self.device), self._mesh, [Shard(0)]).to_local()


def _local(grad: Tensor | None) -> Tensor:
    assert isinstance(grad, DTensor)
    return grad.to_local()
