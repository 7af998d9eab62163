"""BBC News as its official folder: bbc/<class>/NNN.txt."""

from dataclasses import dataclass
from pathlib import Path

from penex.lab.ground.errors import LabError

CLASSES = ("business", "entertainment", "politics", "sport", "tech")


@dataclass(frozen=True)
class Texts:
    """Labelled texts, each once.

    Attributes:
        texts: the articles.
        labels: the class of each.
        copies: how many copies of earlier texts were left out.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    copies: int


def is_bbc(folder: Path) -> bool:
    """Whether a folder holds the five classes with texts."""
    return all((folder / name).is_dir() for name in CLASSES) and any(
        (folder / CLASSES[0]).glob("*.txt")
    )


def read(folder: Path) -> Texts:
    """The articles in the order of their files; a text that occurs again is left out."""
    texts: dict[str, str] = {}
    total = 0
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
            text = text.strip()
            total += 1
            if texts.setdefault(text, label) != label:
                raise LabError(f"{path} is there again under the class {texts[text]!r}.")
    return Texts(tuple(texts), tuple(texts.values()), total - len(texts))
