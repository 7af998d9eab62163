"""ImageNet with a vision transformer, the paper's last task, and two smaller sets like it.

ViT-B/16 at 224 pixels; Adam at 1e-3, and at 1e-5 for PENEX; 10 epochs of warm-up, then a cosine
down to 0 over 300 epochs; batches of 2048, as micro-batches that fit one GPU; clip 1; bfloat16; a
tenth of the training images to validate on, ImageNet's validation images to test on; every loss
with its default parameters, PENEX with alpha 0.01. Images stay in their files (`data.streams`).
Tiny-ImageNet (64 pixels, ViT-Tiny) and Imagenette (160 pixels, ViT-Small) have the same recipe.
"""

import functools
from pathlib import Path

from penex.lab.data import Collection, crops, trees
from penex.lab.data.trees import Tree
from penex.lab.engine.recipe import Recipe
from penex.lab.models import MODELS
from penex.lab.tasks import AS_PRINTED, Task, data_root


def collect(root: Path | None = None, *, tree: Tree, size: int) -> Collection:
    """The files of a tree, listed and not read."""
    return trees.find(tree, data_root() if root is None else root, size)


def _recipe(accumulate: int) -> Recipe:
    return Recipe(
        epochs=300,
        lr=1e-3,
        batch_size=2048,
        accumulate=accumulate,
        schedule="cosine",
        warmup_epochs=10.0,
        clip=1.0,
        matmul_precision="medium",
        autocast=True,
    )


def _task(tree: Tree, size: int, model: str, train_size: int, accumulate: int) -> Task:
    return Task(
        name=tree.name,
        title=f"{tree.title} at {size} pixels with {model}, by the recipe of the paper's appendix",
        collect=functools.partial(collect, tree=tree, size=size),
        train_size=train_size,
        model=model,
        build=MODELS[model],
        recipe=_recipe(accumulate),
        rates={"penex": 1e-5},
        arguments={**AS_PRINTED, "penex": {**AS_PRINTED["penex"], "alpha": 0.01}},
        val=0.1,
        preprocessing={
            "kind": "images",
            "image_size": size,
            "short_side": crops.short_side(size),
        },
    )


IMAGENET = _task(
    Tree(
        "imagenet",
        "ImageNet-1k",
        ("imagenet",),
        1000,
        "train/ and val/, each with a folder of JPEG files for each of 1000 classes",
    ),
    size=224,
    model="vit_base",
    train_size=1_153_050,
    accumulate=16,
)

TINY = _task(
    Tree(
        "tiny_imagenet",
        "Tiny-ImageNet",
        ("tiny-imagenet-200",),
        200,
        "train/<class>/images/ for each of 200 classes and val/images/ with val_annotations.txt",
    ),
    size=64,
    model="vit_tiny",
    train_size=90_000,
    accumulate=4,
)

IMAGENETTE = _task(
    Tree(
        "imagenette",
        "Imagenette",
        ("imagenette2-160", "imagenette2-320", "imagenette2", "imagenette"),
        10,
        "train/ and val/, each with a folder of JPEG files for each of 10 classes",
    ),
    size=160,
    model="vit_small",
    train_size=8_522,
    accumulate=8,
)
