"""Errors that are sentences for the user: the command line prints them and exits with code 2."""

import contextlib
import difflib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from penex.lab.ground.processes import launched
from penex.lab.ground.sentences import visible, without_password

_INTERRUPTED = 130


class LabError(Exception):
    """Something the user can put right: what was wrong, the value seen, what would be right."""


class RecordError(LabError):
    """A run on disk that this version cannot use; it is left as it is."""


class Interrupted(Exception):  # noqa: N818  (it is no error: the user asked for it)
    """The user stopped a run; it is saved and can be resumed."""


def unknown(kind: str, name: str, known: Iterable[str], kinds: str | None = None) -> LabError:
    """The error for a name that is not known, with the nearest one that is.

    Args:
        kind: of what.
        name: as it was given.
        known: the names there are.
        kinds: several of that kind, where an s is not enough.

    >>> print(unknown("task", "digit", ["digits"]))
    There is no task 'digit'. Did you mean 'digits'? The tasks are digits.
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return LabError(
        f"There is no {kind} {name!r}.{hint} The {kinds or f'{kind}s'} are {', '.join(names)}."
    )


def writes() -> bool:
    """Whether this process is the one that prints and writes: torchrun starts several."""
    return not launched() or os.environ["RANK"] == "0"


@contextlib.contextmanager
def told(command: Callable[[], str], words: Sequence[str] = ()) -> Iterator[None]:
    """End a command that cannot go on with a sentence and an exit code.

    Args:
        command: () -> the command, as the user gave it.
        words: what the user gave; a password among it is hidden.
    """

    def shown(text: object) -> str:
        return visible(without_password(str(text), words))

    try:
        yield
    except LabError as error:
        _end(2, f"penex: {shown(error)}")
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        what = error.strerror or error
        _end(2, f"penex: Cannot read or write{shown(where)}: {what}. What is there is kept.")
    except Interrupted:
        _end(_INTERRUPTED, f"Stopped. To go on: {command()}")
    except KeyboardInterrupt:
        _end(_INTERRUPTED, f"\nStopped. To go on: {command()}")


def _end(code: int, sentence: str) -> NoReturn:
    if writes():
        print(sentence, file=sys.stderr)
    sys.exit(code)
