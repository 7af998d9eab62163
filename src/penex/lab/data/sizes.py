"""Sizes in bytes: as people write and read them, and how much is taken in unasked."""

import re
from pathlib import Path

from penex.lab.ground.errors import LabError

UNASKED = 500_000_000
TIMES = 20
_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def shown(size: float) -> str:
    """A size in words.

    >>> shown(3_140_000), shown(20_000_000_000), shown(12)
    ('3.1 MB', '20 GB', '12 bytes')
    """
    for unit in ("tb", "gb", "mb", "kb"):
        if size >= _UNITS[unit]:
            return f"{float(f'{size / _UNITS[unit]:.2g}'):g} {unit.upper()}"
    return f"{size:.0f} bytes"


def parse(text: str) -> int | None:
    """The number of bytes that a text says; None if it says none.

    >>> parse("20 GB"), parse("1.5mb"), parse("700"), parse("-1"), parse("much")
    (20000000000, 1500000, 700, None, None)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _UNITS:
        return None
    return int(float(match[1]) * _UNITS[match[2]])


def most(path: Path, allow_large: bool) -> float:
    """How many bytes a compressed file may become."""
    return float("inf") if allow_large else most_of(path.stat().st_size)


def most_of(size: int) -> int:
    """How many bytes so many may become that nobody vouches for."""
    return max(UNASKED, TIMES * size)


def too_large(path: Path, size: float, *, more: bool = False) -> LabError:
    """The error for a file that would become larger than `most` says.

    Args:
        path: the compressed file.
        size: what it would become.
        more: whether it was stopped there.
    """
    return LabError(
        f"{path} has {shown(path.stat().st_size)} and would become "
        f"{'more than ' if more else ''}{shown(size)}, over {TIMES} times as much. If you trust "
        "it, say --allow-large."
    )
