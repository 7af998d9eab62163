"""How long a set of runs takes, as soon as someone can know."""

import time
from collections.abc import Callable, Sequence

from penex.lab.ground.sentences import duration
from penex.lab.tasks.runs import Run

_LONG = 600.0  # seconds: what takes longer is said at the start
_SLOW = 60.0  # seconds: an epoch that takes as long is no slow start, and is judged at once


class Pace:
    """How long a set of runs still takes, by what was done so far.

    The work of a run is its epochs times its training examples. The runs of a pack go side by side,
    so the epoch of one is that of all who are one behind; other packs may train elsewhere. Before
    the first epoch's end comes a start, on a GPU compilers at work: the pace is that of what comes
    after it, as soon as something does.

    Args:
        planned: all runs, those that are done already too; none if that is not known.
        clock: the time in seconds.
    """

    def __init__(self, planned: Sequence[Run], clock: Callable[[], float] = time.monotonic) -> None:
        self._left = sum(work(run) for run in planned)
        self._known, self._clock = bool(planned), clock
        self._began: float | None = None
        self._did = 0  # by the runs that are over
        self._begun: dict[int, tuple[Run, int]] = {}  # the epochs each had behind it when it began
        self._reached: dict[int, int] = {}  # and has now, by its last word
        self._latest = 0  # the epoch that was told last
        self._started: tuple[float, int] | None = None  # when, and the work that was done by then
        self._judged = False

    def begin(self, run: Run, epochs: int) -> None:
        """A run starts, or goes on after some epochs."""
        self._began = self._clock() if self._began is None else self._began
        self._begun[id(run)], self._reached[id(run)] = (run, epochs), epochs

    def epoch(self, run: Run, epoch: int) -> str:
        """A run finished an epoch; a sentence, once and early, if all of it takes long."""
        self._reached[id(run)] = self._latest = epoch
        starts = self._started is None
        if starts:
            self._started = self._clock(), self._did + self._doing
        seconds = self.seconds
        if self._judged or seconds is None:
            return ""
        if (starts or epoch < 2) and run.recipe.epochs > 2 and self._took() < _SLOW:
            return ""
        self._judged = True
        if seconds < _LONG:
            return ""
        return (
            f"This takes about {duration(seconds)}. Fewer --seeds, --losses or --epochs, or a "
            "smaller --train-size, shorten it. Ctrl-C stops it; the same command goes on."
        )

    def done(self, run: Run) -> None:
        """A run is over, or was already."""
        self._left -= work(run)
        _, before = self._begun.pop(id(run), (run, run.recipe.epochs))
        self._did += work(run, run.recipe.epochs - before)

    @property
    def _doing(self) -> int:
        """The work that those who train have done since they began."""
        total = 0
        for key, (run, before) in self._begun.items():
            reached = self._reached[key]
            reached += reached == self._latest - 1
            total += work(run, reached - before)
        return total

    @property
    def seconds(self) -> float | None:
        """How long it still takes; None if nobody can know."""
        doing = self._doing
        did = self._did + doing
        if not self._known or self._began is None or not did:
            return None
        before = sum(work(run, epochs) for run, epochs in self._begun.values())
        left = self._left - before - doing
        when, then = self._started or (self._began, 0)
        if self._clock() <= when or did <= then:
            when, then = self._began, 0
        return (self._clock() - when) / (did - then) * max(left, 0)

    def _took(self) -> float:
        """The seconds since the first run began."""
        return 0.0 if self._began is None else self._clock() - self._began

    def words(self) -> str:
        """How long it still takes, in words; empty if nobody can know."""
        return "" if self.seconds is None else f"about {duration(self.seconds)} left"


def work(run: Run, epochs: int | None = None) -> int:
    """The examples that a run trains on, epoch by epoch: all of them, or in some epochs."""
    return (run.recipe.epochs if epochs is None else epochs) * run.train_size
