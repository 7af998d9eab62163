"""Trainings that a framework has the loop of: fastai, Keras, Lightning and so on.

Each goes on from the checkpoint of its folder, if there is one, as `framework_worker.py` says.
"""

import os
from pathlib import Path
from typing import Any

import torch

import framework_task as task
import penex
from framework_task import ALPHA, BATCH, EPOCHS, RATE, WINDOW, X, Y


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
    order = torch.arange(len(X)).view(task.BATCHES, ranks, share).transpose(0, 1).flatten()
    data = [*zip(X[order], Y[order], strict=True)]
    loaders = [Loader(data, bs=share, shuffle=False, num_workers=0) for _ in range(2)]
    learner = Learner(
        DataLoaders(*loaders, device=torch.device("cpu")),
        task.layer(),
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
    found = task.outcome(model.weight, model.bias, loss.rho, loss, probabilities)
    task.write(folder, found, int(os.environ.get("RANK", "0")))


def keras(folder: Path, ranks: int) -> None:
    """BackupAndRestore has the weights, PenexCheckpoint the loss."""
    import keras

    from penex.integrations.keras import PenexCheckpoint, PenexLoss, predictor

    model = keras.Sequential([keras.Input((X.shape[1],)), keras.layers.Dense(3)])
    begun = task.layer()
    model.set_weights([begun.weight.detach().numpy().T, begun.bias.detach().numpy()])
    loss = penex.PENEX(ALPHA, accumulate=WINDOW)
    optimizer = keras.optimizers.SGD(RATE, gradient_accumulation_steps=WINDOW)
    model.compile(optimizer, PenexLoss(loss))
    model.fit(
        X.numpy(), Y.numpy(), batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0,
        validation_data=(X.numpy(), Y.numpy()),
        callbacks=[
            PenexCheckpoint(loss, folder / "loss.pt"),
            keras.callbacks.BackupAndRestore(folder / "backup"),
        ],
    )  # fmt: skip
    probabilities = predictor(model, loss).predict(X.numpy(), verbose=0)
    weight, bias = model.get_weights()
    task.write(folder, task.outcome(weight.T, bias, loss.rho, loss, probabilities))


def lightning(folder: Path, ranks: int) -> None:
    """A module with its loss, ModelCheckpoint, and strategy ddp_fork for ranks."""
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    from penex.integrations.lightning import PenexCallback, PredictsProbabilities

    class Module(PredictsProbabilities, LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.loss = task.layer(), penex.PENEX(ALPHA)

        def forward(self, x: Any) -> Any:
            return self.model(x)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.loss(self(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("validation", self.loss(self(batch[0]), batch[1]), sync_dist=True)

        def train_dataloader(self) -> Any:
            return task.rows(ranks, self.global_rank)

        val_dataloader = train_dataloader

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=RATE)

    class Writes(Callback):
        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            loss = pl_module.loss
            found = task.outcome(pl_module.model.weight, pl_module.model.bias, loss.rho, loss)
            task.write(folder, found, trainer.global_rank)

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
        parts = trainer.predict(module, task.rows())
        found = task.outcome(
            module.model.weight, module.model.bias, module.loss.rho, module.loss, torch.cat(parts)
        )
        task.write(folder, found)


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
    found = task.outcome(
        last.weight, last.bias, made.loss_.rho, None, made.predict_proba(X.numpy())
    )
    task.write(folder, found)


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
        net: Any = Net(task.layer, accelerator=AsOnGPUs(cpu=True), **options)
    else:
        net = PenexNet(task.layer, **options)
    net.fit(X.numpy(), Y.numpy())
    module, loss = net.module_, net.criterion_
    probabilities = net.predict_proba(X.numpy()) if ranks == 1 else None
    found = task.outcome(module.weight, module.bias, loss.rho, loss, probabilities)
    task.write(folder, found, int(os.environ.get("RANK", "0")))


def transformers(folder: Path, ranks: int) -> None:
    """A Trainer's checkpoints after each epoch; the probabilities of a folded copy."""
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

    from penex.integrations.transformers import attach

    class Network(PreTrainedModel):
        config_class = PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.layer = task.layer()
            self.post_init()

        def forward(self, inputs: Any, labels: Any = None) -> Any:
            return {"logits": self.layer(inputs)}

    attached = attach(Network(PretrainedConfig(num_labels=3)), penex.PENEX(ALPHA))
    attached.model.layer.load_state_dict(task.layer().state_dict())
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
    found = task.outcome(made.weight, made.bias, loss.rho, loss, probabilities)
    task.write(folder, found, arguments.process_index)
