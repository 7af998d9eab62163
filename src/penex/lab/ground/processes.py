"""Whether torchrun started this process: what its environment says, without asking torch."""

import os

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launched() -> bool:
    """Whether torchrun, or someone who sets all that it sets, started this process."""
    return all(name in os.environ for name in _TORCHRUN)


def half_launched() -> str:
    """A sentence if some of torchrun's variables are set and others are not; else empty."""
    there = [name for name in _TORCHRUN[:2] if name in os.environ]
    if launched() or not there:
        return ""
    missing = [name for name in _TORCHRUN if name not in os.environ]
    return (
        f"The environment has {' and '.join(there)} but no {', '.join(missing)}, which torchrun "
        "sets too: this process trains alone."
    )
