"""What models said of examples that they had not seen, gathered from the records of folds."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from penex import noise
from penex.lab.data import Collection, Data
from penex.lab.ground.errors import LabError
from penex.lab.records import Record


@dataclass(frozen=True)
class HeldOut:
    """The probabilities of every example of a pool, said by a model that did not train on it.

    Attributes:
        probabilities: (N, K), at the temperature of the loss.
        given: the labels as they were trained on, (N).
        before: the labels as they were read; others than `given` if some were made wrong on
            purpose.
        fold: the number of the fold that each example is in, (N).
        collection: the data as they were read.
    """

    probabilities: Tensor
    given: Tensor
    before: Tensor
    fold: Tensor
    collection: Collection

    @property
    def predicted(self) -> Tensor:
        """The most probable class of each example."""
        return self.probabilities.argmax(dim=1)

    @property
    def score(self) -> Tensor:
        """How right each label looks: its probability."""
        return noise.self_confidence(self.probabilities, self.given)

    @property
    def suspected(self) -> Tensor:
        """Where an example is confidently of another class than its label says."""
        confident = noise.confident_class(self.probabilities, self.given)
        return (confident >= 0) & (confident != self.given)

    @property
    def order(self) -> Tensor:
        """The examples, the most suspicious first."""
        return self.score.argsort(stable=True)

    @property
    def disagreement(self) -> float:
        """The share of examples that are predicted to be of another class than they are given.

        Models disagree with a label where it is wrong or where they err: unless they are worse than
        the labels, no more labels than these are wrong.
        """
        return float((self.predicted != self.given).double().mean())

    @property
    def wrong_share(self) -> noise.Estimate:
        """The estimated share of wrong labels."""
        return noise.estimate(self.probabilities, self.given, self.fold)

    @property
    def average_precision(self) -> float | None:
        """How well the order finds the labels that were made wrong on purpose; None without any."""
        wrong = self.given != self.before
        return average_precision(self.score, wrong) if wrong.any() else None


def average_precision(score: Tensor, wrong: Tensor) -> float:
    """How well low scores find wrong labels: 1 if these are the lowest, their share by chance.

    The mean, over the wrong labels, of the share of such labels among all with a score as low.

    >>> average_precision(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([False, True, False]))
    0.5
    """
    hit = wrong[score.argsort(stable=True)].double()
    found = hit.cumsum(0) / torch.arange(1, len(hit) + 1)
    return float((found * hit).sum() / hit.sum())


def held_out(folds: Sequence[Data], records: Sequence[Record], collection: Collection) -> HeldOut:
    """What the runs of all folds said of their test parts.

    Args:
        folds: the data of each, which test every example of the pool once.
        records: of the runs, in the same order.
        collection: the data as they were read.
    """
    before = collection.train.targets.cpu()
    probabilities = torch.zeros(len(before), len(collection.classes), dtype=torch.float64)
    given, number = torch.empty_like(before), torch.empty_like(before)
    for k, (data, record) in enumerate(zip(folds, records, strict=True)):
        done = record.done()
        if done["status"] != "completed":
            raise LabError(
                f"The model of fold {k} diverged: {done['reason']}. Try another loss or --lr."
            )
        kept, index = record.predictions(), data.test.index.cpu()
        logits = torch.from_numpy(kept["test_logits"]).double()
        probabilities[index] = (logits / float(kept["temperature"])).softmax(dim=1)
        given[index], number[index] = data.test.targets.cpu(), k
    return HeldOut(probabilities, given, before, number, collection)
