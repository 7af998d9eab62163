"""Make one archive a task of the small records in a folder, as they are kept in results/.

    penex reproduce table1 --data FOLDER --slim results
    python -m benchmarks.pack_results results
    rm -r results/cifar10

What the archive has already stays in it; a run in the folder takes the place of its namesake. The
scores of single examples are kept for the first seed of the losses in comparison.json.
"""

import argparse
import json
import tempfile
from pathlib import Path

from penex.lab import archived
from penex.lab.data import sizes
from penex.lab.records import LISTING, Record
from penex.lab.scores import slim
from penex.lab.tuning.storage import JOURNAL

_DONE = "done.json"
_RUN = f"*/*/seed-*/{_DONE}"


def pack(folder: Path) -> Path:
    """Pack what a task's folder and its archive have; the archive."""
    known = {Path(name) for name in archived.names(folder)}
    known |= {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    lists = [name for name in known if name.name == str(name) and name.suffix == ".json"]
    content = {
        str(name): archived.read(folder / name) for name in [*lists, *known & {Path(JOURNAL)}]
    }
    headlines = _first_seeds(content)
    with tempfile.TemporaryDirectory() as place:
        for name in sorted(name for name in known if name.match(_RUN)):
            small = Path(place) / name.parent
            slim(Record(folder / name.parent), small, scores=str(name.parent) in headlines)
            content |= {str(name.parent / file.name): file.read_bytes() for file in small.iterdir()}
    archive = folder.with_name(folder.name + archived.SUFFIX)
    archived.pack(content, archive)
    return archive


def _first_seeds(content: dict[str, bytes]) -> set[str]:
    """The runs of a comparison that keep the scores of single examples."""
    runs = json.loads(content[LISTING])["runs"] if LISTING in content else []
    first = min((run["seed"] for run in runs), default=0)
    return {run["folder"] for run in runs if run["seed"] == first}


def main() -> None:
    """Pack every task in a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("results"))
    folder = parser.parse_args().folder
    for task in sorted({path.parents[3] for path in folder.glob(f"*/{_RUN}")}):
        archive = pack(task)
        print(f"{archive} has all of {task}: {sizes.shown(archive.stat().st_size)}")


if __name__ == "__main__":
    main()
