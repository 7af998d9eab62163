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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penex.base import Loss
from penex.baselines import (
    ConfidencePenaltyLoss,
    CrossEntropyLoss,
    FocalLoss,
    LabelSmoothingLoss,
)
from penex.conex import AugmentedLagrangianLoss, ExponentialLoss, SquaredPenaltyLoss
from penex.extras import CrossEntropyZLoss, LogPenaltyLoss, UnnormalisedLoss
from penex.loss import PENEX
from penex.rivals import ActivePassive, Brier, EarlyLearning, GeneralisedCrossEntropy


@dataclass(frozen=True)
class Parameter:
    """A number that a loss is tuned by.

    Attributes:
        name: the argument of the loss.
        default: the value without tuning.
        low: the lower edge of the search, the paper's (1e-5 for an alpha that must be above 0); of
            a loss that the paper does not have, ours.
        high: the upper edge of the search, the paper's for images (for text it lets alpha go up
            to 3).
        meaning: what it does, in words.
        log: whether a factor, not a difference, is what matters: it is searched by its logarithm.
    """

    name: str
    default: float
    low: float
    high: float
    meaning: str
    log: bool = False


@dataclass(frozen=True)
class Entry:
    """A loss under its name.

    Attributes:
        name: the name on the command line and on disk.
        title: the name in tables and figures.
        make: the class.
        meaning: the loss in words.
        parameters: what it is tuned by, if anything.
        ours: True for a loss that no paper has, to be marked wherever it appears.
        zero_sum_head: True if the model must end in `penex.conex.ZeroSumHead`.
        introduced: arguments that came after the first records of this loss, each with the value
            that is as if it were not there: runs with that value keep their names on disk.
        colour: of its lines in every figure and page, as #RRGGBB; see `colour` for those without.
            It says nothing of the loss, and is no part of what names a run.
    """

    name: str
    title: str
    make: Callable[..., Loss | CrossEntropyLoss]
    meaning: str
    parameters: tuple[Parameter, ...] = ()
    ours: bool = False
    zero_sum_head: bool = False
    introduced: Mapping[str, float | bool | str | None] = field(default_factory=dict)
    colour: str = ""

    def __post_init__(self) -> None:
        if self.colour and not re.fullmatch("#[0-9A-Fa-f]{6}", self.colour):
            raise ValueError(
                f"The colour of {self.name!r} must be written as #RRGGBB; got {self.colour!r}."
            )

    @property
    def defaults(self) -> dict[str, float]:
        """The default value of each parameter."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    @property
    def accumulates(self) -> bool:
        """Whether the loss must know into how many micro-batches a batch is cut."""
        return "accumulate" in inspect.signature(self.make).parameters


# Safe for colour-blind readers: Okabe and Ito's palette, two greys, then Tol's for the rest.
_ENTRIES = (
    Entry("ce", "CE", CrossEntropyLoss, "cross-entropy, torch's own", colour="#0072B2"),
    Entry(
        "label_smoothing",
        "label smoothing",
        LabelSmoothingLoss,
        "cross-entropy against targets mixed with the uniform distribution",
        (Parameter("epsilon", 0.1, 0.0, 1.0, "the share of the uniform distribution"),),
        colour="#E69F00",
    ),
    Entry(
        "confidence_penalty",
        "confidence penalty",
        ConfidencePenaltyLoss,
        "cross-entropy less a share of the prediction's entropy",
        (Parameter("lambda_", 0.1, 0.0, 10.0, "the weight of the entropy"),),
        colour="#009E73",
    ),
    Entry(
        "focal",
        "focal loss",
        FocalLoss,
        "cross-entropy that fades for examples already right",
        (Parameter("gamma", 2.0, 0.0, 5.0, "how fast an example fades as it gets right"),),
        colour="#CC79A7",
    ),
    Entry(
        "penex",
        "PENEX",
        PENEX,
        "the exponential loss with a penalty on the sum of exponentials",
        (
            Parameter(
                "alpha",
                0.1,
                1e-5,
                1.0,
                "how hard an example that is wrong pulls; between -1 and 0, one that is right",
            ),
        ),
        introduced={"scale": "paper"},
        colour="#D55E00",
    ),
    Entry(
        "ex",
        "EX",
        ExponentialLoss,
        "the exponential loss alone, without a barrier",
        colour="#56B4E9",
    ),
    Entry(
        "conex_penalty",
        "CONEX, squared penalty",
        SquaredPenaltyLoss,
        "the exponential loss with zero-sum logits, by a squared penalty",
        (Parameter("rho", 773.0, 0.0, 1e3, "the weight of the squared penalty"),),
        colour="#8C6D1F",
    ),
    Entry(
        "conex_lagrangian",
        "CONEX, augmented Lagrangian",
        AugmentedLagrangianLoss,
        "the exponential loss with zero-sum logits, by an augmented Lagrangian",
        (
            Parameter("rho", 754.0, 0.0, 1e3, "the weight of the squared penalty"),
            Parameter("nu", 8.8, 1.0, 1e3, "how slowly the dual variable moves"),
        ),
        colour="#F0C419",
    ),
    Entry(
        "conex_hard",
        "CONEX, built in",
        ExponentialLoss,
        "the exponential loss with zero-sum logits, built into the model",
        zero_sum_head=True,
        colour="#000000",
    ),
    Entry(
        "ce_zloss",
        "CE + z-loss",
        CrossEntropyZLoss,
        "cross-entropy with a penalty on the logarithm of its normaliser",
        (Parameter("lambda_", 0.01, 0.0, 1.0, "the weight of the penalty"),),
        ours=True,
        colour="#7F7F7F",
    ),
    Entry(
        "unnormalised",
        "unnormalised likelihood",
        UnnormalisedLoss,
        "PENEX as alpha tends to 0: a likelihood without normaliser",
        ours=True,
        colour="#5B4A9E",
    ),
    Entry(
        "ex_log_penalty",
        "EX + log penalty",
        LogPenaltyLoss,
        "the exponential loss with a penalty on the logarithm of the sum of exponentials",
        (Parameter("alpha", 0.1, 1e-5, 1.0, "how hard an example that is wrong pulls"),),
        ours=True,
        colour="#8A1C1C",
    ),
    Entry(
        "brier",
        "Brier",
        Brier,
        "the squared distance of the probabilities from the label",
        colour="#117733",
    ),
    Entry(
        "gce",
        "GCE",
        GeneralisedCrossEntropy,
        "between cross-entropy and the mean absolute error",
        (Parameter("q", 0.7, 0.05, 0.95, "how far it is from cross-entropy"),),
        colour="#44AA99",
    ),
    Entry(
        "nce_rce",
        "NCE + RCE",
        ActivePassive,
        "cross-entropy over that of all classes, and the absolute error",
        (  # b stays 1: it is the ratio that matters, 1 and 100 in the published values
            Parameter("a", 1.0, 0.1, 100.0, "the weight of the normalised cross-entropy", log=True),
        ),
        colour="#CC6677",
    ),
    Entry(
        "elr",
        "ELR",
        EarlyLearning,
        "cross-entropy held to what the model said of each example before",
        (
            Parameter("lambda_", 3.0, 0.0, 10.0, "the weight of the penalty"),
            Parameter("beta", 0.7, 0.0, 0.99, "how slowly the memory moves"),
        ),
        colour="#882255",
    ),
)

LOSSES: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}

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
