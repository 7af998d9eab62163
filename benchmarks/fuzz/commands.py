"""The command line in this process: what it said, and that it behaved."""

import contextlib
import io
import os
import re
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from benchmarks.fuzz.campaign import Finding
from penex import cli
from penex.report import figures

_UNFINISHED = re.compile(r".*\.tmp|\.unfinished-.*")
_MOST_OPEN = 64  # the data of the last command stay open; more and more files do not
_TIME = re.compile(r"\b[\d.]+ (s|seconds?)\b")


class Said(NamedTuple):
    """What a command left on the streams, and its exit code."""

    code: int
    out: str
    err: str


def timeless(text: str) -> str:
    """A text without how long something took."""
    return _TIME.sub("", text)


def penex(*words: object) -> Said:
    """Call a command; a `Finding` if it raises, warns, or refuses in more than one sentence."""
    texts = [str(word) for word in words]
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with _captured(out, err) as warned:
        try:
            cli.main(texts)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise Finding("traceback", f"{texts}\n{traceback.format_exc()}") from None
    said = Said(code, out.getvalue(), err.getvalue())
    if warned:
        raise Finding("traceback", f"{texts} warns: {warned[0].message}")
    if code not in (0, 2):
        raise Finding("no sentence", f"{texts} ended with {code}: {said.err}")
    if code == 2:
        last = said.err.rstrip("\n").rpartition("\n")[2]
        if not re.fullmatch(r"penex: \S.*", last):
            raise Finding("no sentence", f"{texts} said {said.err!r}")
    if (descriptors := _descriptors()) > _MOST_OPEN:
        raise Finding("left behind", f"after {texts} {descriptors} files are open")
    return said


def without_pictures() -> "contextlib.AbstractContextManager[object]":
    """Draw none: a picture takes seconds, and shows no number that the tables do not."""
    return mock.patch.object(figures, "write_all", return_value=[])


@contextlib.contextmanager
def _captured(out: io.StringIO, err: io.StringIO) -> Iterator[list[warnings.WarningMessage]]:
    with (
        without_pictures(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)
        yield warned


def _descriptors() -> int:
    """How many files this process has open; 0 where the system does not say."""
    place = "/proc/self/fd"
    return len(os.listdir(place)) if os.path.isdir(place) else 0


def check_tidy(folder: Path) -> None:
    """A `Finding` if something unfinished lies below a folder."""
    for path in folder.rglob("*"):
        if _UNFINISHED.fullmatch(path.name):
            raise Finding("left behind", str(path.relative_to(folder)))
