"""Which loss to try first on data with so many wrong labels: a rule of thumb."""

import shlex
from typing import NamedTuple

import torch

from penex.lab.records.folds import HeldOut
from penex.report.suspects import estimate


class Rule(NamedTuple):
    """What to try.

    Attributes:
        below: the share of wrong labels up to which it is meant.
        losses: as on the command line, the first choice first.
    """

    below: float
    losses: tuple[str, ...]


# By docs/fair.md and docs/noisy-labels.md: label smoothing with clean labels; with wrong ones GCE,
# or an alpha below 0, the lower the more of them. A low rho is better still, or has not got going
# when training ends: a comparison tells.
RULES = (
    Rule(0.03, ("label_smoothing", "penex")),
    Rule(0.15, ("gce", "penex:rho=1e-6", "penex_negative")),
    Rule(1.0, ("gce", "penex_negative:rho=1e-6", "penex_negative:alpha=-0.5")),
)

# Of a table, by the 43 in docs/tables.md: a rho held low loses there if training is stopped early,
# which it should be.
TABLE_RULES = (
    RULES[0],
    Rule(1.0, ("gce", "penex_negative")),
)

# Of texts by a frozen encoder, by the 13 sets in docs/text.md: stopped early, nothing is ahead of
# these, whatever share is wrong.
FROZEN_RULES = (Rule(1.0, ("ce", "label_smoothing")),)

RIVALS = ("ce", "label_smoothing", "gce")


def rule_of(share: float, rules: tuple[Rule, ...] = RULES) -> Rule:
    """The rule for a share of wrong labels.

    >>> rule_of(0.1).losses, rule_of(0.1, TABLE_RULES).losses
    (('gce', 'penex:rho=1e-6', 'penex_negative'), ('gce', 'penex_negative'))
    """
    return next((rule for rule in rules if share < rule.below), rules[-1])


def text(found: HeldOut, words: list[str], *, frozen: bool = False) -> str:
    """What is suggested for some data, and the command that puts it to the test.

    Args:
        found: what models said of the data that had not seen them.
        words: of a command line, which name the data.
        frozen: whether the inputs are what a frozen encoder says of texts.
    """
    pool = found.collection
    inputs = pool.train.inputs
    rows = inputs.dim() == 2 and inputs.dtype != torch.int32  # which tokens of texts are
    rule = rule_of(
        found.wrong_share.share, FROZEN_RULES if frozen else TABLE_RULES if rows else RULES
    )
    losses = tuple(dict.fromkeys((*RIVALS, *rule.losses)))
    early = ["--select", "best"] if rows else []
    command = shlex.join(["penex", "compare", *words, *early, "--losses", *losses])
    return "\n".join(
        [
            f"{len(found.given)} examples of {len(pool.classes)} classes.",
            estimate(found),
            f"To try first: {' or '.join(rule.losses)}. That is a rule of thumb from a few runs; "
            f"compare before you believe it: {command}",
        ]
    )
