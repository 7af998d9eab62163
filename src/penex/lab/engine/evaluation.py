"""Evaluation: the logits of a part are computed once, and every metric comes from them."""

import torch
from torch import Tensor

from penex import metrics
from penex.lab.data import Data, Part
from penex.lab.engine.learner import Learner
from penex.lab.ground import chance


def logits_of(learner: Learner, data: Data, part: Part) -> Tensor:
    """The logits of a part, as the model gives them, in float32 or wider. Changes no state.

    Without autocast, which is for training: whoever uses the model gets the same.
    """

    def logits(start: int, stop: int) -> Tensor:
        return learner.logits(data.normalise(part.between(start, stop), learner.dtype))

    learner.train(False)
    with torch.no_grad(), chance.sown(learner.device), learner.seeing():
        rows = learner.batches(logits, len(part))
    learner.train(True)
    return rows


def scores_of(learner: Learner, logits: Tensor, part: Part) -> metrics.Scores:
    """The scores of each example at the temperature of the loss."""
    temperature = learner.loss.temperature
    return metrics.scores(logits, part.targets, temperature=temperature, votes=part.votes)


def numbers(values: dict[str, Tensor]) -> dict[str, float]:
    """Metrics as Python numbers, read from the device at once."""
    return dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))
