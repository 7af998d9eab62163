"""Which values the numbers of a loss may have."""

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias


class Legal(NamedTuple):
    """Which values a number of a loss may have: finite ones from low to high.

    Attributes:
        low: the smallest.
        high: the largest.
        above: True if low itself is too small.
        below: True if high itself is too large.
        optional: True if it may be None.
        instead_of_zero: what to take where 0 would be, if 0 is not legal.
    """

    low: float = 0.0
    high: float = math.inf
    above: bool = False
    below: bool = False
    optional: bool = False
    instead_of_zero: str = ""

    def is_former_none(self, value: float) -> bool:
        """Whether a saved value stands for None, as -1 did in states of earlier versions."""
        return self.optional and value == -1 and not self.low <= value <= self.high

    def checked(self, name: str, value: float | None) -> float | None:
        """The value as a float, or a ValueError with a sentence.

        >>> Legal(high=1).checked("epsilon", 1)
        1.0
        """
        if value is None and self.optional:
            return None
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = math.nan
        too_small = number <= self.low if self.above else number < self.low
        too_large = number >= self.high if self.below else number > self.high
        without = number == 0 and self.instead_of_zero
        if too_small or too_large or not math.isfinite(number) or without:
            bounds = f"{'above' if self.above else 'of at least'} {self.low:g}"
            if self.high < math.inf:
                bounds += f" and {'below' if self.below else 'at most'} {self.high:g}"
            if self.instead_of_zero:
                bounds += " and not 0"
            hint = f" {without}" if without else ""
            raise ValueError(f"{name} must be a finite number {bounds}; got {value!r}.{hint}")
        return number


NON_NEGATIVE = Legal()
POSITIVE = Legal(above=True)
POSITIVE_OR_NONE = Legal(above=True, optional=True)

Settings: TypeAlias = Mapping[str, Legal]
