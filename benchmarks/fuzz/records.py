"""Damaged records and journals through every command that reads them.

A file that was changed is refused in one sentence, or shown as damaged beside the rest, or makes no
difference: no command ever shows another number than before without a word.
"""

import contextlib
import csv
import random
import re
import shutil
import zipfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.fuzz.campaign import Ending, Finding
from benchmarks.fuzz.commands import Said, check_tidy, penex, timeless
from benchmarks.fuzz.mutations import damage
from penex.lab.ground.errors import Interrupted
from penex.lab.records import archived
from penex.lab.records.scores import pack
from penex.lab.tasks.own import own
from penex.lab.training import Hooks, Place, compare

_TASK, LABEL = "flowers", "species"
_LOSSES = ("ce", "penex", "ex:alpha=900")  # the last diverges
_RECIPE = {"epochs": 3, "batch_size": 16}
# A difference that is said.
_WORDS = ("damaged", "missing", "not done", "skipped", "whose model is there")


class Shown(NamedTuple):
    """What a command shows: on the terminal, on its page, of every run, and how many trials."""

    out: str
    page: str
    rows: dict[tuple[str, ...], tuple[str, ...]]
    trials: tuple[tuple[str, str], ...]


class Records:
    """A comparison and studies, finished, stopped or in an archive, to be damaged in a copy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._table = folder / f"{_TASK}.csv"
        write_table(self._table)
        self._data = ("--data", self._table, "--label-column", LABEL)
        self._whole, self._stopped, self._packed, self._copy = (
            folder / name for name in ("whole", "stopped", "packed", "copy")
        )
        self._stop(self._stopped)
        penex(*self._compare(self._copy))
        penex(*self._tune(self._copy))
        shutil.copytree(self._copy, self._whole)
        self._packed.mkdir()
        shutil.move(pack(self._copy / _TASK), self._packed)
        origins = {
            **dict.fromkeys(("report", "predict", "compare", "tune", "tuned"), self._whole),
            **dict.fromkeys(("archive", "tune archive"), self._packed),
            "resume": self._stopped,
        }
        self._origins = origins
        self._expected: dict[str, Shown] = {}
        for name, origin in origins.items():
            self._use(origin)
            said = self._read(name)
            assert said.code == 0, said.err
            self._expected[name] = self._shown(name, said)
        resumed, whole = (
            one._replace(page=one.page.partition('<section id="home"')[0])  # what else lies there
            for one in (self._expected["resume"], self._expected["compare"])
        )
        assert resumed == whole

    def case(self, chance: random.Random) -> Ending:
        """Damage a file of a copy, then read the copy."""
        reader = chance.choice([*sorted(self._expected), "resume", "resume"])
        self._use(self._origins[reader])
        within = "archive" in reader and chance.random() < 0.6
        if within:
            _unpack(self._copy)
        files = sorted(p for p in self._copy.rglob("*") if p.is_file() and self._is_read(p))
        if reader in ("tune", "tuned") and chance.random() < 0.8:
            files = [p for p in files if p.suffix == ".journal"]
        name = chance.choice(sorted({path.name for path in files}))
        path = chance.choice([p for p in files if p.name == name])
        what = damage(path, chance)
        if len(files) > 1 and chance.random() < 0.1:
            what += f"; {damage(chance.choice([p for p in files if p != path]), chance)}"
        if within:
            _pack_again(self._copy)
        try:
            said = self._read(reader)
            check_tidy(self._copy)
            return "refused" if said.code == 2 else self._judge(reader, said)
        except Finding as found:
            raise Finding(found.fault, f"{reader}, {what}: {found}") from None

    def _judge(self, reader: str, said: Said) -> Ending:
        """Whether all that is shown is as before, or differs with a word."""
        now, then = self._shown(reader, said), self._expected[reader]
        for key, value in now.rows.items():
            if then.rows.get(key) != value and reader != "tuned":
                was = then.rows.get(key)
                raise Finding("silent difference", f"{key} is {value}, was {was}")
        if now == then:
            return "harmless"
        if now.trials != then.trials:  # an earlier state of the journal
            return "told"
        text, before = said.out + said.err + now.page, then.out + then.page
        if not any(text.count(word) > before.count(word) for word in _WORDS):
            one, other = (now.out, then.out) if now.out != then.out else (now.page, then.page)
            raise Finding("silent difference", _differing(one, other))
        return "told"

    def _shown(self, reader: str, said: Said) -> Shown:
        """All numbers that a command showed."""
        page, rows = "", {}
        if reader != "predict":
            name = "tuning.html" if reader in ("tune", "tune archive") else "page.html"
            page = timeless(next(self._copy.rglob(name)).read_text())
            # A damaged list is another comparison, which the page names.
            page = re.sub(r"<h3>Also on this task</h3>.*?(?=</section>)", "", page, flags=re.DOTALL)
            page = re.sub(r"\s+</section>", "</section>", page)
        if reader in ("report", "compare", "resume", "tuned", "archive"):
            with next(self._copy.rglob("comparison.csv")).open(newline="") as file:
                lines = list(csv.reader(file))
            rows = {(*line[:4], *line[5:7]): (line[4], *line[7:]) for line in lines[1:]}
        trials = tuple(re.findall(r"(\d+) of \d+ trials|best of (\d+) trial", said.err))
        return Shown(timeless(said.out), page, rows, trials)

    def _read(self, name: str) -> Said:
        with contextlib.chdir(self._copy):  # what is read in an archive has its page there
            return self._command(name)

    def _command(self, name: str) -> Said:
        task = self._copy / _TASK
        if name == "report":
            return penex("report", task)
        if name == "predict":
            return penex("predict", task, self._table)
        if name == "archive":
            return penex("report", f"{task}.zip")
        if name in ("compare", "resume"):
            return penex(*self._compare(self._copy))
        if name in ("tune", "tune archive"):
            return penex(*self._tune(self._copy))
        return penex(*self._compare(self._copy), "--tuned")

    def _use(self, origin: Path) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(origin, self._copy)

    def _is_read(self, path: Path) -> bool:
        """Whether a file is an input of a command, and not what one made of it."""
        made = (".html", ".md", ".tex", ".csv", ".png", ".svg", ".busy", ".lock")
        return path.suffix not in made and path.name != ".lock"

    def _compare(self, out: Path) -> list[object]:
        return [
            "compare", *self._data, "--losses", *_LOSSES, "--seeds", 2, "--pack", 4,
            "--epochs", _RECIPE["epochs"], "--batch-size", _RECIPE["batch_size"], "--out", out,
        ]  # fmt: skip

    def _tune(self, out: Path) -> list[object]:
        return [
            "tune", *self._data, "--loss", "penex", "focal", "--trials", 3,
            "--batch", 2, "--epochs", 1, "--out", out,
        ]  # fmt: skip

    def _stop(self, out: Path) -> None:
        """The same comparison, stopped in its second epoch."""
        steps = iter(range(4))
        hooks = Hooks(stop=lambda: next(steps, None) is None)
        task, _ = own(self._table, label_column=LABEL)
        what = compare.Comparison(task, _LOSSES, 2, (), dict(_RECIPE))
        try:
            compare.compare(what, Place(out, hooks=hooks), pack=4)
        except Interrupted:
            return
        raise AssertionError("The comparison was not stopped.")


def _unpack(folder: Path) -> None:
    """The files of the archive in a folder, in its place."""
    archive = folder / f"{_TASK}.zip"
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder / _TASK)
    archive.unlink()


def _pack_again(folder: Path) -> None:
    """An archive of what is in a folder, in its place; what is no file cannot be in one."""
    task = folder / _TASK
    found = {
        str(path.relative_to(task)): path.read_bytes()
        for path in sorted(task.rglob("*"))
        if path.is_file()
    }
    archived.pack(found, task)
    shutil.rmtree(task)


def write_table(path: Path) -> None:
    """Measurements of three kinds of flowers."""
    chance = random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["length", "width", LABEL])
        for k in range(60):
            place = [k % 3 + chance.gauss(0, 0.5), k % 3 - chance.gauss(0, 0.5)]
            writer.writerow([*(f"{x:.4f}" for x in place), "abc"[k % 3]])


def _differing(now: str, then: str) -> str:
    """The first line in which two texts differ."""
    for one, other in zip(now.splitlines(), then.splitlines(), strict=False):
        if one != other:
            return f"{one!r}, was {other!r}"
    return f"{len(now)} characters, were {len(then)}"
