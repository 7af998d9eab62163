"""The paper's main table as documents: in every form, and claim by claim."""

from collections.abc import Sequence
from pathlib import Path

from penex.paper import claims, sweeps
from penex.paper.plan import Sweep
from penex.paper.tables import LEGEND, block, forms, markdown, table, written
from penex.report.plain import publishable
from penex.report.results import Results
from penex.report.statistics import FEWEST

NAME = "table1"


def _in_short(found: list[Results]) -> list[str]:
    if not (leads := claims.leads(found)):
        return []
    rule = "Seed-paired leads with their 95 % intervals; above zero PENEX is better, bold is beyond"
    return [f"## In short\n\n{rule} luck.\n\n{leads}"]


def document(
    found: list[Results], command: str, swept: Sequence[tuple[Sweep, Results]] = ()
) -> str:
    """The table, the paper's claims about it one by one, and the sweeps.

    Args:
        found: the tasks of the main table.
        command: how the document was made.
        swept: the sweeps.
    """
    parts = [
        "# The paper's main table, claim by claim",
        f"Generated from the records by `{command}`. A claim *holds* where the interval of the "
        "seed-paired lead is above zero, *does not hold* where it is below, and is *unclear* at "
        f"our power where it includes zero or there are fewer than {FEWEST} seeds; whether a loss "
        "*reaches* the paper's accuracy is judged by our mean alone.",
        *_in_short(found),
        f"The tables below: {LEGEND[0].lower()}{LEGEND[1:]}",
    ]
    for results in found:
        facts = next(results.records()).environment
        one = block(results)
        parts += [
            f"## {one.title}",
            f"{one.seeds}; {results.made_with}{claims.caveat(results.task, facts)}",
            table(one),
            *([" ".join(one.notes)] if one.notes else []),
            claims.markdown(results),
        ]
    return "\n\n".join([*parts, *sweeps.chapter(swept)]) + "\n"


def write(
    folder: Path, found: list[Results], command: str, swept: Sequence[tuple[Sweep, Results]] = ()
) -> list[Path]:
    """Write the main table in every form, and the claims one by one; the files."""
    command = publishable(command)
    blocks = [block(results) for results in found]
    content = {
        f"{NAME}.md": markdown(blocks, command),
        **forms(NAME, "The paper's main table, and ours", blocks, command),
        "claims.md": document(found, command, swept),
    }
    return written(folder, content)
