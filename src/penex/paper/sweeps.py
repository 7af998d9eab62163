"""Losses in several versions: what the version does to them."""

from collections.abc import Mapping, Sequence

from penex.lab.ground import files
from penex.metrics import METRICS
from penex.paper import floor
from penex.paper.claims import Claim, Verdict
from penex.paper.plan import Sweep
from penex.report import tables, words
from penex.report.finished import Finished
from penex.report.results import Results, Row
from penex.report.statistics import FEWEST, Interval, paired_difference

LITTLE = 0.01  # of accuracy: less than that is no reason to tune

_SHOWN = tuple(METRICS[name] for name in ("accuracy", "cross_entropy", "brier", "ece"))
_RULE = (
    "Test set, mean ± standard deviation over seeds. The differences are to the row that their "
    "column names, seed by seed, with their 95 % intervals. By its accuracy a version is *alike* "
    f"where the interval lies within ±{LITTLE}, *differs* where it lies beyond ±{LITTLE}, and is "
    f"*unclear* at our power otherwise, or with fewer than {FEWEST} seeds; *the same* has the same "
    "numbers to the last digit."
)


def verdict(lead: Interval) -> str:
    """Whether two versions are alike.

    >>> verdict(Interval(0.0, -0.002, 0.002, 5)), verdict(Interval(0.03, 0.02, 0.04, 5))
    ('alike', 'differs')
    >>> verdict(Interval(0.0, -0.02, 0.02, 5)), verdict(Interval(0.03, 0.02, 0.04, FEWEST - 1))
    ('unclear', 'unclear')
    """
    if lead.pairs < FEWEST:
        return "unclear"
    if -LITTLE <= lead.low <= lead.high <= LITTLE:
        return "alike"
    return "differs" if lead.low > LITTLE or lead.high < -LITTLE else "unclear"


def lines(sweep: Sweep, results: Results) -> list[list[str]]:
    """A head, and a line for each version that has runs."""
    whose = "the authors'" if sweep.authors_first else "the first's"
    less = [f"{metric.title}, less {whose}" for metric in _SHOWN[:2]]
    table = [["version", "seeds", *(metric.title for metric in _SHOWN), *less, "verdict"]]
    for row in results.rows:
        same = results.at(row.train_size)
        base = next(one for one in same if one.loss == row.loss or not sweep.authors_first)
        if row.done or row is base:
            table.append(_line(row, base, sized=len(results.train_sizes) > 1))
    if sweep.printed:
        table.append(_printed(sweep.printed))
    return table


def _printed(paper: Mapping[str, float]) -> list[str]:
    """The paper's own numbers; its ECE is another one than ours here."""
    cells = [f"{paper[m.name]:.3f}" if m.name in paper else "" for m in _SHOWN]
    return ["the paper prints", "1", *cells, "", "", ""]


def _line(row: Row, base: Row, *, sized: bool) -> list[str]:
    seeds = len(row.values("accuracy"))
    cells = [_name(row, sized), str(seeds), *(tables.cell(row, metric) for metric in _SHOWN)]
    shared = [seed for seed in row.done if seed in base.done]
    if row is base or not shared:
        return [*cells, "", "", ""]
    less = [paired_difference(row.values(m.name), base.values(m.name)) for m in _SHOWN[:2]]
    same = all(row.done[seed].get("test") == base.done[seed].get("test") for seed in shared)
    return [*cells, *(one.words for one in less), "the same" if same else verdict(less[0])]


def _name(row: Row, sized: bool) -> str:
    """A version, with its training size where there are several."""
    return f"{row.train_size:,}: {tables.name(row)}" if sized else tables.name(row)


def claim(sweep: Sweep, results: Results) -> Claim | None:
    """What became of the claim: it holds if no version makes a difference. None without one."""
    found = [line[-1] for line in lines(sweep, results)[1:] if line[-1]]
    if not sweep.claim or not found:
        return None
    verdict: Verdict = "holds"
    if "differs" in found:
        verdict = "does not hold"
    elif "unclear" in found:
        verdict = "unclear"
    said = ", ".join(f"{found.count(kind)} {kind}" for kind in dict.fromkeys(found))
    ours = f"accuracy of {len(found)} other versions: {said}"
    return Claim(sweep.task, f"{sweep.claim[0].upper()}{sweep.claim[1:]}", "", ours, verdict)


def judgement(sweep: Sweep, results: Results) -> str:
    """What became of the claim, as a sentence."""
    if (judged := claim(sweep, results)) is None:
        return ""
    verdict: str = judged.verdict
    if verdict == "unclear":
        found = [line[-1] for line in lines(sweep, results)[1:] if line[-1]]
        unclear = f"{found.count('unclear')} of {len(found)} versions are"
        verdict = f"is unclear at our power ({unclear})"
    return f"In accuracy the claim that {sweep.claim} {verdict}."


def notes(sweep: Sweep, results: Results) -> list[str]:
    """What a reader must know besides the numbers."""
    said = [judged] if (judged := judgement(sweep, results)) else []
    said += floor.sentences(sweep, results)
    said += [" ".join(sources)] if (sources := words.origins(results)) else []
    sized = len(results.train_sizes) > 1
    missing = [row for row in results.rows if not row.done]
    if missing:
        names = (f"{row.train_size:,}: {row.title}" if sized else row.title for row in missing)
        said.append(f"Not trained: {', '.join(names)}.")
    if len({files.dumps(_checksums(record)) for record in results.records()}) > 1:
        said.append(
            "Not all rows were trained on files with the same checksums: where their order "
            "differs too, a seed means other examples, and the intervals are wider."
        )
    if len({record.environment.get("revision") for record in results.records()}) > 1:
        said.append(
            "Not all rows were trained by the same revision of the code, and runs of the same "
            "seed round differently in another pack: some of a difference is that."
        )
    return said


def _checksums(run: Finished) -> object:
    data = run.environment.get("data")
    return data.get("md5") if isinstance(data, dict) else None


def text(swept: Sequence[tuple[Sweep, Results]]) -> str:
    """The tables for a terminal."""
    parts = []
    for sweep, found in swept:
        parts.append(f"{sweep.title}\n\n" + "\n".join(tables.aligned(lines(sweep, found))))
        parts += ["\n".join(said)] if (said := notes(sweep, found)) else []
        if drawn := floor.curves(sweep, found):
            parts.append(f"{floor.CAPTION}\n\n" + "\n".join(tables.aligned(drawn)))
    return "\n\n".join([*parts, _RULE.replace("*", "")])


def markdown(sweep: Sweep, results: Results) -> str:
    """The question, the table and the command as a part of a document."""
    parts = [
        f"### {sweep.title}",
        f"{sweep.why} {results.made_with}",
        tables.marked_down(lines(sweep, results)),
        *notes(sweep, results),
    ]
    if drawn := floor.curves(sweep, results):
        parts += [floor.CAPTION, tables.marked_down(drawn)]
    return "\n\n".join(parts)


def chapter(swept: Sequence[tuple[Sweep, Results]]) -> list[str]:
    """All of them as the chapter of a document; nothing if there are none."""
    if not swept:
        return []
    return [f"## One thing at a time\n\n{_RULE}", *(markdown(*one) for one in swept)]
