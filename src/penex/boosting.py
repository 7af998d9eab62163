"""AdaBoost for several classes (SAMME), where PENEX comes from; needs scikit-learn."""

from typing import Any

try:
    from sklearn.ensemble import AdaBoostClassifier
except ImportError as error:
    raise ImportError("penex.boosting needs scikit-learn: pip install scikit-learn.") from error


class SAMMEClassifier(AdaBoostClassifier):  # type: ignore[misc]
    r"""Stagewise additive modelling with the multi-class exponential loss (the paper's alg:SAMME).

    Round m fits a weak classifier g_m to the weighted data, with weighted error eps_m, gives it
    the weight eta_m = log((1 - eps_m) / eps_m) + log(K - 1), and multiplies the weights of the
    examples it got wrong by exp(eta_m). (The paper prints exp(-eta_m); the sign is a slip.)
    f = sum_m eta_m g_m, with g_m = 1 at the class it names and -1 / (K - 1) elsewhere, so that
    the logits sum to zero: CONEX, minimised greedily. `decision_function` is f / sum_m eta_m; for
    two classes it is the second column less the first.

    This is scikit-learn's AdaBoost at a learning rate of 1, which is that algorithm.

    Args:
        estimator: the weak classifier, any that takes sample weights; None for decision stumps.
        n_estimators: the largest number of rounds. A round that makes no error is the last one; a
            round no better than guessing is dropped and ends the fit.
        random_state: seeds the weak classifiers, one draw a round.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SAMMEClassifier(n_estimators=10, random_state=0).fit(X, y)
    >>> float(model.score(X, y)) > 0.9
    True
    """

    def __init__(
        self, estimator: Any = None, *, n_estimators: int = 50, random_state: Any = None
    ) -> None:
        super().__init__(estimator, n_estimators=n_estimators, random_state=random_state)
