"""Commands that are killed, stopped or interrupted at any moment, and then given again.

In the end all is as if nothing had happened: the same files, byte for byte but for times, and
nothing besides. A command that is told to stop ends without a traceback.
"""

import json
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from benchmarks.fuzz.campaign import Ending, Finding
from benchmarks.fuzz.children import STOPPED, Child
from benchmarks.fuzz.commands import check_tidy, timeless
from benchmarks.fuzz.records import LABEL, write_table

_RECIPE = ("--label-column", LABEL, "--epochs", 3, "--batch-size", 16, "--save-seconds", 0)
_PATIENCE = 120.0  # seconds after which a command is said to hang
_IMPORTS = 4.0  # seconds until a new Python begins to work
_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_NO_RESULT = (".png", ".svg", ".lock", ".busy")
_TIMES = ("wall_time", "peak_memory", "seal")  # the seal is of the times, too


class Kills:
    """Comparisons, studies and predictions, each known as it is undisturbed."""

    def __init__(self, folder: Path) -> None:
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
            # A background job ignores Ctrl-C, and so would all that it starts.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._out, self._log = folder / "out", folder / "said.txt"
        data, many, runs = folder / "flowers.csv", folder / "many.csv", folder / "runs"
        write_table(data)
        many.write_text(data.read_text() + data.read_text().partition("\n")[2] * 60)
        self._commands: dict[str, list[object]] = {
            "compare": [
                "compare", "--data", data, *_RECIPE, "--losses", "ce", "penex", "ex:alpha=900",
                "--seeds", 2, "--out", self._out,
            ],
            "tune": [
                "tune", "--data", data, *_RECIPE, "--loss", "penex", "focal", "--trials", 5,
                "--batch", 3, "--out", self._out,
            ],
            "predict": ["predict", runs, many, "--to", self._out / "predictions.csv"],
        }  # fmt: skip
        self._whole: dict[str, dict[str, Any]] = {}
        self._seconds: dict[str, float] = {}
        for name in self._commands:
            self._clear()
            began = time.monotonic()
            self._finish(name)
            self._seconds[name] = time.monotonic() - began
            self._whole[name] = content(self._out)
            if name == "compare":
                shutil.copytree(self._out / data.stem, runs)

    def case(self, chance: random.Random) -> Ending:
        """Disturb a command some times, then let it end."""
        name = chance.choice(sorted(self._commands))
        forked = chance.random() < 0.9
        self._clear()
        story: list[str] = []
        try:
            for _ in range(chance.randint(1, 3)):
                story.append(self._disturb(name, chance, forked))
            self._finish(name)
            check_tidy(self._out)
            now = content(self._out)
            if now != self._whole[name]:
                raise Finding("silent difference", _differing(now, self._whole[name]))
        except Finding as found:
            how = "forked" if forked else "started"
            raise Finding(found.fault, f"{name}, {how}, {story}: {found}") from None
        return "harmless"

    def _disturb(self, name: str, chance: random.Random, forked: bool) -> str:
        """Send a signal to a command at some moment; what was sent, and when."""
        number = chance.choice(_SIGNALS)
        moment = chance.uniform(0, self._seconds[name] + (0.0 if forked else _IMPORTS))
        again = chance.uniform(0, 0.05) if chance.random() < 0.2 else None
        child = self._child(name, forked)
        child.wait(moment)
        child.send(number)
        if again is not None:
            child.wait(again)
            child.send(number)
        code = child.end(_PATIENCE)
        said = self._log.read_text()
        what = f"{number.name}{' twice' * (again is not None)} after {moment:.2f} s: {code}"
        legal = (0, -number) if number == signal.SIGKILL else (0, -number, STOPPED)
        if "Traceback" in said or code not in legal:
            raise Finding("traceback", f"{what}, {said}")
        return what

    def _finish(self, name: str) -> None:
        code = self._child(name, forked=True).end(_PATIENCE)
        if code != 0:
            raise Finding("traceback", f"it ended with {code}: {self._log.read_text()}")

    def _child(self, name: str, forked: bool) -> Child:
        return Child([str(word) for word in self._commands[name]], self._log, forked=forked)

    def _clear(self) -> None:
        shutil.rmtree(self._out, ignore_errors=True)
        self._out.mkdir()


def content(folder: Path) -> dict[str, Any]:
    """Every file below a folder that holds a result, without times."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or path.name == ".lock" or path.suffix in _NO_RESULT:
            continue
        if path.name == "done.json":
            done = json.loads(path.read_bytes())
            found[name] = {key: value for key, value in done.items() if key not in _TIMES}
        elif path.suffix in (".html", ".md", ".tex"):
            found[name] = timeless(path.read_text())
        elif path.suffix == ".journal":
            found[name] = "compared by the records and the page"
        else:
            found[name] = path.read_bytes()
    return found


def _differing(now: dict[str, Any], then: dict[str, Any]) -> str:
    """In which files two folders differ."""
    lost, more = sorted(then.keys() - now.keys()), sorted(now.keys() - then.keys())
    other = [name for name in sorted(now.keys() & then.keys()) if now[name] != then[name]]
    return f"missing {lost}, besides {more}, different {other}"
