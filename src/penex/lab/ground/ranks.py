"""Several processes that train one model together (torch.distributed, as torchrun starts them)."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from penex.lab.ground.errors import LabError
from penex.lab.ground.processes import launched


def rank() -> int:
    """This process's number; 0 where it is alone."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def bounds(n: int) -> tuple[int, int]:
    """Which of a batch's n rows are this process's: shares that differ by one row at most.

    >>> bounds(5)
    (0, 5)
    """
    return n * rank() // world(), n * (rank() + 1) // world()


def share(tensors: list[Tensor], device: torch.device) -> None:
    """Give every process rank 0's values, by way of the device (NCCL knows no other memory)."""
    if world() > 1:
        for tensor in tensors:
            shared = tensor.to(device)
            dist.broadcast(shared, 0)
            tensor.copy_(shared)


def agree(wish: bool, device: torch.device) -> bool:
    """Whether any process wishes it: all get the same answer at the same moment."""
    if world() == 1:
        return wish
    flag = torch.tensor(float(wish), device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def all_or_none(error: Exception | None, device: torch.device) -> None:
    """Raise an error of one process in all of them, so that none waits for another for ever."""
    if agree(error is not None, device):
        raise error or LabError("Another process of this run met an error.")


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Join the other processes if torchrun started this one; leave them at the end."""
    if not launched() or not dist.is_available() or dist.is_initialized():
        yield
        return
    # Its default arguments hold the group that is there when it is first imported, as
    # DistributedDataParallel does: such a group's threads would outlive it, and one that ends while
    # the interpreter does takes the process down. Imported now, it holds none.
    import torch.distributed.nn

    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
        gc.collect()  # a sharded network is in cycles, and holds the group as long as it is there
        dist.barrier()  # one that leaves while another still writes would take it down
    finally:
        dist.destroy_process_group()


def own_device(device: torch.device) -> torch.device:
    """The device of this process: with several GPUs, torchrun's processes take one each."""
    if str(device) == "cuda" and launched() and "LOCAL_RANK" in os.environ:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return device
