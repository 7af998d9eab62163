"""What every kind of case shares: how it is numbered, repeated and counted."""

import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

# A case may be harmless, refused as it should be, or told beside what is not touched by it.
Ending = Literal["harmless", "refused", "told"]
Fault = Literal["traceback", "silent difference", "left behind", "no sentence"]


class Finding(Exception):  # noqa: N818  (what a campaign looks for)
    """What must not happen.

    Args:
        fault: of which kind it is.
        text: what was seen.
    """

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(f"{fault}: {text}")
        self.fault = fault


class Kind(Protocol):
    """Cases of one kind. What they start from is made once, in a folder of their own."""

    def case(self, chance: random.Random) -> Ending:
        """Carry out the case that these random numbers stand for, or raise a `Finding`."""
        ...


@dataclass
class Tally:
    """What came of a campaign.

    Attributes:
        endings: how often each kind ended how, by (kind, ending).
        findings: of every failure the kind, the number of the case and the text.
        seconds: how long each kind took.
    """

    endings: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[tuple[str, int, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """The counts, in words."""
        for kind, seconds in self.seconds.items():
            ends = {end: n for (one, end), n in self.endings.items() if one == kind}
            parts = ", ".join(f"{n} {end}" for end, n in sorted(ends.items()))
            yield f"{kind}: {sum(ends.values())} cases in {seconds:.0f} s ({parts})"
        yield f"{sum(self.endings.values())} cases, {len(self.findings)} findings"


def chance_of(seed: int, kind: str, number: int) -> random.Random:
    """The random numbers of a case: a function of these three, on every machine."""
    return random.Random(f"{seed} {kind} {number}")


def carry_out(kind: Kind, name: str, seed: int, number: int, tally: Tally) -> str | None:
    """Carry out one case and count it; what is to be said of it if it failed."""
    began = time.monotonic()
    text = None
    try:
        ending: str = kind.case(chance_of(seed, name, number))
    except Finding as found:
        ending, text = found.fault, str(found)
    except Exception:
        ending, text = "traceback", traceback.format_exc()
    tally.seconds[name] = tally.seconds.get(name, 0.0) + time.monotonic() - began
    tally.endings[name, ending] += 1
    if text is not None:
        tally.findings.append((name, number, text))
    return text


def run(
    makers: dict[str, Callable[[Path], Kind]],
    folder: Path,
    seed: int,
    *,
    minutes: float = 0.0,
    cases: int | None = None,
    first: int = 0,
    say: Callable[[str], None] = print,
) -> Tally:
    """A campaign: kinds take turns, each as much of the time as the others.

    Args:
        makers: the kinds by name; each is made in a folder of its own.
        folder: for all that is written.
        seed: decides every case, with its kind and number.
        minutes: how long, if `cases` does not say how many.
        cases: how many of each kind.
        first: the number of the first case.
        say: what to do with a line.
    """
    tally = Tally()
    end = time.monotonic() + 60 * minutes
    kinds = {}
    for name, make in makers.items():
        place = folder / name
        place.mkdir(parents=True)
        kinds[name] = make(place)
        tally.seconds[name] = 0.0
    done = dict.fromkeys(kinds, 0)
    while kinds and (cases is not None or time.monotonic() < end):
        name = min(kinds, key=lambda one: (tally.seconds[one], one))
        text = carry_out(kinds[name], name, seed, first + done[name], tally)
        if text is not None:
            number = first + done[name]
            say(f"{name}:{number} failed: {text.rstrip()}")
            say(f"  again: python -m benchmarks.fuzz --seed {seed} --case {name}:{number}")
        done[name] += 1
        if done[name] == cases:
            del kinds[name]
    return tally
