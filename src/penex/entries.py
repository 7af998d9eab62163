"""The losses in a table: names, parameters, colours. `penex.registry` is what looks them up."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
ENTRIES = (
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
        "penex_negative",
        "PENEX, alpha < 0",
        PENEX,
        "PENEX with the other sign of alpha: what looks wrong pulls least",
        (Parameter("alpha", -0.3, -0.7, -0.05, "below 0: the lower, the less an outlier pulls"),),
        ours=True,
        colour="#999933",
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
