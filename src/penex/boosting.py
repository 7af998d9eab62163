"""AdaBoost for several classes (SAMME), where PENEX comes from; needs scikit-learn."""

from collections import deque
from collections.abc import Iterator
from typing import Any

try:
    import numpy as np
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
    from sklearn.tree import DecisionTreeClassifier
    from sklearn.utils import check_array, check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data
except ImportError as error:
    raise ImportError(
        "penex.boosting needs scikit-learn: pip install 'penex[lab]', or pip install scikit-learn."
    ) from error

Array = np.ndarray[Any, np.dtype[Any]]

_ACCEPTED: dict[str, Any] = {"accept_sparse": ["csr", "csc"], "dtype": None}


class SAMMEClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Stagewise additive modelling with the multi-class exponential loss (the paper's alg:SAMME).

    Round m fits a weak classifier g_m to the weighted data, with weighted error eps_m, gives it
    the weight eta_m = log((1 - eps_m) / eps_m) + log(K - 1), and multiplies the weights of the
    examples it got wrong by exp(eta_m). (The paper prints exp(-eta_m); the sign is a slip.)
    f = sum_m eta_m g_m, with g_m = 1 at the class it names and -1 / (K - 1) elsewhere, so that
    the logits sum to zero: CONEX, minimised greedily.

    Args:
        estimator: the weak classifier, any that takes sample weights; None for decision stumps.
        n_estimators: the largest number of rounds. A round that makes no error is the last one; a
            round no better than guessing is dropped and ends the fit.
        random_state: seeds the weak classifiers, one draw a round, as scikit-learn does.

    Attributes:
        classes_: the class labels.
        n_classes_: K.
        estimator_: the weak classifier that the rounds clone.
        estimators_: the fitted weak classifiers.
        estimator_weights_: eta_m for each possible round, 0 past the last one.
        estimator_errors_: eps_m for each possible round, 1 past the last one.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SAMMEClassifier(n_estimators=10, random_state=0).fit(X, y)
    >>> float(model.score(X, y)) > 0.9
    True
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_estimators: int = 50,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SAMMEClassifier":
        """Fit the rounds; sample_weight is where the example weights start (default: equal)."""
        if not isinstance(self.n_estimators, int | np.integer) or self.n_estimators < 1:
            raise ValueError(
                f"n_estimators must be a whole number from 1 on; got {self.n_estimators!r}."
            )
        self.estimator_ = (
            DecisionTreeClassifier(max_depth=1) if self.estimator is None else self.estimator
        )
        if not has_fit_parameter(self.estimator_, "sample_weight"):
            raise ValueError(
                f"{type(self.estimator_).__name__} doesn't support sample_weight, which boosting "
                "needs."
            )
        X, y = validate_data(self, X, y, **_ACCEPTED)
        check_classification_targets(y)
        weight = _start_weights(sample_weight, len(y))
        excluded = weight == 0

        self.classes_ = np.unique(y)
        self.n_classes_ = len(self.classes_)
        self.estimators_: list[Any] = []
        self.estimator_weights_ = np.zeros(self.n_estimators)
        self.estimator_errors_ = np.ones(self.n_estimators)
        random_state = check_random_state(self.random_state)
        for m in range(self.n_estimators):
            # An example that every round got right would fade to 0 and could never come back.
            weight = np.where(excluded, 0.0, np.maximum(weight, np.finfo(np.float64).eps))
            g = _seeded_clone(self.estimator_, random_state)
            wrong = g.fit(X, y, sample_weight=weight).predict(X) != y
            error = float(np.average(wrong, weights=weight))
            if error >= 1 - 1 / self.n_classes_ and error > 0:
                if m == 0:
                    raise ValueError(
                        f"The first {type(self.estimator_).__name__} has a weighted error of "
                        f"{error:.3f}, no better than guessing one of {self.n_classes_} classes: "
                        "boosting cannot start. Give it more freedom."
                    )
                break
            self.estimators_.append(g)
            self.estimator_errors_[m] = error
            if error <= 0:
                self.estimator_weights_[m] = 1.0
                break
            eta = np.log((1 - error) / error) + np.log(self.n_classes_ - 1)
            self.estimator_weights_[m] = eta
            # In logarithms, as scikit-learn does: its rounding decides which of two equally good
            # stumps comes next, and whether a round that equals guessing counts as worse.
            with np.errstate(divide="ignore"):
                weight = np.exp(np.log(weight) + eta * wrong)
            weight = weight / weight.sum()
        return self

    def decision_function(self, X: Any) -> Array:
        """sum_m eta_m g_m / sum_m eta_m, one column a class; for two classes a single score.

        The columns sum to zero. As in scikit-learn, two classes give the difference of the two
        columns, positive for the second class.
        """
        [last] = deque(self.staged_decision_function(X), maxlen=1)
        return last

    def staged_decision_function(self, X: Any) -> Iterator[Array]:
        """The decision function after each round."""
        X = self._checked(X)
        scores = np.zeros((X.shape[0], self.n_classes_))
        if self.n_classes_ == 1:
            yield scores
            return
        total = 0.0
        for eta, g in zip(self.estimator_weights_, self.estimators_, strict=False):
            named = g.predict(X)[:, np.newaxis] == self.classes_
            scores = scores + eta * np.where(named, 1.0, -1 / (self.n_classes_ - 1))
            total += eta
            yield self._shaped(scores / total)

    def predict(self, X: Any) -> Array:
        """The class with the largest score."""
        return self._named(self.decision_function(X))

    def staged_predict(self, X: Any) -> Iterator[Array]:
        """The predictions after each round."""
        for scores in self.staged_decision_function(X):
            yield self._named(scores)

    def predict_proba(self, X: Any) -> Array:
        """softmax(f / (K - 1)) of the normalised decision function, as scikit-learn has it."""
        scores = self.decision_function(X)
        if self.n_classes_ == 2:
            scores = np.stack([-scores, scores], axis=1) / 2
        elif self.n_classes_ > 2:
            scores = scores / (self.n_classes_ - 1)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        proba: Array = powers / powers.sum(axis=1, keepdims=True)
        return proba

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of `predict_proba`."""
        log_proba: Array = np.log(self.predict_proba(X))
        return log_proba

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, **_ACCEPTED)

    def _shaped(self, scores: Array) -> Array:
        return scores[:, 1] - scores[:, 0] if self.n_classes_ == 2 else scores

    def _named(self, scores: Array) -> Array:
        column = scores > 0 if self.n_classes_ == 2 else scores.argmax(axis=1)
        named: Array = self.classes_[column.astype(np.intp)]
        return named


def _seeded_clone(estimator: Any, random_state: np.random.RandomState) -> Any:
    """A fresh copy whose every random_state, nested ones included, is drawn in sorted order."""
    copy = clone(estimator)
    names = [n for n in sorted(copy.get_params()) if n.split("__")[-1] == "random_state"]
    seeds = {name: random_state.randint(np.iinfo(np.int32).max) for name in names}
    return copy.set_params(**seeds)


def _start_weights(sample_weight: Any, examples: int) -> Array:
    """The given example weights, or equal ones, divided by their sum."""
    if sample_weight is None or np.isscalar(sample_weight):
        return np.full(examples, 1 / examples)
    weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weight.shape != (examples,):
        raise ValueError(
            f"sample_weight must hold one weight for each of the {examples} examples; got shape "
            f"{weight.shape}."
        )
    if weight.min() < 0:
        raise ValueError(f"sample_weight must not be negative; the smallest is {weight.min()}.")
    if weight.sum() == 0:
        raise ValueError("sample_weight is zero for every example: nothing is left to fit.")
    start: Array = weight / weight.sum()
    return start
