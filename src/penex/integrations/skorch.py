"""A loss of ours in skorch: probabilities at the loss's temperature, and not raw logits."""

from typing import Any

import numpy as np

try:
    from skorch import NeuralNetClassifier
    from skorch.utils import to_numpy
except ImportError as error:
    raise ImportError("penex.integrations.skorch needs skorch: pip install skorch.") from error

from penex.loss import PENEX


class PenexNet(NeuralNetClassifier):
    """A NeuralNetClassifier whose module gives logits and whose criterion is one of ours.

    Plain skorch takes the outputs of a module with a criterion that it does not know for
    probabilities. It moves rho in training only, and its checkpoints and `save_params` hold the
    criterion with rho.

        net = PenexNet(Module, criterion__alpha=0.1, max_epochs=10)

    Args:
        module: as in skorch; it gives logits.
        args: as in skorch.
        criterion: a class of ours, PENEX unless it is given.
        kwargs: as in skorch.
    """

    def __init__(self, module: Any, *args: Any, criterion: Any = PENEX, **kwargs: Any) -> None:
        super().__init__(module, *args, criterion=criterion, **kwargs)

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """The probability of each class; of several outputs the first is taken for the logits."""
        parts = []
        for outputs in self.forward_iter(X, training=False):
            logits = outputs[0] if isinstance(outputs, tuple) else outputs
            parts.append(to_numpy(self.criterion_.probabilities(logits)))
        return np.concatenate(parts)
