"""A learner's step on CUDA: recorded for each size of batch, then replayed.

A small network's kernels take less time than launching them one by one does. A pack answers that by
more models at once, and a recording by one launch for all: for those that cannot be packed.
"""

import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from penex.lab.data import Data
from penex.lab.engine.learner import Learner
from penex.lab.engine.recording import Recording, in_a_line, unchanged
from penex.lab.engine.step import HISTORY, step
from penex.lab.ground import chance, ranks
from penex.lab.models.layers import Cutting

LONG = 100  # steps of a run that pays for recordings: each costs as much as some ten
_COLUMNS = 64  # a batch's width is a multiple of it: a recording for each, and few of them
_KNOWN = ("torch", "penex", "transformers")  # other code may count on the host, or read numbers


class Replayed:
    """The step of a learner; plain where it cannot be recorded.

    Args:
        learner: what is trained.
        data: the training part is indexed.
        steps: of the whole run.
    """

    def __init__(self, learner: Learner, data: Data, steps: int) -> None:
        self._learner, self._data = learner, data
        self._records = steps >= LONG and _may_record(learner, data)
        self._recorded: dict[tuple[int, int | None], Recording] = {}
        self._cutting = [m for m in learner.module.modules() if isinstance(m, Cutting)]
        self._lengths: Tensor | None = None
        # A GPU has room for a batch of texts that memory of old had to cut: the losses still see
        # one micro-batch after another. Batch norm would see all of them at once.
        learner.joins = self._records and bool(self._cutting) and learner.least == 1
        if self._records:
            self._pool = torch.cuda.graph_pool_handle()
            if self._cutting:
                inputs = data.train.inputs[data.train.index]
                self._lengths = self._cutting[0].lengths(inputs).cpu()

    def widths(self, batches: Sequence[Tensor]) -> list[int | None]:
        """How many columns of each batch are kept; None where each is looked at, or whole.

        Args:
            batches: rows of the training part, on the host.
        """
        if self._lengths is None:
            return [None] * len(batches)
        return [width_of(self._lengths[rows], self._data.shape[0]) for rows in batches]

    def __call__(self, batch: Tensor, rate: Tensor, row: Tensor, width: int | None) -> None:
        """One step, as `step.step`; the width is the one that `widths` gave."""
        for layer in self._cutting:
            layer.width = width
        key = len(batch), width
        if self._records and key not in self._recorded:
            self._record(key, batch, rate)
        if self._records:
            self._recorded[key](batch, rate, row)
        else:
            step(self._learner, self._data, batch, rate, row)

    def _record(self, key: tuple[int, int | None], batch: Tensor, rate: Tensor) -> None:
        learner = self._learner
        recorded, failed = self._attempt(batch, rate)
        if recorded is not None:
            self._recorded[key] = recorded
            return
        if learner.device.type == "cuda":
            torch.cuda.synchronize()
        self._recorded.clear()
        if learner.joins:
            learner.joins = False
            # What failed may still hold memory of the pool, which then takes no new recordings.
            self._pool = torch.cuda.graph_pool_handle()
            self._record(key, batch, rate)
            return
        print(f"Steps are not recorded: {failed}", file=sys.stderr)
        self._records = False

    def _attempt(self, batch: Tensor, rate: Tensor) -> tuple[Recording | None, str]:
        """A recording that does what a plain step does, or none and why; no memory is kept then."""
        learner, data = self._learner, self._data
        row = torch.zeros(len(HISTORY), dtype=learner.wide, device=learner.device)

        def plain(index: Tensor, rate: Tensor, row: Tensor) -> None:
            step(learner, data, index, rate, row)

        try:
            # A user's generators are where the step expects them again afterwards.
            with chance.sown(learner.device):
                with unchanged([learner.theta, *learner.tensors().values()]):
                    recorded = Recording(plain, (batch.clone(), rate.clone(), row), self._pool)
                if not _alike(self._seen(plain, batch, rate), self._seen(recorded, batch, rate)):
                    raise RuntimeError("a recorded step came to other numbers than a plain one")
            return recorded, ""
        except Exception as error:  # a capture fails in all kinds of ways, and for want of memory
            return None, in_a_line(error)

    def _seen(self, step: Callable[..., None], batch: Tensor, rate: Tensor) -> tuple[Tensor, ...]:
        """What a step comes to from here: its numbers, its gradient, the parameters' way."""
        learner = self._learner
        row = torch.zeros(len(HISTORY), dtype=learner.wide, device=learner.device)
        before = learner.theta.clone()
        with unchanged([learner.theta, *learner.tensors().values()]):
            chance.sow(0)
            step(batch, rate, row)
            return row, learner.grad.clone(), learner.theta - before


def _alike(plain: tuple[Tensor, ...], recorded: tuple[Tensor, ...]) -> bool:
    """Whether two steps are the same but for the order in which kernels add up.

    Adam's first step has the gradient's sign, which rounding decides where the gradient is almost
    0: the parameters' way may differ in more than a few of its entries.
    """
    for one, other, most in zip(plain, recorded, (0.01, 0.05, 0.5), strict=True):
        both = one.isfinite() & other.isfinite()
        same_gaps = bool((one.isfinite() == other.isfinite()).all())
        far = float((one - other)[both].norm())
        if not same_gaps or far > most * float(one[both].norm()):
            return False
    return True


def width_of(lengths: Tensor, most: int) -> int:
    """The width of a batch whose rows have these lengths, among few widths; at most the inputs'.

    >>> width_of(torch.tensor([3, 65]), 512), width_of(torch.tensor([500]), 500)
    (128, 500)
    """
    longest = max(1, int(lengths.amax()))
    return min(most, -(-longest // _COLUMNS) * _COLUMNS)


def _may_record(learner: Learner, data: Data) -> bool:
    """Whether a step does nothing on the host but launch kernels, as far as can be known."""
    return (
        learner.device.type == "cuda"
        and ranks.world() == 1
        and data.train.stream is None
        and all(is_known(part) for part in (*learner.module.modules(), learner.loss))
    )


def is_known(part: torch.nn.Module) -> bool:
    """Whether a module's code is ours, or of a library that is known to be recordable.

    >>> is_known(torch.nn.Linear(2, 3))
    True
    """
    return type(part).__module__.partition(".")[0] in _KNOWN
