"""A scikit-learn classifier that trains a small network, or one's own, with a loss of ours."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "penex.integrations.sklearn needs scikit-learn 1.6 or newer: pip install scikit-learn."
    ) from error

from penex import registry
from penex.conex import ZeroSumHead

Factory = Callable[[Sequence[int], int], nn.Module]

_ROWS_AT_ONCE = 4096  # predictions hold the activations of no more than these


class PenexClassifier(ClassifierMixin, BaseEstimator):
    r"""A network trained with PENEX, or another of our losses, on arrays and tables.

    `predict_proba` applies the loss's own temperature. Scale the columns first, as for every
    network: ``make_pipeline(StandardScaler(), PenexClassifier())``.

    Args:
        loss: the name of a loss (`penex.registry.LOSSES`), or module:Class.
        loss_options: its arguments, such as ``{"alpha": 0.05}``; None for its defaults.
        module: None for a network with hidden layers and ReLU; or a function
            (shape of an example, number of logits) -> nn.Module, which then takes examples of any
            shape, in the type of its parameters.
        hidden: the widths of the hidden layers, where module is None.
        epochs: how often the examples are gone through; `partial_fit` does so once.
        batch_size: how many examples make a step.
        lr: the learning rate of Adam.
        weight_decay: of Adam (decoupled).
        class_weight: None, a weight for each label, or ``balanced``. With `sample_weight` each
            example has the product; weights count relative to their mean.
        device: where it is trained, such as ``cpu`` or ``cuda``.
        random_state: seeds the weights, the order and what a module draws. Torch's own generator
            is left as it was.

    Attributes:
        classes_: the labels.
        module_: the network, from an example to its logits.
        loss_: the loss, with its state.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PenexClassifier(hidden=(16,), epochs=50, lr=0.01, random_state=0).fit(X, y)
    >>> float(model.score(X, y)) > 0.9
    True
    >>> model.predict_proba(X[:2]).shape
    (2, 3)
    """

    def __init__(
        self,
        loss: str = "penex",
        *,
        loss_options: Mapping[str, Any] | None = None,
        module: Factory | None = None,
        hidden: Sequence[int] = (100,),
        epochs: int = 100,
        batch_size: int = 64,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        class_weight: Mapping[Any, float] | str | None = None,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.loss_options = loss_options
        self.module = module
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.class_weight = class_weight
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Train from the beginning.

        Args:
            X: the examples, a row each.
            y: their labels, numbers or words.
            sample_weight: a weight for each; 2 counts as the example twice, 0 as none.
        """
        if hasattr(self, "module_"):
            del self.module_
        return self._trained(X, y, sample_weight, None, self.epochs)

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Go through some examples once; network, optimiser and rho go on from where they are.

        Args:
            X: the examples.
            y: their labels.
            classes: all labels there will be; needed in the first call.
            sample_weight: a weight for each example, relative to those of this call.
        """
        if registry.find(self.loss).make.wants_index:  # type: ignore[attr-defined]
            raise ValueError(
                f"The loss {self.loss!r} keeps something of each example, and partial_fit cannot "
                "know which examples it has seen before: use fit."
            )
        if classes is None and not hasattr(self, "module_"):
            raise ValueError("The first call of partial_fit needs classes, all labels there are.")
        return self._trained(X, y, sample_weight, classes, 1)

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """The probability of each class, at the loss's temperature, in the order of `classes_`."""
        check_is_fitted(self, "module_")
        inputs = self._inputs(self._checked(X, reset=False))
        with torch.no_grad():
            parts = [
                self.loss_.probabilities(self.module_(part))
                for part in torch.split(inputs, _ROWS_AT_ONCE)
            ]
        return torch.cat(parts).cpu().numpy()

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The most probable label of each example."""
        best = self.predict_proba(X).argmax(1)
        labels: np.ndarray = self.classes_[best]
        return labels

    def _checked(self, X: Any, *, reset: bool, **y: Any) -> Any:  # noqa: N803
        """X (and y), as scikit-learn validates them: numbers, finite, as many as before."""
        own = self.module is not None
        return validate_data(
            self,
            X,
            reset=reset,
            dtype=(np.float64, np.float32),
            allow_nd=own,
            ensure_2d=not own,
            **y,
        )

    def _inputs(self, X: np.ndarray) -> Tensor:  # noqa: N803
        """The examples where the network is, in the type of its parameters."""
        like = next(self.module_.parameters())
        return torch.tensor(X).to(like.device, like.dtype)

    def _trained(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any,
        classes: Any,
        epochs: int,
    ) -> Self:
        for name in ("epochs", "batch_size"):
            if (number := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be a whole number from 1 on; got {number}.")
        first = not hasattr(self, "module_")
        X, y = self._checked(X, reset=first, y=y)  # noqa: N806
        check_classification_targets(y)
        if first:
            self.classes_ = np.unique(y if classes is None else classes)
        labels = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (strange := y[self.classes_[labels] != y]).size:
            raise ValueError(f"There is no label {strange[0]} among the classes {self.classes_}.")
        if len(self.classes_) < 2:
            raise ValueError(
                f"The labels must be of at least two classes; got one class, {self.classes_[0]}."
            )
        weight = None
        if sample_weight is not None or self.class_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
            weight = weight * compute_sample_weight(self.class_weight, y)
            if not weight.mean() > 0:
                raise ValueError("The weights of the examples must not all be 0.")
            weight = weight / weight.mean()
        generator = check_random_state(self.random_state)
        devices = [self.device] if torch.device(self.device).type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(int(generator.randint(np.iinfo(np.int32).max)))
            if first:
                self._make(X)
            self._go_through(X, labels, weight, epochs)
        return self

    def _make(self, X: np.ndarray) -> None:  # noqa: N803
        """The network, the loss and the optimiser, before the first step."""
        entry = registry.find(self.loss)
        classes, shape = len(self.classes_), X.shape[1:]
        outputs = classes - 1 if entry.zero_sum_head else classes
        network: nn.Module
        if self.module is None:
            network = _mlp(shape, outputs, self.hidden).to(torch.tensor(X[:0]).dtype)
        else:
            network = self.module(shape, outputs)
        if entry.zero_sum_head:
            network = nn.Sequential(network, ZeroSumHead())
        self.module_ = network.to(self.device)
        self.loss_ = registry.make(self.loss, **(self.loss_options or {})).to(self.device)
        if self.loss_.weight is not None:  # logits of float64 have weights of float64
            self.loss_.weight = self.loss_.weight.to(next(network.parameters()).dtype)
        self.loss_.remember(len(X), classes)
        self.optimizer_ = torch.optim.AdamW(
            self.module_.parameters(), lr=self.lr, weight_decay=self.weight_decay
        )

    def _go_through(
        self,
        X: np.ndarray,  # noqa: N803
        labels: np.ndarray,
        weight: np.ndarray | None,
        epochs: int,
    ) -> None:
        inputs = self._inputs(X)
        target = torch.as_tensor(labels, device=inputs.device)
        if weight is not None:
            target = self._weighted(target, torch.as_tensor(weight).to(inputs)[:, None])
        self.module_.train()
        self.loss_.train()
        for _ in range(epochs):
            for chosen in torch.split(torch.randperm(len(inputs)), self.batch_size):
                chosen = chosen.to(inputs.device)
                logits = self.module_(inputs[chosen])
                loss = self.loss_(logits, target[chosen], **self.loss_.asked(chosen))
                self.optimizer_.zero_grad()
                loss.backward()
                self.optimizer_.step()
        self.module_.eval()
        self.loss_.eval()

    def _weighted(self, target: Tensor, shares: Tensor) -> Tensor:
        """Probabilities that add up to an example's weight w, and so weigh it in loss and rho.

        A loss that smooths makes (1 - e) q + e / K of them, and w times what it makes of the label
        alone is meant: q has to be w y + (w - 1) e / (K (1 - e)).
        """
        classes, e = len(self.classes_), float(self.loss_.smoothing)
        if e == 1:
            raise ValueError("With a label smoothing of 1 the weights of examples have no effect.")
        smoothed = (shares - 1) * (e / (classes * (1 - e)))
        return nn.functional.one_hot(target, classes) * shares + smoothed


def _mlp(shape: Sequence[int], outputs: int, hidden: Sequence[int]) -> nn.Sequential:
    widths = [math.prod(shape), *hidden]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))
