"""PENEX as a scikit-learn classifier: a pipeline, a search over alpha, weights of the classes.

python examples/sklearn_classifier.py [--epochs 30]
"""

import argparse

from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from penex.integrations.sklearn import PenexClassifier


def main() -> None:
    """Search on a table of measurements, then score on rows that were held out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    epochs = parser.parse_args().epochs

    rows, labels = load_breast_cancer(return_X_y=True)
    x, x_test, y, y_test = train_test_split(rows, labels, random_state=0, stratify=labels)
    classifier = PenexClassifier(
        epochs=epochs, hidden=(32,), class_weight="balanced", random_state=0
    )
    grid = [
        {"penexclassifier__loss": ["ce"]},
        {
            "penexclassifier__loss": ["penex"],
            "penexclassifier__loss_options": [{"alpha": 0.1}, {"alpha": 0.3}],
        },
    ]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), classifier), grid, scoring="neg_log_loss", cv=3
    ).fit(x, y)
    chosen = search.best_params_
    print("chosen:", chosen["penexclassifier__loss"], chosen.get("penexclassifier__loss_options"))
    loss = log_loss(y_test, search.predict_proba(x_test))
    print(f"accuracy {search.best_estimator_.score(x_test, y_test):.3f}, log loss {loss:.3f}")


if __name__ == "__main__":
    main()
