"""Trees of image files that are too many for the memory: ImageNet's, and what looks like it.

A tree is train/<class>/*.JPEG with val/ or test/ alike, or Tiny-ImageNet's own, whose classes have
a folder images and whose validation files are named in val/val_annotations.txt. ImageNet's own test
set has no labels, so what is called val is what is tested on.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from penex.lab.data import Collection, Examples
from penex.lab.data.crops import short_side
from penex.lab.data.folders import Found, Kind, Listing, list_files
from penex.lab.data.pixels import suffixes
from penex.lab.data.streams import Decoders, Stream
from penex.lab.ground.errors import LabError

# Of ImageNet's pixels, from 0 to 255, as the paper has them.
MEAN = tuple(255 * value for value in (0.485, 0.456, 0.406))
STD = tuple(255 * value for value in (0.229, 0.224, 0.225))

_ANNOTATIONS = Path("val") / "val_annotations.txt"


@dataclass(frozen=True)
class Tree:
    """A published tree of images.

    Attributes:
        name: of the task.
        title: of the data set.
        folders: what its folder is called, one of these.
        classes: how many it has.
        needs: what must be there, in words.
    """

    name: str
    title: str
    folders: tuple[str, ...]
    classes: int
    needs: str


def listed(root: Path) -> Listing:
    """The image files of a tree by part and class; those of its val are its test part."""
    kind = Kind("images", "image files", suffixes())
    if not (root / _ANNOTATIONS).is_file():
        listing = list_files(root, kind)
    else:
        listing = list_files(root / "train", kind)
        listing.root = root
        listing.found += _annotated(root, listing.labels)
    if not any(found.part == "test" for found in listing.found):
        listing.found = [
            found._replace(part="test") if found.part == "val" else found for found in listing.found
        ]
    return listing


def _annotated(root: Path, labels: set[str]) -> list[Found]:
    """The files of Tiny-ImageNet's val/images, whose classes stand in a table."""
    found = []
    table = root / _ANNOTATIONS
    for number, line in enumerate(table.read_text("utf-8").splitlines(), 1):
        name, _, rest = line.partition("\t")
        label = rest.partition("\t")[0]
        if label not in labels or Path(name).name != name:
            raise LabError(
                f"{table}, line {number}: {line[:60]!r} is no file's name, a tab and one of the "
                f"{len(labels)} classes of train/."
            )
        path = root / "val" / "images" / name
        try:
            status = path.stat()
        except OSError as error:
            raise LabError(f"{table}, line {number}: {path} cannot be read.") from error
        times = (status.st_mtime_ns, status.st_ctime_ns)
        found.append(Found("val", label, path, status.st_size, times))
    return sorted(found)


def streamed(
    listing: Listing, size: int, source: str, notes: tuple[str, ...] | None = None
) -> Collection:
    """The images of a listing as a collection whose inputs stay in their files.

    Args:
        listing: of the files.
        size: the side of what a network sees of an image.
        source: what they are.
        notes: what the user should know; the listing's own unless given.
    """
    classes = tuple(sorted({found.label for found in listing.found}))
    place = {label: k for k, label in enumerate(classes)}
    decoders = Decoders()
    parts: dict[str, Examples] = {}
    for part in dict.fromkeys(found.part for found in listing.found):
        some = [found for found in listing.found if found.part == part]
        targets = torch.tensor([place[found.label] for found in some])
        inputs = torch.empty(len(some), 3, size, size, dtype=torch.uint8, device="meta")
        stream = Stream([str(found.path) for found in some], size, decoders)
        names = tuple(listing.name(found.path) for found in some)
        parts[part] = Examples(inputs, targets, names=names, stream=stream)
    return Collection(
        classes=classes,
        mean=torch.tensor(MEAN).view(3, 1, 1),
        std=torch.tensor(STD).view(3, 1, 1),
        facts={
            "source": source,
            "image_size": size,
            "images": len(listing.found),
            "short_side": short_side(size),
            "content": _checksum(listing),
        },
        notes=tuple(listing.notes) if notes is None else notes,
        **parts,
    )


def _checksum(listing: Listing) -> str:
    """A checksum of names and sizes: to read what all files hold would take as long as an epoch."""
    digest = hashlib.sha256()
    for one in listing.found:
        name = listing.name(one.path).encode(errors="surrogateescape")
        digest.update(f"{one.part}\0{one.label}\0{one.size}\0".encode() + name + b"\n")
    return digest.hexdigest()


def find(tree: Tree, root: Path, size: int) -> Collection:
    """A published tree in a folder, or in the folder inside it that its archive makes.

    Args:
        tree: which one.
        root: where to look.
        size: the side of what a network sees of an image.
    """
    places: Sequence[Path] = (root, *(root / name for name in tree.folders))
    folder = next((place for place in places if (place / "train").is_dir()), None)
    if folder is None:
        raise LabError(
            f"{tree.title} is not in {root}: it needs {tree.folders[0]}/ with {tree.needs}. Say "
            "where it is with --data or PENEX_DATA."
        )
    listing = listed(folder)
    labels = {
        name: {found.label for found in listing.found if found.part == part}
        for part, name in (("train", "train"), ("test", "val"))
    }
    for name, some in labels.items():
        if len(some) != tree.classes:
            raise LabError(
                f"{folder / name} has {len(some)} classes with images, and {tree.title} has "
                f"{tree.classes}: it needs {tree.needs}."
            )
    if other := sorted(labels["val"] - labels["train"]):
        raise LabError(f"{folder / 'val'} has the class {other[0]!r}, which train/ has not.")
    return streamed(listing, size, tree.name)
