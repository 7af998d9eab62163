"""Small trees of JPEG files, and a task that trains a small vision transformer on one."""

from pathlib import Path

from penex.lab.data.trees import listed, streamed
from penex.lab.engine.recipe import Recipe
from penex.lab.models.vit import VisionTransformer
from penex.lab.tasks import AS_PRINTED, Task

from pictures import picture

CLASSES, EACH, SIDE = 8, 6, 16


def write_tree(root: Path) -> Path:
    """Eight classes with six images of 40 pixels to train on, and two to test on."""
    for label in range(CLASSES):
        for part, first, count in (("train", 0, EACH), ("val", EACH, 2)):
            folder = root / part / f"n{label:04}"
            folder.mkdir(parents=True)
            for number in range(first, first + count):
                picture(label, number, 40).save(folder / f"{number}.JPEG")
    return root


def write_annotated(root: Path) -> Path:
    """The same in Tiny-ImageNet's form."""
    lines = []
    (root / "val" / "images").mkdir(parents=True)
    for label in range(CLASSES):
        folder = root / "train" / f"n{label:04}" / "images"
        folder.mkdir(parents=True)
        (folder.parent / f"n{label:04}_boxes.txt").write_text("0 0 9 9")
        for number in range(EACH):
            picture(label, number, 40).save(folder / f"{label}_{number}.JPEG")
        for number in range(EACH, EACH + 2):
            name = f"val_{number}_{label}.JPEG"
            picture(label, number, 40).save(root / "val" / "images" / name)
            lines.append(f"{name}\tn{label:04}\t0\t0\t9\t9\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    return root


def build(shape: object, n_out: int) -> VisionTransformer:
    """Two blocks."""
    return VisionTransformer(
        (3, SIDE, SIDE), n_out, patch=4, width=16, depth=2, heads=2, dropout=0.1
    )


def small_task(root: Path, **recipe: object) -> Task:
    """What is trained on the tree: 40 images, in micro-batches that do not divide them."""
    settings = {"epochs": 2, "lr": 1e-3, "batch_size": 12, "accumulate": 3, "clip": 1.0, **recipe}
    return Task(
        name="small_tree",
        title="a small tree",
        collect=lambda: streamed(listed(root), SIDE, "a small tree"),
        train_size=40,
        model="vit",
        build=build,
        recipe=Recipe(**settings),  # type: ignore[arg-type]
        arguments=AS_PRINTED,
        val=8,
        preprocessing={"kind": "images", "image_size": SIDE, "short_side": 18},
    )
