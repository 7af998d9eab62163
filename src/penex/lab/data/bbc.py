"""BBC News: its official folder, bbc/<class>/NNN.txt, or a table of it, bbc.csv."""

import csv
import gzip
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

from penex.lab.data import sizes
from penex.lab.data.texts import Text, Texts, distinct
from penex.lab.ground import files
from penex.lab.ground.errors import LabError

CLASSES = ("business", "entertainment", "politics", "sport", "tech")
TABLES = ("bbc.csv", "bbc.csv.gz")


def is_bbc(folder: Path) -> bool:
    """Whether a folder holds the five classes with texts."""
    return all((folder / name).is_dir() for name in CLASSES) and any(
        (folder / CLASSES[0]).glob("*.txt")
    )


def find(root: Path) -> Path | None:
    """The folder or the table of BBC News at a path, or in it; None if there is none."""
    if root.is_file():
        return root if root.name in TABLES else None
    for folder in (root, root / "bbc"):
        if is_bbc(folder):
            return folder
        for name in TABLES:
            if (folder / name).is_file():
                return folder / name
    return None


def read(path: Path) -> Texts:
    """The articles of a folder or a table, each once, in an order that is the same for both."""
    found = distinct(_of_table(path) if path.is_file() else _of_folder(path))
    if found.torn:
        raise LabError(f"{path} is not BBC News: {found.torn} articles are in several classes.")
    return Texts(tuple(sorted(found.kept, key=lambda one: (one.label, one.text))), found.copies)


def checksum(texts: Texts) -> str:
    """Of labels and articles, wherever they were read from."""
    content = files.dumps([[one.label, one.text] for one in texts.kept]).encode()
    return hashlib.sha256(content).hexdigest()


def _of_folder(folder: Path) -> Iterator[Text]:
    for label in CLASSES:
        paths = sorted((folder / label).glob("*.txt"))
        if not paths:
            raise LabError(f"{folder / label} has no .txt files: the data set is not complete.")
        for path in paths:
            content = path.read_bytes()
            try:
                text = content.decode("utf-8")
            except UnicodeDecodeError:
                text = content.decode("latin-1")  # one official file is
            yield Text(f"{label}/{path.name}", label, text)


def _of_table(path: Path) -> Iterator[Text]:
    content, most = path.read_bytes(), sizes.most(path, allow_large=False)
    if path.suffix == ".gz":
        with gzip.open(path) as file:
            content = file.read(int(most) + 1)
        if len(content) > most:
            raise sizes.too_large(path, most, more=True)
    try:
        rows = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
        if not {"label", "text"} <= set(rows.fieldnames or ()):
            raise LabError(f"{path} needs the columns label and text; it has {rows.fieldnames}.")
        for row in rows:
            if row["label"] not in CLASSES or row["text"] is None:
                raise LabError(
                    f"{path}, line {rows.line_num}: {row['label']!r} is no class of BBC News."
                )
            yield Text(f"line {rows.line_num}", row["label"], row["text"])
    except (UnicodeDecodeError, csv.Error) as error:
        raise LabError(f"{path} cannot be read as a .csv file in UTF-8: {error}.") from error
