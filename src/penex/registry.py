"""Every loss by its name, with its parameters: the one place that commands, tuning and tables read.

The names are those of the command line and of the records on disk. A loss of one's own is
``module:Class``, or ``module:ENTRY`` for one with parameters to tune; `register` gives it a name.
"""

import difflib
import importlib
import inspect
import os
import re
import sys
import zlib
from dataclasses import replace
from typing import Any

from penex.base import Loss
from penex.baselines import CrossEntropyLoss
from penex.entries import ENTRIES
from penex.entries import Entry as Entry
from penex.entries import Parameter as Parameter

LOSSES: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}

FIVE = ("ce", "label_smoothing", "confidence_penalty", "focal", "penex")  # the paper's table
BASELINE, SUBJECT = "ce", "penex"  # whose difference every comparison is asked for

# For losses without a colour of their own: readable on white and on black, and not taken above.
_SPARE = ("#6A8D1A", "#9A6FD0", "#C77B3B", "#5F7F9F", "#C0398F", "#708FD0")


def register(entry: Entry) -> Entry:
    """Give a loss a name, for the commands and everything else that reads the registry."""
    if entry.name in LOSSES and LOSSES[entry.name] != entry:
        raise ValueError(f"There is a loss {entry.name!r} already.")
    LOSSES[entry.name] = entry
    return entry


def find(name: str) -> Entry:
    """The entry of a loss, or a ValueError that suggests the nearest name.

    >>> find("penex").parameters[0].default
    0.1
    """
    if name in LOSSES:
        return LOSSES[name]
    if ":" in str(name):
        return _own(name)
    near = difflib.get_close_matches(str(name), LOSSES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"There is no loss {name!r}.{hint} The losses are {', '.join(LOSSES)}, or module:Class."
    )


def _own(name: str) -> Entry:
    """The entry of a user's loss, module:Class or module:ENTRY."""
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # python -m has it, a console script has not
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        raise ValueError(
            f"The loss {name!r} cannot be imported: {error!r}. Write module:Class, where Class is "
            "a penex.base.Loss."
        ) from error
    if isinstance(found, Entry):
        return replace(found, name=name, ours=True)
    if not (isinstance(found, type) and issubclass(found, Loss)):
        raise ValueError(f"{name} is no class of losses: it must be a subclass of penex.base.Loss.")
    meaning = (inspect.getdoc(found) or found.__name__).splitlines()[0]
    return Entry(name, title(name), found, meaning, ours=True)


def title(name: str) -> str:
    """The name of a loss in tables and figures, though its module be elsewhere.

    >>> title("penex"), title("my_losses:MyLoss")
    ('PENEX', 'MyLoss')
    """
    return LOSSES[name].title if name in LOSSES else name.rpartition(":")[2]


def title_of(label: str) -> str:
    """A loss of a comparison in tables and figures, with what was given for it.

    >>> title_of("ce@lr=0.001"), title_of("penex:alpha=0.1@lr=0.001"), title_of("mine:Loss:a=1")
    ('CE (lr=0.001)', 'PENEX (alpha=0.1, lr=0.001)', 'Loss (a=1)')
    """
    loss, _, own = label.partition("@")
    name, _, given = loss.partition(":")
    if name not in LOSSES:
        attribute, _, given = given.partition(":")
        name = f"{name}:{attribute}" if attribute else name
    said = ", ".join(filter(None, (*given.split(","), *own.split(","))))
    return f"{title(name)} ({said})" if said else title(name)


def colour(label: str) -> str:
    """The colour of a loss in every figure and page: its own, or one that its name decides.

    Args:
        label: its name, or that with what was given for it.

    >>> colour("penex"), colour("penex:rho=1e-06@lr=0.1"), colour("my:Loss") == colour("my:Loss")
    ('#D55E00', '#D55E00', True)
    """
    name = re.split("[:@]", label, maxsplit=1)[0]
    own = LOSSES[name].colour if name in LOSSES else ""
    return own or _SPARE[zlib.crc32(label.encode()) % len(_SPARE)]


def make(name: str, **arguments: Any) -> Loss | CrossEntropyLoss:
    """A loss by its name: its defaults, unless an argument says otherwise.

    >>> make("focal", gamma=3.0)
    FocalLoss(gamma=3, detach=0)
    """
    entry = find(name)
    return entry.make(**{**entry.defaults, **arguments})
