"""penex: the penalised exponential loss, where torch.nn.CrossEntropyLoss stands."""

from penex import functional as functional
from penex import metrics as metrics
from penex.loss import PENEX as PENEX

__version__ = "0.1.0"
