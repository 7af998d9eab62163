"""CIFAR-10 and CIFAR-100 with ResNet-18, the second network of the paper's appendix.

Data, split and normalisation are those of `cifar10` and `cifar100`. SGD at 0.1 with momentum 0.9
and weight decay 5e-4, cosine down to 0 over 200 epochs, batches of 128, clip 5; every loss with its
default parameters. The paper has no augmentation, so there is none by default; `--augment
flip,crop` is what an accuracy near its 0.947 on CIFAR-10 is otherwise known with. It prints the
last layer as 512 to 10 for both; CIFAR-100's has 100 outputs here.
"""

import dataclasses

from penex.lab.engine.recipe import Recipe
from penex.lab.models.resnet import resnet18
from penex.lab.tasks import Task, cifar10, cifar100

RECIPE = Recipe(
    epochs=200,
    lr=0.1,
    optimizer="sgd",
    momentum=0.9,
    weight_decay=5e-4,
    schedule="cosine",
    batch_size=128,
    clip=5.0,
    matmul_precision="medium",
)


def _task(clean: Task, title: str) -> Task:
    return dataclasses.replace(
        clean,
        name=f"{clean.name}_resnet18",
        title=f"{title} with ResNet-18, as the paper's appendix has it",
        model="resnet18",
        build=resnet18,
        recipe=RECIPE,
    )


TEN = _task(cifar10.TASK, "CIFAR-10")
HUNDRED = _task(cifar100.TASK, "CIFAR-100")
