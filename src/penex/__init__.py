"""penex: the penalised exponential loss, where torch.nn.CrossEntropyLoss stands."""

from penex import baselines as baselines
from penex import conex as conex
from penex import extras as extras
from penex import functional as functional
from penex import metrics as metrics
from penex import registry as registry
from penex import theory as theory
from penex.loss import PENEX as PENEX

__version__ = "0.1.0"
