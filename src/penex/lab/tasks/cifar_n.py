"""CIFAR with the labels that people gave: CIFAR-10N and CIFAR-100N (Wei et al., ICLR 2022).

Images, network, recipe and search ranges are those of `cifar10` and `cifar100`. Training and
validation have people's labels, as a user's would; the official test set is clean. Wrong are 9.0 %
(`aggre`, the majority of three), 17.2 % (`random1`, one of the three), 40.2 % (`worse`, a wrong one
of the three if there is any) and, of CIFAR-100N, 40.2 %. None of them is the paper's. Licence of
the labels: CC BY-NC 4.0.
"""

import dataclasses
import functools
from pathlib import Path

from penex.lab.data import Collection, people
from penex.lab.tasks import Task, cifar10, cifar100, data_root


def collect(root: Path | None = None, *, clean: Task, labels: str, kind: str) -> Collection:
    """The images of a clean task with the labels that people gave for training.

    Args:
        root: the folder with the images' folder and the labels' file.
        clean: the task that the images are of.
        labels: the name of the set of labels in the catalogue.
        kind: which labels of it.
    """
    root = data_root() if root is None else root
    images: Collection = clean.collect(root)
    given, facts = people.labels(root, labels, kind, images.train.targets)
    return dataclasses.replace(
        images,
        train=images.train._replace(targets=given),
        facts={**images.facts, **facts},
    )


def _task(name: str, title: str, clean: Task, labels: str, kind: str) -> Task:
    return dataclasses.replace(
        clean,
        name=name,
        title=title,
        collect=functools.partial(collect, clean=clean, labels=labels, kind=kind),
    )


_TEN = functools.partial(_task, clean=cifar10.TASK, labels="cifar10n")
AGGRE = _TEN("cifar10n_aggre", "CIFAR-10 labelled by the majority of three", kind="aggre_label")
RANDOM1 = _TEN("cifar10n_random1", "CIFAR-10 labelled by one person", kind="random_label1")
WORSE = _TEN(
    "cifar10n_worse", "CIFAR-10 with the worst of three people's labels", kind="worse_label"
)
HUNDRED = _task(
    "cifar100n", "CIFAR-100 labelled by one person", cifar100.TASK, "cifar100n", "noisy_label"
)
