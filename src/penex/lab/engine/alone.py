"""A learner alone, on one process or several: what `loop.fit` trains."""

import torch
import torch.distributed as dist
from torch import Tensor

from penex import metrics
from penex.lab.engine import schedule, seeds
from penex.lab.engine.compiling import compile_network
from penex.lab.engine.evaluation import logits_of, numbers, scores_of
from penex.lab.engine.loop import Seat, Sight, cut
from penex.lab.engine.replayed import Replayed
from penex.lab.engine.step import HISTORY, micro_batches, own
from penex.lab.ground import chance, ranks


class Alone:
    """A crew of one.

    Args:
        seat: of the learner.
    """

    def __init__(self, seat: Seat) -> None:
        self.seat, self.seats = seat, [seat]
        learner, history = seat.learner, seat.position.history
        self.rates = schedule.rates(learner.recipe, len(history)).unsqueeze(1)
        self._there = self.rates[:, 0].to(learner.device, learner.wide)
        learner.train()
        steps = learner.recipe.epochs * len(history)
        compile_network(learner, seat.data, steps * learner.recipe.accumulate)
        self._step = Replayed(learner, seat.data, steps)
        self._widths: list[int | None] = []

    def batches(self, epoch: int) -> list[Tensor]:
        """The batches of an epoch, whole even where processes share them."""
        learner, data, seed = self.seat.learner, self.seat.data, self.seat.seed
        order = seeds.order(seed, epoch, len(data.train))
        size, least, pieces = learner.recipe.batch_size, learner.least, learner.recipe.accumulate
        every = cut(order, size, least)
        left = every[self.seat.position.step :]
        self._widths = self._step.widths(every)
        shares = (own(micro) for batch in left for micro in micro_batches(batch, pieces))
        data.train.announce(shares, seeds.derive(seed, "crops", epoch))
        return cut(order.to(learner.device), size, least)

    def step(self, batch: Tensor, number: int) -> None:
        """Take a step."""
        seat = self.seat
        # For a model of the user's that draws: what it draws needs no saving then.
        chance.sow(seeds.derive(seat.seed, "draws", number, ranks.rank()))
        place = seat.position.step
        row, width = seat.position.history[place], self._widths[place]
        self._step(batch, self._there[number], row, width)

    def is_well(self, steps: int) -> bool:
        """Whether losses and parameters are finite; reads from the device, once."""
        losses = self.seat.position.history[:steps, HISTORY.index("loss")]
        return bool(losses.isfinite().all() & self.seat.learner.is_finite())

    def look(self) -> Sight:
        """The history of all processes; the validation set, which the first one looks at."""
        learner, data, history = self.seat.learner, self.seat.data, self.seat.position.history
        _pool(history)
        sound = bool(learner.is_finite())
        well = sound and self.is_well(len(history))
        learner.gather()
        sees, validation = well, {}
        if well and ranks.rank() == 0:
            logits = logits_of(learner, data, data.val)
            sees = bool(logits.isfinite().all())
            if sees:
                validation = numbers(metrics.summary(scores_of(learner, logits, data.val)))
        blind = ranks.agree(well and not sees, learner.device)
        return Sight(history.cpu().unsqueeze(0), [sound], [not blind], [validation])

    def keep(self, places: list[int]) -> None:
        """Keep the learner as it is, if it is at its best."""
        if places:
            self.seat.learner.keep()

    def settle(self) -> None:
        """Bring all that is saved to the first process; the position is what was trained."""
        self.seat.learner.gather(slots=True)


def _pool(history: Tensor) -> None:
    """Make the history that of all processes: the mean loss, the largest of the rest."""
    if ranks.world() == 1:
        return
    loss, rest = history[:, :1].contiguous(), history[:, 1:].contiguous()
    dist.all_reduce(loss)
    dist.all_reduce(rest, op=dist.ReduceOp.MAX)
    history.copy_(torch.cat([loss / ranks.world(), rest], dim=1))
