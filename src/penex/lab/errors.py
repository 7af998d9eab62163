"""Errors that are sentences for the user: the command line prints them and exits with code 2."""

import difflib
from collections.abc import Iterable


class LabError(Exception):
    """Something the user can put right: what was wrong, the value seen, what would be right."""


class RecordError(LabError):
    """A run on disk that this version cannot use; it is left as it is."""


class Interrupted(Exception):  # noqa: N818  (it is no error: the user asked for it)
    """The user stopped a run; it is saved and can be resumed."""


def unknown(kind: str, name: str, known: Iterable[str]) -> LabError:
    """The error for a name that is not known, with the nearest one that is.

    >>> print(unknown("task", "digit", ["digits"]))
    There is no task 'digit'. Did you mean 'digits'? The tasks are digits.
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return LabError(f"There is no {kind} {name!r}.{hint} The {kind}s are {', '.join(names)}.")
