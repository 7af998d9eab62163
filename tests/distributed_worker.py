"""One rank of test_distributed.py: train a linear model under DistributedDataParallel.

Usage: distributed_worker.py RANK RANKS FOLDER CASE... The rank writes FOLDER/rank-RANK.pt.
"""

import copy
import datetime
import functools
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group: see penex.lab.ground.ranks.joined
from torch import Tensor, nn

import penex
from penex import registry
from penex.conex import AugmentedLagrangianLoss
from penex.penalised import PenalisedLoss
from penex.rivals import EarlyLearning

ROWS, FEATURES, CLASSES, STEPS = 24, 6, 5, 8

CASES: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: penex.PENEX(0.1),
    "weighted": lambda: penex.PENEX(
        0.1, weight=torch.linspace(0.5, 2, CLASSES), label_smoothing=0.1
    ),
    "accumulated": lambda: penex.PENEX(0.1, accumulate=2),
    "probabilities": lambda: penex.PENEX(0.1),
    "negative": lambda: penex.PENEX(-0.7),
    "scaled": lambda: penex.PENEX(-0.3, scale="cross_entropy"),
    "fixed": lambda: penex.PENEX(0.1, rho=0.05),
    "unnormalised": lambda: registry.make("unnormalised"),
    "conex_penalty": lambda: registry.make("conex_penalty", rho=0.5),
    "conex_lagrangian": lambda: registry.make("conex_lagrangian", rho=0.5, nu=2.0),
}


def moving(loss: nn.Module) -> Tensor:
    """The state that a loss moves from batch to batch."""
    if isinstance(loss, AugmentedLagrangianLoss):
        return loss.lambda_
    return loss.rho if isinstance(loss, PenalisedLoss) else torch.tensor(0.0)


def batch(step: int, case: str) -> tuple[Tensor, Tensor]:
    """The whole batch of a step: the first third of the rows has most of the ignored targets."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(ROWS, FEATURES, generator=generator)
    if case == "probabilities":
        return x, torch.rand(ROWS, CLASSES, generator=generator).softmax(1)
    y = torch.randint(CLASSES, (ROWS,), generator=generator)
    share = torch.where(torch.arange(ROWS) < ROWS // 3, 0.8, 0.2)
    return x, y.masked_fill(torch.rand(ROWS, generator=generator) < share, -100)


def bounds(rank: int, ranks: int, step: int) -> tuple[int, int]:
    """Which rows a rank gets: equal shares, except that the last rank is empty in odd steps."""
    holders = max(1, ranks - step % 2)
    if rank >= holders:
        return ROWS, ROWS
    return ROWS * rank // holders, ROWS * (rank + 1) // holders


def train(model: nn.Module, loss: nn.Module, case: str, rank: int, ranks: int) -> dict[str, Any]:
    """The gradients and the moving state of every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients, states, values = [], [], []
    for step in range(STEPS):
        x, y = batch(step, case)
        start, stop = bounds(rank, ranks, step)
        optimizer.zero_grad()
        value = loss(model(x[start:stop]), y[start:stop])
        value.backward()
        values.append(value.item())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))  # type: ignore[union-attr]
        states.append(moving(loss).item())
        optimizer.step()
    return {
        "gradients": torch.stack(gradients),
        "states": torch.tensor(states),
        "values": torch.tensor(values),
    }


def computed(model: nn.Module, loss: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    value: Tensor = loss(model(x), y)
    return value


def sharded(rank: int, ranks: int) -> dict[str, Any]:
    """Rho and gradients where rows or classes lie apart as DTensors, or the parameters do.

    And where the ranks compute the loss again in the backward pass.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.utils.checkpoint import checkpoint

    mesh, result = init_device_mesh("cpu", (ranks,)), {}
    x, y = batch(0, "plain")
    for name, apart in (("rows", Shard(0)), ("classes", Shard(1))):
        weight: Any = distribute_tensor(make_model().get_parameter("weight"), mesh, [Replicate()])
        weight = weight.detach().requires_grad_()
        rows = distribute_tensor(x, mesh, [Shard(0) if name == "rows" else Replicate()])
        logits = (rows @ weight.T).redistribute(mesh, [apart])
        labels = distribute_tensor(y, mesh, [Shard(0) if name == "rows" else Replicate()])
        loss = penex.PENEX(0.1)
        loss(logits, labels).backward()
        assert weight.grad is not None
        result[name] = torch.cat([loss.rho.view(1), weight.grad.full_tensor().flatten()])

    start, stop = bounds(rank, ranks, 0)
    for name in ("fully sharded", "computed again"):
        model: Any = make_model()
        nn.init.zeros_(model.bias)
        model.loss = penex.PENEX(0.1)
        if name == "fully sharded":
            fully_shard(model, mesh=mesh)
            model.loss(model(x[start:stop]), y[start:stop]).backward()
            gradient = model.weight.grad.full_tensor()
        else:
            wrapped = nn.parallel.DistributedDataParallel(model)
            whole = functools.partial(computed, wrapped, model.loss)
            checkpoint(whole, x[start:stop], y[start:stop], use_reentrant=False).backward()
            gradient = model.weight.grad
        result[name] = torch.cat([model.loss.rho.view(1), gradient.flatten()])
    return result


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(FEATURES, CLASSES)


def main(rank: int, ranks: int, folder: Path, *cases: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=120),
    )
    # What holds the group is gone before it ends: a group that its model ends can wait for ever.
    made = {
        case: sharded(rank, ranks) if case == "sharded" else trained(case, rank, ranks)
        for case in cases
    }
    gc.collect()  # models are in cycles
    dist.barrier()
    torch.save(made, folder / f"rank-{rank}.pt")
    dist.destroy_process_group()


def trained(case: str, rank: int, ranks: int) -> dict[str, Any]:
    """A short training's values on this rank, and what other losses make of the same group."""
    model = nn.parallel.DistributedDataParallel(make_model())
    loss = CASES[case]()
    result = train(model, loss, case, rank, ranks)

    if rank == 0:  # a collective call here would wait for ranks that never come
        x, y = batch(99, case)
        result["eval"] = loss.eval()(model.module(x), y).detach()
        alone = penex.PENEX(0.1, process_group=False)
        alone(model.module(x), y)
        result["alone"] = alone.rho

    # Example 0 is on every rank, example r on rank r.
    early = EarlyLearning(beta=0.5)
    early.remember(ranks + 1, CLASSES)
    result["shown"] = torch.arange(2.0 * CLASSES).view(2, CLASSES).sin() * (1 + rank)
    early(result["shown"], torch.tensor([0, 1]), index=torch.tensor([0, 1 + rank]))
    result["memory"] = early.memory

    pair = dist.new_group([0, 1])
    if rank < 2:  # a group of its own: the two see each other's rows and no one else's
        x, y = batch(98, "plain")
        paired = penex.PENEX(0.1, process_group=pair)
        copy.deepcopy(paired)
        paired(model.module(x[rank::2]), y[rank::2])
        result["paired"] = paired.rho
    else:
        outside = penex.PENEX(0.1, process_group=pair)
        try:
            outside(torch.zeros(1, CLASSES), torch.tensor([0]))
            raise AssertionError("a rank outside the group must be told so")
        except ValueError as error:
            if "not a member" not in str(error):
                raise
    result["weights"] = {k: v.detach() for k, v in model.module.state_dict().items()}
    return result


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
