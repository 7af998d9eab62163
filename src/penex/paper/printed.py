"""What the paper prints and what its authors' configurations hold, by task and loss."""

from collections.abc import Mapping
from typing import NamedTuple


def _column(*values: float) -> dict[str, float]:
    """A column of the main table, by metric, in the paper's order; its ECE is that per batch."""
    names = ("accuracy", "ece_per_batch", "cross_entropy", "brier")
    return dict(zip(names, values, strict=True))


# The main table, test set; and below it the appendix's, of ResNet-18.
PRINTED: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "cifar10": {
        "ce": _column(0.785, 0.162, 1.004, 0.346),
        "label_smoothing": _column(0.789, 0.112, 0.657, 0.300),
        "confidence_penalty": _column(0.786, 0.130, 0.731, 0.317),
        "focal": _column(0.778, 0.117, 0.661, 0.313),
        "penex": _column(0.793, 0.109, 0.646, 0.299),
    },
    "cifar10_noisy": {
        "ce": _column(0.724, 0.179, 1.125, 0.424),
        "label_smoothing": _column(0.747, 0.183, 0.889, 0.384),
        "confidence_penalty": _column(0.733, 0.149, 0.866, 0.385),
        "focal": _column(0.708, 0.165, 0.905, 0.423),
        "penex": _column(0.766, 0.131, 0.716, 0.332),
    },
    "cifar100": {
        "ce": _column(0.443, 0.287, 3.072, 0.794),
        "label_smoothing": _column(0.451, 0.147, 2.292, 0.692),
        "confidence_penalty": _column(0.449, 0.152, 2.254, 0.695),
        "focal": _column(0.428, 0.161, 2.341, 0.723),
        "penex": _column(0.460, 0.147, 2.140, 0.685),
    },
    "pathmnist": {
        "ce": _column(0.826, 0.151, 2.018, 0.300),
        "label_smoothing": _column(0.829, 0.109, 0.589, 0.255),
        "confidence_penalty": _column(0.828, 0.110, 0.917, 0.262),
        "focal": _column(0.803, 0.112, 0.939, 0.291),
        "penex": _column(0.833, 0.100, 1.200, 0.251),
    },
    "bbc_news": {  # with RoBERTa
        "ce": _column(0.967, 0.032, 0.109, 0.051),
        "label_smoothing": _column(0.970, 0.033, 0.115, 0.049),
        "confidence_penalty": _column(0.974, 0.050, 0.094, 0.042),
        "focal": _column(0.970, 0.051, 0.092, 0.042),
        "penex": _column(0.968, 0.034, 0.124, 0.055),
    },
    "cifar10_resnet18": {
        "ce": _column(0.947, 0.042, 0.197, 0.084),
        "label_smoothing": _column(0.949, 0.096, 0.259, 0.088),
        "confidence_penalty": _column(0.947, 0.039, 0.181, 0.082),
        "focal": _column(0.945, 0.094, 0.223, 0.084),
        "penex": _column(0.948, 0.037, 0.193, 0.083),
    },
    "cifar100_resnet18": {
        "ce": _column(0.571, 0.163, 1.696, 0.588),
        "label_smoothing": _column(0.571, 0.107, 1.678, 0.569),
        "confidence_penalty": _column(0.549, 0.157, 1.799, 0.612),
        "focal": _column(0.558, 0.112, 1.583, 0.577),
        "penex": _column(0.601, 0.112, 1.511, 0.532),
    },
}


class Resource(NamedTuple):
    """What the paper says that an experiment takes.

    Attributes:
        title: of the experiment, as it is printed.
        gpu: on which one it was run.
        memory: of the CPU, in megabytes.
        minutes: of a run of 200 epochs, about; None where none are printed.
    """

    title: str
    gpu: str
    memory: int
    minutes: int | None


# The appendix on computational resources, by task.
RESOURCES: Mapping[str, Resource] = {
    "cifar10": Resource("CIFAR-10", "NVIDIA A100-SXM4-40GB", 8096, 60),
    "cifar10_noisy": Resource("Noisy CIFAR-10", "NVIDIA A100-SXM4-40GB", 8096, None),
    "cifar100": Resource("CIFAR-100", "NVIDIA A100-SXM4-40GB", 16192, 120),
    "pathmnist": Resource("PathMNIST", "NVIDIA A100-SXM4-40GB", 8096, 18),
    "bbc_news": Resource("BBC News", "NVIDIA A100-SXM4-40GB", 16192, 60),
    "imagenet": Resource("ImageNet", "4 x NVIDIA A100-SXM4-80GB", 150_000, 3600),
}

# The appendix on runtime: seconds of one forward pass over 64 x 10 logits, and their deviation.
RUNTIME: Mapping[str, tuple[float, float]] = {
    "ce": (1.9e-5, 5e-6),
    "label_smoothing": (7.4e-5, 5e-6),
    "confidence_penalty": (2.0e-4, 6e-6),
    "focal": (1.07e-4, 5e-6),
    "penex": (6.8e-5, 7e-6),
}

# The values in the authors' configurations.
_AUTHORS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "cifar10": {
        "label_smoothing": {"epsilon": 0.039},
        "confidence_penalty": {"lambda_": 0.25},
        "focal": {"gamma": 2.74},
        "penex": {"alpha": 0.03},
        "ex_log_penalty": {"alpha": 0.23, "rho": 1.0},
    },
    "cifar10_noisy": {
        "label_smoothing": {"epsilon": 0.18},
        "confidence_penalty": {"lambda_": 0.39},
        "focal": {"gamma": 4.59},
        "penex": {"alpha": 0.025},
        "ex_log_penalty": {"alpha": 0.16, "rho": 1.0},
    },
    "cifar100": {
        "label_smoothing": {"epsilon": 0.13},
        "confidence_penalty": {"lambda_": 0.38},
        "focal": {"gamma": 4.7},
        "penex": {"alpha": 0.085},
        "ex_log_penalty": {"alpha": 0.064, "rho": 1.0},
    },
    "pathmnist": {
        "label_smoothing": {"epsilon": 0.037},
        "confidence_penalty": {"lambda_": 0.25},
        "focal": {"gamma": 2.74},
        "penex": {"alpha": 0.058},
    },
    "bbc_news": {
        "label_smoothing": {"epsilon": 0.0019},
        "confidence_penalty": {"lambda_": 0.21},
        "focal": {"gamma": 1.2},
        "penex": {"alpha": 0.0037},
    },
}

# PENEX's cross-entropy on the validation set by epoch, read off the drawing in the authors'
# repository (assets/long_metric_curves_cifar100.svg) to about 0.01; which curve is PENEX's is by
# the order of the legend.
CURVES: Mapping[str, Mapping[int, float]] = {
    "cifar100": {
        1: 4.349, 2: 3.979, 4: 3.683, 8: 3.328, 12: 3.116, 16: 2.944, 20: 2.826, 28: 2.638,
        40: 2.489, 60: 2.337, 80: 2.251, 100: 2.200, 120: 2.173, 140: 2.148, 160: 2.153,
        180: 2.147, 200: 2.129,
    },
}  # fmt: skip


def authors_of(task: str) -> Mapping[str, Mapping[str, float]]:
    """The authors' values for a task, by loss and parameter; none for a task that is not theirs.

    >>> authors_of("cifar100")["penex"], authors_of("digits")
    ({'alpha': 0.085}, {})
    """
    return _AUTHORS.get(task, {})
