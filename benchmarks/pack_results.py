"""Make one archive a task of the small records in a folder, as they are kept in results/.

    penex reproduce table1 --data FOLDER --slim results
    python -m benchmarks.pack_results results
    rm -r results/cifar10 results/cifar100 ...

What an archive has already stays in it; a run in the folder takes the place of its namesake.
"""

import argparse
from pathlib import Path

from penex.lab.data import sizes
from penex.lab.ground.errors import told
from penex.lab.records.scores import pack


def main() -> None:
    """Pack every task in a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("results"))
    folder = parser.parse_args().folder
    with told(lambda: "python -m benchmarks.pack_results"):
        for task in sorted({run.parents[2] for run in folder.glob("*/*/*/seed-*")}):
            archive = pack(task)
            print(f"{archive} has all of {task}: {sizes.shown(archive.stat().st_size)}")


if __name__ == "__main__":
    main()
