"""A run that is trained here and now, for benchmarks that change or look at what records do not."""

from collections.abc import Callable

import torch

from penex import metrics
from penex.calibration import fit_temperature
from penex.lab import training
from penex.lab.data import Data
from penex.lab.engine import loop, seeds
from penex.lab.engine.evaluation import logits_of
from penex.lab.engine.learner import AnyLoss, Learner
from penex.lab.engine.step import HISTORY, step
from penex.lab.tasks import runs
from penex.lab.training.place import Place


def trained(
    run: runs.Run,
    place: Place,
    moved: Callable[[AnyLoss, float], None] = lambda loss, t: None,
) -> tuple[Learner, Data]:
    """Train a run without leaving a record.

    Args:
        run: which.
        place: where its data are.
        moved: may change the loss before each epoch, from the first (t = 0) to the last (t = 1).
    """
    data = place.data(run)
    learner = training.learner_of(run, data, place.device)
    learner.train()
    rate = torch.tensor(run.recipe.lr, dtype=learner.wide)
    row = torch.zeros(len(HISTORY), dtype=learner.wide)
    for epoch in range(run.recipe.epochs):
        moved(learner.loss, epoch / max(1, run.recipe.epochs - 1))
        for batch in loop.cut(seeds.order(run.seed, epoch, len(data.train)), run.recipe.batch_size):
            step(learner, data, batch, rate, row)
    return learner, data


def judged(learner: Learner, data: Data) -> dict[str, float]:
    """Accuracy and cross-entropy of the test set, and the validation set's cross-entropy.

    At a temperature that is fitted to the validation set, for every loss alike.
    """
    seen = {name: logits_of(learner, data, getattr(data, name)) for name in ("val", "test")}
    temperature = float(fit_temperature(seen["val"], data.val.targets))
    found = {
        name: metrics.summary(
            metrics.scores(logits, getattr(data, name).targets, temperature=temperature)
        )
        for name, logits in seen.items()
    }
    return {
        "accuracy": float(found["test"]["accuracy"]),
        "cross_entropy": float(found["test"]["cross_entropy"]),
        "validation": float(found["val"]["cross_entropy"]),
    }
