"""The page about the whole paper, chapter by chapter: what is claimed, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penex.lab.tasks import find
from penex.paper import claims, fair, floor, resnet, sweeps
from penex.paper.claims import Claim
from penex.paper.plan import Sweep
from penex.report.results import Results


@dataclass(frozen=True)
class Chapter:
    """What the paper says of one thing, and what we measured.

    Attributes:
        title: what it is about.
        claims: the paper's, judged; none if it claims nothing here.
        notes: what a reader must know besides.
        seeds: how many there are, in words.
        machine: on which it was measured.
        command: that made the records.
        missing: what is not there, and the command that makes it; empty if all is.
        files: where its tables are.
        tables: titles and lines, heads first, of tables that the page shows whole.
    """

    title: str
    claims: Sequence[Claim] = ()
    notes: Sequence[str] = ()
    seeds: str = ""
    machine: str = ""
    command: str = ""
    missing: str = ""
    files: Sequence[str] = ()
    tables: Sequence[tuple[str, list[list[str]]]] = ()


def no_records(command: str) -> str:
    """What is said where there is nothing to show."""
    return f"No records yet; command: {command}"


def of_main_table(results: Results) -> Chapter:
    """A task of the main table."""
    facts = next((run.environment for run in results.records()), {})
    note = claims.caveat(results.task, facts).strip()
    judged = list(claims.claims(results))
    return _chapter(find(results.task).title, results, judged, [note])


def of_resnet(results: Results) -> Chapter:
    """A task of the appendix's table."""
    judged = list(claims.claims(results))
    return _chapter(resnet.title(results), results, judged, [resnet.RATE])


def of_sweep(sweep: Sweep, results: Results) -> Chapter:
    """A sweep: what the paper says of it, if it says something."""
    found = [sweeps.claim(sweep, results), floor.claim(sweep, results)]
    judged = [one for one in found if one is not None]
    notes = [] if judged else [sweep.why]
    return _chapter(sweep.title, results, judged, notes)


def of_fair(results: Results) -> Chapter:
    """A task of the fair table, which is ours and not the paper's."""
    return _chapter(find(results.task).title, results, [], list(fair.verdicts(results)))


def untrained(title: str, command: str, judged: Sequence[Claim] = ()) -> Chapter:
    """A chapter without records."""
    return Chapter(title, judged, missing=no_records(command))


def placed(one: Chapter, names: Sequence[str], command: str) -> Chapter:
    """A chapter with the files of its tables, and the command that trains what it lacks."""
    lacking = f"{one.missing}; command: {command}" if one.missing else ""
    return replace(one, files=names, missing=lacking)


def _chapter(
    title: str, results: Results, judged: Sequence[Claim], notes: Sequence[str]
) -> Chapter:
    lacking = sum(len(row.missing) for row in results.rows)
    total = sum(row.total for row in results.rows)
    return Chapter(
        title,
        judged,
        [note for note in (*notes, *results.damaged) if note],
        results.seeds_in_words,
        results.machine,
        results.command,
        f"{lacking} of {total} runs are not there" if lacking else "",
    )
