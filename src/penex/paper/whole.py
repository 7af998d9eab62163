"""The whole paper from one command: a plan, what is missing trained, one page of verdicts."""

import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import penex
from penex.installing import install
from penex.lab.ground import environment
from penex.lab.ground.errors import LabError, writes
from penex.lab.ground.sentences import count, listed
from penex.paper import estimate, parts
from penex.paper.chapters import Chapter
from penex.paper.claims import Verdict
from penex.paper.estimate import Share
from penex.paper.parts import Made
from penex.paper.request import PARTS, Request
from penex.paper.tables import written
from penex.report.page import render
from penex.report.plain import publishable
from penex.report.statistics import FEWEST
from penex.report.tables import aligned, marked_down

NAME = "paper"
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

_TITLES = {
    "table1": "The main table",
    "floor": "Which rho gives the printed numbers",
    "rho": "The average and the bounds of rho",
    "alpha": "The sensitivity alpha",
    "gap": "What the authors' code has besides",
    "tuned": "Our studies' values beside the authors'",
    "ablations": "The exponential loss without PENEX's penalty",
    "sensitivity": "Small and large alpha",
    "size": "Few and many training images",
    "fair": "Not in the paper: every loss at its own rate",
    "resnet": "The appendix's table: ResNet-18",
    "costs": "The appendix on runtime and resources",
    "figures": "The figures, caption by caption",
}
_ASKED = (
    "What the paper says, what we measured, and what became of it. A claim holds where the "
    "interval of the seed-paired difference lies on its side of zero, does not hold where it lies "
    f"on the other, and is unclear where it includes zero or there are fewer than {FEWEST} seeds; "
    "what is not trained has no records yet. The text task (BBC News) and ImageNet of the paper "
    "are not part of this page."
)


@dataclass(frozen=True)
class Section:
    """A part on the page.

    Attributes:
        name: on the command line.
        title: in words.
        chapters: what it is made of.
        runs: how many of its runs were there when it was asked for, in words.
    """

    name: str
    title: str
    chapters: Sequence[Chapter]
    runs: str = ""

    @property
    def verdicts(self) -> Counter[str]:
        """How many claims came to what."""
        return Counter(claim.verdict for one in self.chapters for claim in one.claims)

    @property
    def missing(self) -> list[Chapter]:
        """The chapters that lack something."""
        return [one for one in self.chapters if one.missing]


def make(request: Request) -> Made:
    """Plan all parts, say so, make them, and write the page."""
    names = [name for name in PARTS if not request.only or name in request.only]
    if request.smoke:  # there are no studies to try it with
        names = [name for name in names if name != "tuned"]
    where = environment.device_of(request.device)
    shares = estimate.shares(request, names)
    times = {} if request.read_only else estimate.seconds(shares, request, where)
    plan = estimate.text(shares, times, request, environment.device_name(where))
    if request.plan:
        return Made(plan)
    if writes():
        print(plan, file=sys.stderr)
    if not request.read_only:
        for name in names:
            _check(request.part(name))
    before = {one.name: _runs(one) for one in shares}
    sections = [
        Section(name, _TITLES[name], _chapters(request.part(name)), before[name]) for name in names
    ]
    if not writes():
        return Made()
    command = publishable(request.command)
    content = {f"{NAME}.md": markdown(sections, command)}
    try:
        content[f"{NAME}.html"] = page(sections, command)
    except ModuleNotFoundError as error:
        print(f"The page is left out: it needs {error.name} ({install('lab')}).", file=sys.stderr)
    return Made(text(sections), [path.name for path in written(request.out, content)])


def _runs(share: Share) -> str:
    """How many runs are there, of how many."""
    total = share.there + share.lacking
    return f"{share.there} of {total}" if total else ""


def _check(part: Request) -> None:
    """A sentence now if data are missing."""
    try:
        parts.check_data(part)
    except parts.NoStudyError:
        pass
    except LabError as error:
        others = listed([name for name in PARTS if name != part.what])
        raise LabError(f"{error} Or leave out {part.what}: --only takes {others}.") from error


def _chapters(part: Request) -> Sequence[Chapter]:
    """Make a part; what keeps it from being read is said on the page."""
    print(f"{part.what}: {_TITLES[part.what]}", file=sys.stderr)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what parts print is progress here
            made = parts.make(part)
    except parts.NoStudyError as error:
        return [Chapter(_TITLES[part.what], missing=str(error))]
    except LabError as error:
        if not part.read_only:
            raise
        return [Chapter(_TITLES[part.what], missing=str(error))]
    inside = Path("fair") if part.what == "fair" else Path()
    return [
        replace(one, files=[(inside / name).as_posix() for name in one.files])
        for one in made.chapters
    ] or [Chapter(_TITLES[part.what], missing=made.text)]


def _summary(sections: Sequence[Section]) -> list[list[str]]:
    """A head, a line for each part, and the sum."""
    lines = [["part", "runs that were there", *VERDICTS]]
    total: Counter[str] = Counter()
    for one in sections:
        total += one.verdicts
        lines.append([one.title, one.runs, *(str(one.verdicts[v] or "") for v in VERDICTS)])
    return [*lines, ["all", "", *(str(total[verdict]) for verdict in VERDICTS)]]


def text(sections: Sequence[Section]) -> str:
    """The verdicts for a terminal, and what is missing."""
    lines = aligned(_summary(sections))
    lacking = [f"{one.title}: {one.missing}" for part in sections for one in part.missing]
    return "\n".join([*lines, *(["", *lacking] if lacking else [])])


def markdown(sections: Sequence[Section], command: str) -> str:
    """The page as Markdown."""
    out = ["# The paper, claim by claim", _ASKED, marked_down(_summary(sections))]
    for section in sections:
        out.append(f"## {section.title}\n\n`penex reproduce {section.name}`")
        for one in section.chapters:
            out.append(f"### {one.title}")
            if one.missing:
                out.append(f"**{_sentence(one.missing)}**")
            if one.claims:
                lines = [[c.words, c.paper, c.ours, c.verdict] for c in one.claims]
                out.append(marked_down([["the paper says", "its numbers", "ours", "verdict"],
                                        *lines]))  # fmt: skip
            out += [f"**{title}**\n\n{marked_down(lines)}" for title, lines in one.tables]
            out += [f"- {name}: {value}" for name, value in facts(one)]
            out += one.notes
    joined = "\n\n".join(out).replace("\n\n- ", "\n- ").replace("|\n- ", "|\n\n- ")
    return f"{joined}\n\nMade by penex {penex.__version__}: `{command}`\n"


def _sentence(said: str) -> str:
    return said if said.endswith(".") else f"{said}."


def facts(one: Chapter) -> list[tuple[str, str]]:
    """How a chapter's numbers came about: seeds, machine, command, files."""
    command = f"`{one.command}`" if one.command else ""
    every = [("seeds", one.seeds), ("machine", one.machine), ("command", command)]
    every.append(("files", ", ".join(one.files)))
    return [(name, value) for name, value in every if value]


def page(sections: Sequence[Section], command: str) -> str:
    """The page as one HTML file."""
    total = sum((one.verdicts for one in sections), Counter[str]())
    return render(
        "paper.html",
        {
            "version": penex.__version__,
            "title": "The paper, claim by claim",
            "asked": _ASKED,
            "judged": f"{count(sum(total.values()), 'claim')}:",
            "total": [(verdict, total[verdict], _mark(verdict)) for verdict in VERDICTS],
            "summary": _summary(sections),
            "sections": sections,
            "mark": _mark,
            "command": command,
        },
        Path(__file__).parent,
    )


def _mark(verdict: str) -> str:
    """The class of a verdict in the style sheet."""
    return f"verdict {verdict.replace(' ', '-')}"
