"""A comparison as it lies on disk, ready for tables and figures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from penex import registry
from penex.lab.ground import files
from penex.lab.ground.errors import RecordError
from penex.lab.ground.sentences import count, visible
from penex.lab.records import LISTING, Json, Record, archived, home_of
from penex.lab.records.reading import FORMAT
from penex.lab.records.scores import scores_of
from penex.lab.records.sealing import is_as_sealed
from penex.lab.records.views import VIEWS, View
from penex.metrics import METRICS, VOTED, Metric
from penex.report import sampling
from penex.report.finished import Finished, read
from penex.report.plain import publishable
from penex.report.sampling import Scored


@dataclass
class Row:
    """A loss at a training size: its runs, by seed.

    Attributes:
        label: the loss as on the command line, unique within a comparison.
        title: the loss as tables name it.
        loss: its name in the registry.
        train_size: the number of training examples.
        records: every run that is done, read once.
        done: their done.json.
        missing: seeds whose run is not done.
        damaged: why a run that is done is not shown, by its seed.
        kept: scores of test examples that were read already, by seed; None if there are none.
    """

    label: str
    title: str
    loss: str
    train_size: int
    records: dict[int, Finished] = field(default_factory=dict)
    done: dict[int, Json] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    damaged: dict[int, str] = field(default_factory=dict)
    kept: dict[int, Scored | None] = field(default_factory=dict, repr=False)

    @property
    def total(self) -> int:
        """How many runs were asked for."""
        return len(self.done) + len(self.missing) + len(self.damaged)

    @property
    def diverged(self) -> list[int]:
        """The seeds whose run diverged."""
        return [seed for seed, done in self.done.items() if done["status"] == "diverged"]

    def values(self, metric: str, part: str = "test") -> dict[int, float]:
        """A metric of each completed run, by seed, where it has one that is finite.

        See `broken`: a mean of what is left would flatter.
        """
        found = {seed: values.get(metric) for seed, values in self._completed(part)}
        return {seed: value for seed, value in found.items() if value is not None}

    def broken(self, metric: str) -> bool:
        """Whether a completed run's metric is not finite."""
        return any(values.get(metric, 0.0) is None for _, values in self._completed("test"))

    def spreads(self, metric: str) -> dict[int, float]:
        """The bootstrap spread of a metric on each run's test set, by seed."""
        return self.values(metric, "test_spread")

    @property
    def scored(self) -> dict[int, Scored]:
        """The scores of the test examples, by seed, of the completed runs that have them."""
        for seed, run in self.records.items():
            if seed not in self.kept:
                self.kept[seed] = sampling.scored(run)
        done = {seed: self.kept.get(seed) for seed, _ in self._completed("test")}
        return {seed: scores for seed, scores in done.items() if scores is not None}

    def _completed(self, part: str) -> Iterator[tuple[int, Json]]:
        for seed, done in self.done.items():
            if done["status"] == "completed":
                yield seed, done[part]

    def argument(self, name: str) -> float | bool | str | None:
        """An argument of the loss, as it was resolved; None if it has none such."""
        for run in self.records.values():
            value: float | bool | str | None = run.config["loss"]["arguments"].get(name)
            return value
        return None

    @property
    def classes(self) -> int | None:
        """How many classes there are; None if the records do not say."""
        known = (done.get("classes") for done in self.done.values())
        found: int | None = next((number for number in known if number), None)
        if found is None:  # an older record: its targets are of every class, unless they are few
            for run in self.records.values():
                scores = _scores(run)
                return None if scores is None else int(scores["target"].max()) + 1
        return found


def _scores(run: Finished) -> dict[str, Any] | None:
    try:
        return scores_of(run.record)
    except RecordError:
        return None


@dataclass(frozen=True, eq=False)  # a comparison is itself, so what is drawn of it can be kept
class Results:
    """A comparison.

    Attributes:
        folder: where it lies.
        task: the name of the task.
        command: how it was asked for.
        rows: a loss at a training size each, in the order in which they were asked for.
        sources: where the value of a loss came from, in words, by its label; if it was looked up.
        view: how the runs are judged.
        beside: the rows of all comparisons that are shown together, if there are several.
    """

    folder: Path
    task: str
    command: str
    rows: list[Row]
    sources: dict[str, str] = field(default_factory=dict)
    view: View = field(default_factory=View)
    beside: Sequence[Row] = ()

    @property
    def train_sizes(self) -> list[int]:
        """The training sizes, from small to large."""
        return sorted({row.train_size for row in self.rows})

    @property
    def seeds(self) -> int:
        """How many seeds there are."""
        return max(row.total for row in self.rows)

    @property
    def seeds_in_words(self) -> str:
        """How many seeds there are, and which losses lack more.

        >>> rows = [Row("ce", "CE", "ce", 8, done={0: {}, 1: {}}), Row("ex", "EX", "ex", 8)]
        >>> Results(Path(), "digits", "", rows[:1]).seeds_in_words
        '2 seeds'
        >>> rows[0].missing.append(2), rows[1].missing.extend([0, 1, 2])
        (None, None)
        >>> Results(Path(), "digits", "", rows).seeds_in_words
        '2 of 3 seeds (none of EX)'
        """
        most = max(len(row.done) for row in self.rows)
        lacking = [row for row in self.rows if len(row.done) < min(most, row.total)]
        words = [
            f"{len(row.done) or 'none'} of {row.title}"
            + (f" at {row.train_size:,}" if len(self.train_sizes) > 1 else "")
            for row in lacking
        ]
        of = "" if most == self.seeds else f"{most} of "
        return of + count(self.seeds, "seed") + (f" ({', '.join(words)})" if words else "")

    @property
    def machine(self) -> str:
        """The machine, its versions and the time of a run."""
        facts = next((run.environment for run in self.records()), {})
        times = [done.get("wall_time") or 0.0 for row in self.rows for done in row.done.values()]
        seconds = sum(times) / max(len(times), 1)
        return (
            f"{facts.get('device', 'an unknown device')}, torch {facts.get('torch', '?')}, Python "
            f"{facts.get('python', '?')}; {seconds:.0f} s a run"
        )

    @property
    def made_with(self) -> str:
        """The machine, the time of a run and the command, as sentences."""
        return f"{self.machine}. The command: `{self.command}`."

    def at(self, train_size: int) -> list[Row]:
        """The rows of a training size."""
        return [row for row in self.rows if row.train_size == train_size]

    def variant(self, row: Row) -> int:
        """Which of its loss's variants a row is, the same in every figure: 0 is the first."""
        alike = dict.fromkeys(r.label for r in self.beside or self.rows if r.loss == row.loss)
        return list(alike).index(row.label)

    @property
    def metrics(self) -> list[Metric]:
        """What there is of the test sets: people's votes only where a run was held to them."""
        held = {
            name for row in self.rows for one in row.done.values() for name in one.get("test", {})
        }
        return [*METRICS.values(), *(metric for name, metric in VOTED.items() if name in held)]

    @property
    def damaged(self) -> list[str]:
        """A sentence for each run that is not shown."""
        return [text for row in self.rows for text in row.damaged.values()]

    def records(self) -> Iterator[Finished]:
        """Every run that is done."""
        for row in self.rows:
            yield from row.records.values()


def load(folder: Path, listing: Json | None = None, view: View | None = None) -> Results:
    """The comparison in a task's folder, or a RecordError that says why it cannot be read.

    Args:
        folder: of the task.
        listing: its runs; read from the folder unless given.
        view: how to judge them; as the comparison was asked for, unless given.
    """
    path = folder / LISTING
    try:
        if listing is None:
            listing = files.loads(archived.read(path))
    except FileNotFoundError as error:
        raise RecordError(f"There is no comparison in {folder}: {path} is missing.") from error
    except (ValueError, OSError) as error:
        raise RecordError(f"{path} is damaged: {error}. Nothing was changed.") from error
    found = listing.get("format") if isinstance(listing, dict) else None
    if found is not None and found != FORMAT:
        raise RecordError(
            f"{path} was written by another version of penex (record format "
            f"{found!r}; this one has {FORMAT}). It is left as it is."
        )
    if not isinstance(listing, dict) or not _is_listing(listing):
        raise RecordError(f"{path} is damaged: it is no list of runs. Nothing was changed.")
    if not is_as_sealed(listing):
        raise RecordError(
            f"{path} is damaged: it was changed after the comparison. Nothing was changed."
        )
    view = view or View(**listing.get("judged", {}))
    rows = _rows(home_of(folder), listing["runs"], view)
    sources = {key: visible(text) for key, text in listing.get("sources", {}).items()}
    command = publishable(listing["command"])
    return Results(folder, visible(listing["task"]), command, rows, sources, view)


def _is_listing(listing: Json) -> bool:
    sources, runs = listing.get("sources", {}), listing.get("runs")
    return (
        listing.get("format") == FORMAT
        and all(isinstance(listing.get(key), str) for key in ("task", "command"))
        and isinstance(sources, dict)
        and all(isinstance(text, str) for text in sources.values())
        and listing.get("judged", {}) in [one.identity for one in VIEWS]
        and isinstance(runs, list)
        and len(runs) > 0
        and all(map(_is_listed, runs))
    )


def _is_listed(run: Any) -> bool:
    """Whether an entry names a run, and one below the folder."""
    if not isinstance(run, dict):
        return False
    words = [run.get(key) for key in ("loss", "label", "folder")]
    numbers = [run.get(key) for key in ("train_size", "seed")]
    if not all(isinstance(w, str) for w in words) or not all(type(n) is int for n in numbers):
        return False
    place = PurePosixPath(run["folder"])
    return (
        0 < run["train_size"] < 2**63
        and "\0" not in run["folder"]
        and not place.is_absolute()
        and ".." not in place.parts
    )


def _rows(folder: Path, listed: list[Json], view: View) -> list[Row]:
    rows: dict[tuple[str, int], Row] = {}
    for run in listed:
        key = (run["label"], run["train_size"])
        if key not in rows:
            title = visible(registry.title_of(run["label"]))
            rows[key] = Row(run["label"], title, run["loss"], run["train_size"])
        row, seed, record = rows[key], run["seed"], Record(folder / run["folder"])
        if not record.is_done:
            row.missing.append(seed)
            continue
        try:
            row.records[seed] = read(record)
            row.done[seed] = view.of(row.records[seed].done)
            if view != View():
                row.kept[seed] = None  # the scores are of the last epoch, at the loss's temperature
        except RecordError as error:  # from here on, as a page may say it
            row.damaged[seed] = visible(str(error).replace(f"{folder}/", ""))
    return list(rows.values())
