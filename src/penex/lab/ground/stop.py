"""Stopping a run cleanly: Ctrl-C, and the SIGTERM of a scheduler."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STDERR = 2


class Stop:
    """Whether the user asked to stop. The second time is not asked but done at once."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.asked

    def ask(self, number: int, frame: object) -> None:
        """Handle the signal."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        # Not by print: the signal may have come while sys.stderr was writing, which then refuses.
        with suppress(OSError):  # nobody reads it any more
            os.write(_STDERR, b"\nStopping after this step; once more to stop at once.\n")


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Let Ctrl-C and SIGTERM set a flag while this lasts."""
    stop = Stop()
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
