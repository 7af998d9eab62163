"""What every benchmark's command does with a fault of the user's: one sentence, exit code 2."""

import argparse
import sys
from collections.abc import Callable

from penex.lab.ground.errors import LabError


def run(main: Callable[[], None]) -> None:
    """Run a benchmark's main function."""
    try:
        main()
    except (LabError, OSError) as error:  # OSError: a file of the user's is not there, or not ours
        print(error, file=sys.stderr)
        sys.exit(2)


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"it must be at least 1; got {value}")
    return value
