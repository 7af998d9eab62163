"""The command as the user gave it: what records and pages repeat."""

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

from penex.lab.ground.processes import launched
from penex.lab.ground.sentences import without_password

_words: ContextVar[Sequence[str]] = ContextVar("words after penex", default=())


@contextlib.contextmanager
def words(after_penex: Sequence[str]) -> Iterator[None]:
    """While a command is carried out, these are the words that gave it."""
    token = _words.set(after_penex)
    try:
        yield
    finally:
        _words.reset(token)


def command_line() -> str:
    """The command, without passwords."""
    start = ["penex"]
    if launched() and "LOCAL_WORLD_SIZE" in os.environ:
        start = ["torchrun", "--nproc-per-node", os.environ["LOCAL_WORLD_SIZE"], "-m", "penex"]
    words = [without_password(word) for word in _words.get()]
    for k, word in enumerate(words):
        if k and words[k - 1] == "--storage" and "://" not in word:
            words[k] = "***"  # no URL, but it may hold a password all the same
    return shlex.join([*start, *words])
