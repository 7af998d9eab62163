"""Random batches, damaged files and killed processes, until the time is over.

Run it with `python -m benchmarks.fuzz [--minutes 10] [--seed 0] [--only losses]`, and one case
again with `--case losses:123` and the same seed. The exit code is 1 if anything failed.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks._main import run as run_main
from benchmarks.fuzz import campaign
from benchmarks.fuzz.data import Data
from benchmarks.fuzz.kills import Kills
from benchmarks.fuzz.losses import Losses
from benchmarks.fuzz.records import Records
from penex.lab.ground.errors import LabError

KINDS: dict[str, Callable[[Path], campaign.Kind]] = {
    "losses": Losses,
    "records": Records,
    "data": Data,
    "kills": Kills,
}


def main() -> None:
    """Run a campaign, or one case, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="decides every case (default: 0)")
    parser.add_argument("--only", choices=KINDS, help="cases of one kind")
    parser.add_argument("--case", metavar="KIND:NUMBER", help="one case again")
    options = parser.parse_args()
    names, cases, first = [options.only] if options.only else list(KINDS), None, 0
    if options.case:
        name, _, number = options.case.partition(":")
        if name not in KINDS or not number.isdecimal():
            raise LabError(f"A case is KIND:NUMBER, as losses:123; got {options.case!r}.")
        names, cases, first = [name], 1, int(number)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENEX_CACHE"] = f"{folder}/cache"
        tally = campaign.run(
            {name: KINDS[name] for name in names},
            Path(folder),
            options.seed,
            minutes=options.minutes,
            cases=cases,
            first=first,
        )
    print(*tally.lines(), sep="\n")
    sys.exit(1 if tally.findings else 0)


if __name__ == "__main__":
    run_main(main)
