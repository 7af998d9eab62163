"""Texts that may be printed, published and opened elsewhere, whatever the names in them."""

import re
import shlex
from pathlib import Path, PureWindowsPath

from penex.lab.ground.sentences import visible

_FORMULA = ("=", "+", "-", "@")


def csv_text(text: str) -> str:
    """A name for a CSV file, which no spreadsheet takes for a formula.

    >>> csv_text("=1+1"), csv_text("penex")
    ("'=1+1", 'penex')
    """
    shown = visible(text)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown


def publishable(command: str) -> str:
    """A command without what it tells of the machine: folders, users, hosts of databases.

    >>> publishable("penex compare --data /home/me/photos/ --out=/tmp/x --storage postgresql://h/x")
    'penex compare --data photos/ --out=x --storage postgresql://...'
    """
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that is not closed: it was not typed like this
        words = command.split()
    return visible(shlex.join(_option(word) for word in words))


def _option(word: str) -> str:
    name, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    return name + equals + place(value)


def place(text: str) -> str:
    """A path below the working folder as seen from there, any other one by its last part.

    >>> place("/home/me/net.py:Net"), place(str(Path.cwd() / "data/x")), place("penex:alpha=0.1")
    ('net.py:Net', 'data/x', 'penex:alpha=0.1')
    """
    if address := re.match(r"(?!https?:)[\w+]+://", text):
        return f"{address[0]}..."
    path = PureWindowsPath(text) if re.match(r"[A-Za-z]:\\|\\\\", text) else Path(text)
    hidden = path.is_absolute() or ".." in path.parts or text.startswith("~")
    if not hidden:
        return text
    below = isinstance(path, Path) and path.is_relative_to(Path.cwd())
    shown = str(path.relative_to(Path.cwd())) if below else path.name
    return shown + "/" * text.endswith("/")


def placeless(text: str) -> str:
    """A sentence whose absolute paths are their last parts.

    >>> placeless("3 files were left out, as /home/me/photos/a.txt.")
    '3 files were left out, as a.txt.'
    """
    return visible(re.sub(r"(?<![\w.:/~])~?/(?:[^\s/'\"]+/)+", "", text))
