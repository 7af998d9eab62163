"""What the allocator does with memory that a step of training has freed."""

import ctypes
import functools
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc's malloc.h
_KEPT = 1 << 30


@functools.cache
def keep() -> None:
    """Keep freed memory for the next step, on Linux; elsewhere nothing.

    glibc gives large blocks back to the system as they are freed and asks for them again a moment
    later, and the system clears every page each time: a third of the time of a pack's step.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _KEPT)
        mallopt(_TRIM_THRESHOLD, 2 * _KEPT - 1)
