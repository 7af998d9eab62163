"""A loss of ours in Lightning: windows that end with the optimiser's step, rho in the logs."""

from typing import Any

from torch import Tensor

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ImportError(
        "penex.integrations.lightning needs lightning: pip install lightning."
    ) from error

from penex.penalised import PenalisedLoss


class PenexCallback(Callback):
    """What a Trainer has to do for the losses of a LightningModule whose rho is estimated.

    Their `accumulate` is that of the Trainer, a window that the end of an epoch cuts short is
    closed with the optimiser's step, and rho is logged, under ``rho`` or the attribute's name.
    The loss must be an attribute of the module: then Lightning saves it, and evaluates it in
    eval() mode.

        Trainer(callbacks=[PenexCallback()], accumulate_grad_batches=4)
    """

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the losses."""
        if not self._losses(pl_module):
            raise ValueError(
                f"{type(pl_module).__name__} has no loss of penex with a rho among its modules: "
                "make it an attribute (self.loss = penex.PENEX()), so that it is saved and "
                "evaluated with the module."
            )

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Make a window as long as the Trainer's, which a callback may change from epoch to epoch.

        Not at the start of the epoch: that callback may come after this one.
        """
        for loss in self._losses(pl_module).values():
            loss.accumulate = trainer.accumulate_grad_batches

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Any
    ) -> None:
        """Close a window that is not full."""
        for loss in self._losses(pl_module).values():
            loss.end_step()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log rho."""
        losses = self._losses(pl_module)
        for name, loss in losses.items():
            self.log("rho" if len(losses) == 1 else f"{name}.rho", loss.rho.float())

    @staticmethod
    def _losses(module: LightningModule) -> dict[str, PenalisedLoss]:
        return {n: m for n, m in module.named_modules() if isinstance(m, PenalisedLoss)}


class PredictsProbabilities:
    """A `predict_step` that gives the probabilities of `self.loss`, at its own temperature.

    Put it before LightningModule among the bases: ``class Mine(PredictsProbabilities,
    LightningModule)``. The module's forward gives logits; of a batch in a tuple or a list, the
    first is what it takes.
    """

    loss: Any

    def predict_step(self, batch: Any, batch_idx: int = 0, dataloader_idx: int = 0) -> Tensor:
        """The probability of each class."""
        inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
        probabilities: Tensor = self.loss.probabilities(self(inputs))  # type: ignore[operator]
        return probabilities
