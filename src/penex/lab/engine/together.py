"""Learners that are trained as a pack: what `loop.fit` trains."""

import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from penex import metrics
from penex.lab.engine import schedule, seeds
from penex.lab.engine.captured import Steps
from penex.lab.engine.loop import Seat, Sight, cut
from penex.lab.engine.packed import Pack
from penex.lab.engine.step import HISTORY

_WORTH_COMPILING = 10_000  # steps: the compiler takes a minute


class Together:
    """A crew of several, all at the same step; a CannotPack if they would not be as each alone.

    Args:
        seats: one for each learner.
    """

    def __init__(self, seats: Sequence[Seat]) -> None:
        self.seats = seats
        first = seats[0]
        learner, device, steps = first.learner, first.learner.device, len(first.position.history)
        self._n = len(first.data.train)
        every = torch.arange(self._n)
        self._sizes = [len(b) for b in cut(every, learner.recipe.batch_size, learner.least)]
        recipes = [seat.learner.recipe for seat in seats]
        self.rates = torch.stack([schedule.rates(r, steps) for r in recipes], dim=1)
        self._there = self.rates.to(learner.wide).to(device).unsqueeze(2)
        self._distinct = list({seat.seed: None for seat in seats})
        places = [self._distinct.index(seat.seed) for seat in seats]
        self._place = torch.tensor(places, device=device)
        self.pack = Pack([seat.learner for seat in seats], [seat.data for seat in seats])
        self.pack.train(True)
        self._upcoming = first.position.epoch, self._orders(first.position.epoch)
        self.pack.compare(self.batches(first.position.epoch)[0])
        self._history = torch.stack([seat.position.history for seat in seats], dim=1)
        long = learner.recipe.epochs * steps >= _WORTH_COMPILING
        self._step = Steps(self.pack, lambda text: print(text, file=sys.stderr), compiled=long)

    def _orders(self, epoch: int) -> Tensor:
        """The order of the examples for each seed: models with the same one share it."""
        return torch.stack([seeds.order(seed, epoch, self._n) for seed in self._distinct])

    def batches(self, epoch: int) -> Sequence[Tensor]:
        """The batches of an epoch, (models, rows) each."""
        known, orders = self._upcoming
        orders = orders if known == epoch else self._orders(epoch)
        return torch.split(orders.to(self.pack.device)[self._place], self._sizes, dim=1)

    def step(self, batch: Tensor, number: int) -> None:
        """Take a step."""
        i = self.seats[0].position.step
        self._step(batch, self._there[number], self._history[i])

    def is_well(self, steps: int) -> bool:
        """Whether no model that is still trained has gone bad since the last look."""
        alive = [k for k, seat in enumerate(self.seats) if seat.alive]
        losses = self._history[:steps, alive, HISTORY.index("loss")]
        return bool(losses.isfinite().all() & self.pack.theta[alive].isfinite().all())

    def look(self) -> Sight:
        """All that is to be known of all models, read from the device at once."""
        epoch = self.seats[0].position.epoch + 1
        self._upcoming = epoch, self._orders(epoch)  # while a GPU still has steps to do
        pack, history = self.pack, self._history
        logits = pack.predict([seat.data.val for seat in self.seats])
        targets = torch.stack([seat.data.val.targets for seat in self.seats])
        scores = metrics.scores_side_by_side(logits, targets, pack.temperature.view(-1, 1, 1))
        found = metrics.summary(scores)
        sound, sees = pack.theta.isfinite().all(1), logits.isfinite().flatten(1).all(1)
        rest = torch.stack([x.to(history.dtype) for x in (sound, sees, *found.values())], dim=1)
        table = torch.cat([history.transpose(0, 1).flatten(1), rest], dim=1).cpu()
        seen = table[:, : -rest.shape[1]].view(len(self.seats), *history.shape[::2])
        flags = table[:, -rest.shape[1] :].tolist()
        return Sight(
            seen,
            [bool(row[0]) for row in flags],
            [bool(row[1]) for row in flags],
            [dict(zip(found, row[2:], strict=True)) for row in flags],
        )

    def keep(self, places: list[int]) -> None:
        """Let the learners of these places keep what they are now as their best."""
        for k in places:
            self.pack.scatter_network(k)
            self.seats[k].learner.keep()

    def settle(self) -> None:
        """Give the learners and the positions their parts."""
        self.pack.scatter()
        for k, seat in enumerate(self.seats):
            seat.position.history.copy_(self._history[:, k])
