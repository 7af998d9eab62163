"""Trainings that a user writes the loop of: accelerate, ignite, JAX and timm.

Each goes on from the checkpoint of its folder, if there is one, as `framework_worker.py` says.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import framework_task as task
from framework_task import BATCH, EPOCHS, RATE, WINDOW, X, Y


def accelerate(folder: Path, ranks: int) -> None:
    """The pattern of docs/frameworks.md, with a checkpoint after each epoch."""
    from accelerate import Accelerator

    accelerator = Accelerator(gradient_accumulation_steps=WINDOW, cpu=True)
    model: Any = task.Model()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=RATE)
    loader = DataLoader(TensorDataset(X, Y), batch_size=BATCH // ranks)  # which it shards
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    loss = accelerator.unwrap_model(model).loss
    done = len([*folder.glob("epoch-*")])
    if done:
        accelerator.load_state(folder / f"epoch-{done}")
    for epoch in range(done, EPOCHS):
        model.train()
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(loss(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
                if accelerator.sync_gradients:
                    loss.end_step()
        accelerator.save_state(folder / f"epoch-{epoch + 1}")
    made = accelerator.unwrap_model(model)
    found = task.outcome(made.layer.weight, made.layer.bias, loss.rho, loss)
    task.write(folder, found, accelerator.process_index)


def ignite(folder: Path, ranks: int) -> None:
    """Checkpoints of all that `Checkpoint` is given; idist starts the ranks."""
    from ignite import distributed as idist

    if ranks == 1:
        return _ignite(0, folder, ranks)
    with idist.Parallel("gloo", nproc_per_node=ranks, start_method="fork") as parallel:
        parallel.run(_ignite, folder, ranks)


def _ignite(rank: int, folder: Path, ranks: int) -> None:
    from ignite import distributed as idist
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.handlers import Checkpoint, DiskSaver
    from ignite.metrics import Loss

    bare = task.Model()
    model = idist.auto_model(bare)
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=RATE))
    trainer = create_supervised_trainer(
        model, optimizer, bare.loss, gradient_accumulation_steps=WINDOW
    )
    metrics = {"loss": Loss(bare.loss.frozen())}
    evaluator = create_supervised_evaluator(model, metrics=metrics)
    everything = {"model": bare, "optimizer": optimizer, "trainer": trainer}
    if found := [*folder.glob("*.pt")]:
        Checkpoint.load_objects(everything, torch.load(found[0], weights_only=True))
    saver = Checkpoint(everything, DiskSaver(folder, require_empty=False), n_saved=1)
    # Two epochs are a whole number of windows; the gradients of an open one are in no checkpoint.
    trainer.add_event_handler(Events.EPOCH_COMPLETED(every=WINDOW), saver)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(task.rows(ranks, rank)))
    trainer.run(task.rows(ranks, rank), max_epochs=EPOCHS)
    task.write(
        folder, task.outcome(bare.layer.weight, bare.layer.bias, bare.loss.rho, bare.loss), rank
    )


def jax(folder: Path, ranks: int) -> None:
    """optax.MultiSteps; parameters, its state and ours in a file; two devices share a batch."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ranks}"
    import jax
    import jax.numpy as jnp
    import optax
    from jax.sharding import PartitionSpec

    from penex.integrations import jax as ours

    optimizer = optax.MultiSteps(optax.sgd(RATE), every_k_schedule=WINDOW)
    begun = task.layer()
    parameters = [jnp.asarray(each.detach().numpy()) for each in begun.parameters()]
    state: Any = parameters, optimizer.init(parameters), ours.Window()

    def step(state: Any, x: Any, y: Any) -> Any:
        parameters, steps, window = state

        def objective(parameters: Any) -> Any:
            logits = x @ parameters[0].T + parameters[1]
            ends = steps.mini_step == WINDOW - 1
            return ours.penex(logits, y, window, alpha=task.ALPHA, ends=ends, axis_name="devices")

        gradients, window = jax.grad(objective, has_aux=True)(parameters)
        gradients = jax.lax.pmean(gradients, "devices")
        updates, steps = optimizer.update(gradients, steps, parameters)
        return optax.apply_updates(parameters, updates), steps, window

    whole, shared = PartitionSpec(), PartitionSpec("devices")
    mesh = jax.sharding.Mesh(jax.devices(), ("devices",))
    step = jax.jit(
        jax.shard_map(
            step, mesh=mesh, in_specs=(whole, shared, shared), out_specs=whole, check_vma=False
        )
    )
    done, kind = 0, jax.tree.structure(state)
    if saved := sorted(folder.glob("epoch-*.npz")):
        done = len(saved)
        with np.load(saved[-1]) as leaves:
            state = jax.tree.unflatten(kind, [leaves[name] for name in leaves])
    for epoch in range(done, EPOCHS):
        for x, y in task.rows():
            state = step(state, x.numpy(), y.numpy())
            task.count()
        np.savez(folder / f"epoch-{epoch}.npz", *jax.tree.leaves(state))
    (weight, bias), _, window = state
    probabilities = ours.probabilities(X.numpy() @ weight.T + bias, task.ALPHA)
    task.write(folder, task.outcome(weight, bias, window.rho, None, probabilities))


def timm(folder: Path, ranks: int) -> None:
    """Its optimiser and its checkpoints, with the loss in the model; its way to divide a window."""
    from timm.models import resume_checkpoint
    from timm.optim import create_optimizer_v2
    from timm.utils import CheckpointSaver

    bare = task.Model()
    model: Any = bare
    rank = int(os.environ.get("RANK", "0"))
    optimizer = create_optimizer_v2(bare, opt="momentum", lr=RATE, momentum=0.0, weight_decay=0.0)
    done, last = 0, folder / "last.pth.tar"
    if last.exists():
        done = resume_checkpoint(bare, str(last), optimizer)
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(bare)
    saver = CheckpointSaver(model, optimizer, checkpoint_dir=str(folder), max_history=1)
    batches = [*task.rows(ranks, rank)]
    for epoch in range(done, EPOCHS):
        for start in range(0, task.BATCHES, WINDOW):
            window = batches[start : start + WINDOW]
            for x, y in window:
                (bare.loss(model(x), y) / len(window)).backward()
            optimizer.step()
            optimizer.zero_grad()
            bare.loss.end_step()
        if rank == 0:
            saver.save_checkpoint(epoch)
    task.write(
        folder, task.outcome(bare.layer.weight, bare.layer.bias, bare.loss.rho, bare.loss), rank
    )
