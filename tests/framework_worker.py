"""Train the model of `framework_task.py` in a framework, for test_killed.py and test_ranks.py.

Usage: framework_worker.py FRAMEWORK FOLDER killed | RANKS. What is trained goes on from the
checkpoint of FOLDER, if there is one, in the framework's own way, and writes FOLDER/rank-0.npz and
so on.

``killed``: one process kills itself in the middle of an epoch, and of a window; then another trains
what is left. RANKS: as many processes share each batch. The framework starts them, or torchrun did,
or they are started here, with torchrun's variables. Processes are forked where that is possible, so
that a framework is imported once.
"""

import importlib
import itertools
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import penex
from framework_task import (
    ALPHA, BATCH, BATCHES, EPOCHS, KILLED_AT, RATE, WINDOW, Model, X, Y, layer, outcome,
)  # fmt: skip

import vision_here

_counted: Iterator[int] = iter(())  # the batches of a process that is to be killed


def count() -> None:
    """A batch was trained on: it may be the last one."""
    if next(_counted, None) == KILLED_AT:
        os.kill(os.getpid(), signal.SIGKILL)


def count_calls() -> None:
    """Count what PENEX is called with in train() mode, in any framework."""
    forward = penex.PENEX.forward

    def counted(self: penex.PENEX, input: Any, target: Any) -> Any:
        value = forward(self, input, target)
        if self.training:
            count()
        return value

    penex.PENEX.forward = counted  # type: ignore[method-assign]


def write(folder: Path, found: dict[str, np.ndarray], rank: int = 0) -> None:
    np.savez(folder / f"rank-{rank}.npz", **found)  # type: ignore[arg-type]


def rows(ranks: int = 1, rank: int = 0) -> DataLoader[Any]:
    """A rank's share of each batch."""
    share = BATCH // ranks
    x, y = (torch.cat(torch.split(part, share)[rank::ranks]) for part in (X, Y))
    return DataLoader(TensorDataset(x, y), batch_size=share)


def accelerate(folder: Path, ranks: int) -> None:
    """The pattern of docs/frameworks.md, with a checkpoint after each epoch."""
    from accelerate import Accelerator

    accelerator = Accelerator(gradient_accumulation_steps=WINDOW, cpu=True)
    model: Any = Model()
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
    found = outcome(made.layer.weight, made.layer.bias, loss.rho, loss)
    write(folder, found, accelerator.process_index)


def fastai(folder: Path, ranks: int) -> None:
    """SaveModelCallback after each epoch; under torchrun fastai's own distributed context."""
    from fastai import distributed
    from fastai.callback.tracker import SaveModelCallback
    from fastai.callback.training import GradientAccumulation
    from fastai.data.core import DataLoaders
    from fastai.data.load import DataLoader as Loader
    from fastai.learner import Learner
    from fastai.optimizer import SGD

    from penex.integrations.fastai import PenexCallback, PenexLoss

    share = BATCH // ranks
    # A rank of fastai's has one half of the rows, not of each batch.
    order = torch.arange(len(X)).view(BATCHES, ranks, share).transpose(0, 1).flatten()
    data = [*zip(X[order], Y[order], strict=True)]
    loaders = [Loader(data, bs=share, shuffle=False, num_workers=0) for _ in range(2)]
    learner = Learner(
        DataLoaders(*loaders, device=torch.device("cpu")),
        layer(),
        PenexLoss(penex.PENEX(ALPHA)),
        opt_func=SGD,
        lr=RATE,
        path=folder,
        cbs=[
            PenexCallback(),
            GradientAccumulation(WINDOW * share),
            SaveModelCallback(every_epoch=True, with_opt=True),
        ],
    )
    done = len([*folder.glob("models/model_*.pth")])
    if done:
        learner.load(f"model_{done - 1}", with_opt=True)
    if ranks > 1:  # it copies the order of the rows to a GPU, which is not here
        distributed.DistributedDL._broadcast = lambda self, order, rank: order
    with learner.distrib_ctx(cpu=True), learner.no_bar(), learner.no_logging():
        learner.fit(EPOCHS, wd=0.0, start_epoch=done)
    model, loss = learner.model, learner.loss_func.loss
    probabilities = None
    if ranks == 1:
        with learner.no_bar(), learner.no_logging():
            probabilities = learner.get_preds()[0].as_subclass(torch.Tensor)
    found = outcome(model.weight, model.bias, loss.rho, loss, probabilities)
    write(folder, found, int(os.environ.get("RANK", "0")))


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

    bare = Model()
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
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(rows(ranks, rank)))
    trainer.run(rows(ranks, rank), max_epochs=EPOCHS)
    write(folder, outcome(bare.layer.weight, bare.layer.bias, bare.loss.rho, bare.loss), rank)


def jax(folder: Path, ranks: int) -> None:
    """optax.MultiSteps; parameters, its state and ours in a file; two devices share a batch."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ranks}"
    import jax
    import jax.numpy as jnp
    import optax
    from jax.sharding import PartitionSpec

    from penex.integrations import jax as ours

    optimizer = optax.MultiSteps(optax.sgd(RATE), every_k_schedule=WINDOW)
    begun = layer()
    parameters = [jnp.asarray(each.detach().numpy()) for each in begun.parameters()]
    state: Any = parameters, optimizer.init(parameters), ours.Window()

    def step(state: Any, x: Any, y: Any) -> Any:
        parameters, steps, window = state

        def objective(parameters: Any) -> Any:
            logits = x @ parameters[0].T + parameters[1]
            ends = steps.mini_step == WINDOW - 1
            return ours.penex(logits, y, window, alpha=ALPHA, ends=ends, axis_name="devices")

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
        for x, y in rows():
            state = step(state, x.numpy(), y.numpy())
            count()
        np.savez(folder / f"epoch-{epoch}.npz", *jax.tree.leaves(state))
    (weight, bias), _, window = state
    probabilities = ours.probabilities(X.numpy() @ weight.T + bias, ALPHA)
    write(folder, outcome(weight, bias, window.rho, None, probabilities))


def keras(folder: Path, ranks: int) -> None:
    """BackupAndRestore has the weights, PenexCheckpoint the loss."""
    import keras

    from penex.integrations.keras import PenexCheckpoint, PenexLoss, predictor

    model = keras.Sequential([keras.Input((X.shape[1],)), keras.layers.Dense(3)])
    begun = layer()
    model.set_weights([begun.weight.detach().numpy().T, begun.bias.detach().numpy()])
    loss = penex.PENEX(ALPHA, accumulate=WINDOW)
    optimizer = keras.optimizers.SGD(RATE, gradient_accumulation_steps=WINDOW)
    model.compile(optimizer, PenexLoss(loss))
    model.fit(
        X.numpy(), Y.numpy(), batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0,
        validation_data=(X.numpy(), Y.numpy()),
        callbacks=[
            keras.callbacks.BackupAndRestore(folder / "backup"),
            PenexCheckpoint(loss, folder / "loss.pt"),
        ],
    )  # fmt: skip
    probabilities = predictor(model, loss).predict(X.numpy(), verbose=0)
    weight, bias = model.get_weights()
    write(folder, outcome(weight.T, bias, loss.rho, loss, probabilities))


def lightning(folder: Path, ranks: int) -> None:
    """A module with its loss, ModelCheckpoint, and strategy ddp_fork for ranks."""
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    from penex.integrations.lightning import PenexCallback, PredictsProbabilities

    class Module(PredictsProbabilities, LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.loss = layer(), penex.PENEX(ALPHA)

        def forward(self, x: Any) -> Any:
            return self.model(x)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.loss(self(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("validation", self.loss(self(batch[0]), batch[1]), sync_dist=True)

        def train_dataloader(self) -> Any:
            return rows(ranks, self.global_rank)

        val_dataloader = train_dataloader

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=RATE)

    class Writes(Callback):
        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            loss = pl_module.loss
            found = outcome(pl_module.model.weight, pl_module.model.bias, loss.rho, loss)
            write(folder, found, trainer.global_rank)

    quiet: Any = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        max_epochs=EPOCHS, accumulate_grad_batches=WINDOW, accelerator="cpu", devices=ranks,
        strategy="ddp_fork" if ranks > 1 else "auto", default_root_dir=folder,
        use_distributed_sampler=False,  # it would shuffle
        callbacks=[PenexCallback(), ModelCheckpoint(folder, save_last=True), Writes()], **quiet,
    )  # fmt: skip
    module = Module()
    last = folder / "last.ckpt"
    trainer.fit(module, ckpt_path=last if last.exists() else None)
    if ranks == 1:
        parts = trainer.predict(module, rows())
        found = outcome(
            module.model.weight, module.model.bias, module.loss.rho, module.loss, torch.cat(parts)
        )
        write(folder, found)


def sklearn(folder: Path, ranks: int) -> None:
    """partial_fit, and the estimator with all its state in a file."""
    import joblib

    from penex.integrations.sklearn import PenexClassifier

    file = folder / "classifier.joblib"
    if file.exists():
        made, done = joblib.load(file)
    else:
        options = {"alpha": ALPHA}
        made, done = PenexClassifier(loss_options=options, batch_size=BATCH, random_state=0), 0
    for epoch in range(done, EPOCHS):
        made.partial_fit(X.numpy(), Y.numpy(), classes=range(3))
        joblib.dump((made, epoch + 1), folder / "part")
        os.replace(folder / "part", file)
    last = made.module_[-1]
    found = outcome(last.weight, last.bias, made.loss_.rho, None, made.predict_proba(X.numpy()))
    write(folder, found)


def skorch(folder: Path, ranks: int) -> None:
    """Checkpoint and LoadInitState; several ranks by its mixin for accelerate."""
    from accelerate import Accelerator
    from skorch.callbacks import Checkpoint, LoadInitState
    from skorch.hf import AccelerateMixin
    from skorch.history import History

    from penex.integrations.skorch import PenexNet

    class Net(AccelerateMixin, PenexNet):
        pass

    class AsOnGPUs(Accelerator):
        """Where it leaves a module without parameters alone, such as a criterion."""

        def prepare_model(self, model: Any, *args: Any, **kwargs: Any) -> Any:
            has_any = any(True for _ in model.parameters())
            return super().prepare_model(model, *args, **kwargs) if has_any else model

    done, history = 0, folder / "history.json"
    if history.exists():
        done = len(History.from_file(history))
    checkpoint = Checkpoint(monitor=None, dirname=folder)
    options: Any = {
        "criterion__alpha": ALPHA, "lr": RATE, "batch_size": BATCH // ranks, "verbose": 0,
        "max_epochs": EPOCHS - done, "train_split": None,
        "callbacks": [checkpoint, LoadInitState(checkpoint)],
    }  # fmt: skip
    if ranks > 1:
        net: Any = Net(layer, accelerator=AsOnGPUs(cpu=True), **options)
    else:
        net = PenexNet(layer, **options)
    net.fit(X.numpy(), Y.numpy())
    module, loss = net.module_, net.criterion_
    probabilities = net.predict_proba(X.numpy()) if ranks == 1 else None
    found = outcome(module.weight, module.bias, loss.rho, loss, probabilities)
    write(folder, found, int(os.environ.get("RANK", "0")))


def timm(folder: Path, ranks: int) -> None:
    """Its optimiser and its checkpoints, with the loss in the model; its way to divide a window."""
    from timm.models import resume_checkpoint
    from timm.optim import create_optimizer_v2
    from timm.utils import CheckpointSaver

    bare = Model()
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
    batches = [*rows(ranks, rank)]
    for epoch in range(done, EPOCHS):
        for start in range(0, BATCHES, WINDOW):
            window = batches[start : start + WINDOW]
            for x, y in window:
                (bare.loss(model(x), y) / len(window)).backward()
            optimizer.step()
            optimizer.zero_grad()
            bare.loss.end_step()
        if rank == 0:
            saver.save_checkpoint(epoch)
    write(folder, outcome(bare.layer.weight, bare.layer.bias, bare.loss.rho, bare.loss), rank)


def transformers(folder: Path, ranks: int) -> None:
    """A Trainer's checkpoints after each epoch; the probabilities of a folded copy."""
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

    from penex.integrations.transformers import attach

    class Network(PreTrainedModel):
        config_class = PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.layer = layer()
            self.post_init()

        def forward(self, inputs: Any, labels: Any = None) -> Any:
            return {"logits": self.layer(inputs)}

    attached = attach(Network(PretrainedConfig(num_labels=3)), penex.PENEX(ALPHA))
    attached.model.layer.load_state_dict(layer().state_dict())
    data = [{"inputs": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    arguments = TrainingArguments(
        str(folder), per_device_train_batch_size=BATCH // ranks, num_train_epochs=EPOCHS,
        gradient_accumulation_steps=WINDOW, use_cpu=True, optim="sgd", learning_rate=RATE,
        lr_scheduler_type="constant", max_grad_norm=0.0, train_sampling_strategy="sequential",
        eval_strategy="epoch", save_strategy="epoch", report_to=[], disable_tqdm=True,
        logging_strategy="no",
    )  # fmt: skip
    trainer = Trainer(
        attached.model, arguments, train_dataset=data, eval_dataset=data,
        compute_loss_func=attached.compute_loss, callbacks=[attached],
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=bool([*folder.glob("checkpoint-*")]))
    made, loss = attached.model.layer, attached.loss
    with torch.no_grad():
        probabilities = attached.folded("layer")(X)["logits"].softmax(1)
    found = outcome(made.weight, made.bias, loss.rho, loss, probabilities)
    write(folder, found, arguments.process_index)


# What trains, what to import before a fork, and whether it starts its ranks itself.
FRAMEWORKS: dict[str, tuple[Callable[[Path, int], None], str, bool]] = {
    "accelerate": (accelerate, "accelerate", False),
    "fastai": (fastai, "fastai.distributed", False),
    "ignite": (ignite, "ignite.handlers", True),
    "jax": (jax, "optax", True),
    "keras": (keras, "keras", True),
    "lightning": (lightning, "lightning.pytorch", True),
    "sklearn": (sklearn, "penex.integrations.sklearn", True),
    "skorch": (skorch, "skorch.hf", False),
    "timm": (timm, "timm.models", False),
    "transformers": (transformers, "transformers.trainer", False),
}


def forked(train: Callable[[], None], **environment: str) -> int:
    """The number of a process that trains."""
    child = os.fork()
    if child == 0:
        os.environ.update(environment)
        code = 1
        try:
            train()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def ended(child: int) -> int:
    """How a process ended: its exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_and_resume(train: Callable[[], None], folder: Path) -> None:
    """One process is killed; this one, which has trained nothing, goes on from what it left."""
    global _counted
    _counted = itertools.count(1)
    count_calls()
    assert ended(forked(train)) == -signal.SIGKILL
    _counted = iter(())
    assert [*folder.iterdir()], "no checkpoint"
    assert not [*folder.glob("rank-*")]
    train()


def start_ranks(train: Callable[[], None], ranks: int) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": f"{ranks}", "MASTER_ADDR": "localhost", "MASTER_PORT": f"{port}"}
    children = [forked(train, RANK=f"{i}", LOCAL_RANK=f"{i}", **shared) for i in range(ranks)]
    assert [ended(child) for child in children] == [0] * ranks


def main(framework: str, folder: Path, how: str) -> None:
    torch.set_num_threads(1)
    os.environ["KERAS_BACKEND"] = "torch"
    if framework in ("fastai", "timm"):
        vision_here.declare()
    train, module, starts = FRAMEWORKS[framework]
    importlib.import_module(module)
    if how == "killed":
        kill_and_resume(lambda: train(folder, 1), folder)
    elif starts or "RANK" in os.environ:
        train(folder, int(how))
    else:
        start_ranks(lambda: train(folder, int(how)), int(how))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
