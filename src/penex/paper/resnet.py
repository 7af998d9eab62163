"""The appendix's table of ResNet-18 beside ours, with and without augmentation."""

from pathlib import Path

from penex.lab.tasks import find
from penex.paper import claims, tables
from penex.paper.plan import AUGMENTED
from penex.paper.tables import LEGEND, Block
from penex.report.plain import publishable
from penex.report.results import Results
from penex.report.tables import aligned, marked_down

NAME = "resnet"

RATE = (
    "All losses share one SGD rate here, as in the paper, and alpha scales PENEX's gradient: at "
    "the default alpha of 0.1 it is about a tenth of cross-entropy's, so PENEX trains as if at a "
    "tenth of the rate and ten times the weight decay; `penex:scale=cross_entropy` takes that "
    "factor away (`--losses ce penex penex:scale=cross_entropy` trains both)."
)
_AUGMENTED = (
    "The paper trains without augmentation, as the first rows do; accuracies near its 0.947 on "
    f"CIFAR-10 are otherwise known with `--augment {AUGMENTED}` only."
)


def title(results: Results) -> str:
    """The task, and how its images were changed."""
    run = next(results.records(), None)
    augment = "" if run is None else run.config["recipe"].get("augment", "")
    return find(results.task).title + (f", images changed by {augment}" if augment else "")


def block(results: Results) -> Block:
    """A task's part of the table."""
    return tables.block(results, title(results))


def text(found: list[Results]) -> str:
    """The table for a terminal, with differences and verdicts."""
    parts = []
    for results in found:
        one = block(results)
        parts += [
            tables.text([one]).removesuffix(LEGEND).rstrip(),
            "\n".join(aligned(tables.differences(one))),
            "\n".join(f"{c.verdict}: {c.words}; {c.ours}" for c in claims.claims(results)),
        ]
    return "\n\n".join([*filter(None, parts), RATE, LEGEND])


def markdown(found: list[Results], command: str) -> str:
    """The table with differences, claims, seeds, machine and command."""
    parts = ["# ResNet-18 on CIFAR: the appendix's table, and ours", f"{RATE} {_AUGMENTED}"]
    for results in found:
        one = block(results)
        parts += [
            f"## {one.title}",
            f"{one.seeds}; {results.made_with}",
            tables.table(one),
            marked_down(tables.differences(one)),
            claims.markdown(results),
        ]
    return "\n\n".join([*parts, LEGEND, f"`{command}`"]) + "\n"


def write(folder: Path, found: list[Results], command: str) -> list[Path]:
    """Write the table in every form; the files."""
    command = publishable(command)
    judged = [list(claims.claims(results)) for results in found]
    heading = "ResNet-18: the appendix's table, and ours"
    blocks = [block(results) for results in found]
    content = {
        f"{NAME}.md": markdown(found, command),
        **tables.forms(NAME, heading, blocks, command, judged, notes=(RATE, _AUGMENTED)),
    }
    return tables.written(folder, content)
