"""PENEX on several processes: the ranks share a batch, and so one rho.

torchrun --nproc-per-node 2 examples/ddp.py [--steps 20]
"""

import argparse

import torch
import torch.distributed as dist
import torch.distributed.nn  # if first imported within a group, it holds on to that group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import penex


def train(steps: int) -> list[torch.Tensor]:
    """Train a linear model; return the rho of every rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(20, 4).to(device))
    loss = penex.PENEX(alpha=0.1)  # adds its sums over the default group in train() mode
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    truth = torch.randn(20, 4)
    generator = torch.Generator().manual_seed(rank)  # each rank has rows of its own
    for _ in range(steps):
        x = torch.randn(32, 20, generator=generator)
        optimizer.zero_grad()
        loss(model(x.to(device)), (x @ truth).argmax(1).to(device)).backward()
        optimizer.step()
    gathered = [torch.zeros_like(loss.rho) for _ in range(ranks)]
    dist.all_gather(gathered, loss.rho)
    return gathered


def main() -> None:
    """At the end all ranks have the same weights and the same rho."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    # The model is gone before the group ends: a group that its model ends can wait for ever.
    rhos = train(steps)
    if dist.get_rank() == 0:
        print("rho on each rank:", " ".join(f"{value:.6f}" for value in rhos))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
