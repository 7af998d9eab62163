"""How a run is judged: after which epoch, and at which temperature. Records hold all four ways."""

from dataclasses import dataclass
from typing import Literal

from penex.lab.ground.errors import RecordError
from penex.lab.records.identity import Json
from penex.lab.records.reading import BEST, CALIBRATED

Select = Literal["last", "best"]
SELECTS: tuple[Select, ...] = ("last", "best")


@dataclass(frozen=True)
class View:
    """One way to judge runs. It is no part of what a run is: the same records serve all.

    Attributes:
        select: after which epoch: the last, or the one with the best validation cross-entropy.
        calibrate: at a temperature fitted to the validation set, instead of the loss's own.
    """

    select: Select = "last"
    calibrate: bool = False

    def of(self, done: Json) -> Json:
        """A done.json with the metrics of this view; a RecordError if the run has none such.

        >>> View("best").of({"status": "diverged"})
        {'status': 'diverged'}
        """
        if done["status"] != "completed":
            return done
        judged: Json | None = done if self.select == "last" else done.get(BEST)
        if judged is not None and self.calibrate:
            judged = judged.get(CALIBRATED)
        if judged is None:
            raise RecordError(
                f"The run was recorded by a version of penex that did not judge it {self.words}: "
                "to have that, move its folder away and train it again."
            )
        return {**done, **judged, CALIBRATED: done.get(CALIBRATED), BEST: done.get(BEST)}

    @property
    def words(self) -> str:
        """The view, as a part of a sentence.

        >>> View().words, View("best", True).words
        ('after the last epoch', 'after the best epoch, at a fitted temperature')
        """
        fitted = ", at a fitted temperature" if self.calibrate else ""
        return f"after the {self.select} epoch{fitted}"

    @property
    def identity(self) -> Json:
        """What differs from the usual view.

        >>> View().identity, View("best").identity
        ({}, {'select': 'best'})
        """
        chosen = {"select": self.select} if self.select != "last" else {}
        return {**chosen, **({"calibrate": True} if self.calibrate else {})}


VIEWS = tuple(View(select, fitted) for select in SELECTS for fitted in (False, True))
