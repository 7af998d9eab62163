"""Texts as little data: twelve public sets, and what a frozen encoder says of them, each once.

    python -m benchmarks.texts CLONES FOLDER     # writes FOLDER/<set>.csv
    python -m benchmarks.many_tables --texts --data FOLDER --write results/many-texts.json

CLONES/<owner>/<name> are clones of the repositories below, at the commits below, bare or not. A
file bbc.csv of the task bbc_news (its columns are label and text) may be put beside the others.
"""

import argparse
import csv
import io
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import tables
from benchmarks._main import run
from penex.lab.data import texts
from penex.lab.ground.errors import LabError
from penex.lab.tasks import Task, own
from penex.lab.tasks.frozen import frozen

Labelled = tuple[str, str]


class Source(NamedTuple):
    """Where a set is, and how it is written.

    Attributes:
        repository: on GitHub.
        commit: its state that was read.
        paths: of a file of texts, or of one of texts and one of labels.
        form: "label first" (a line is a label, a space and a text), "table" (a .csv without a
            header, of a label and parts of a text) or "apart" (texts in one file, labels in
            another).
    """

    repository: str
    commit: str
    paths: tuple[str, ...]
    form: str


def _sentences(name: str) -> Source:
    commit = "d61ded09c99c0199d8c5bca946cd65864de2b296"
    return Source("harvardnlp/sent-conv-torch", commit, (f"data/{name}.all",), "label first")


def _tweets(name: str, part: str = "train") -> Source:
    paths = tuple(f"datasets/{name}/{part}_{kind}.txt" for kind in ("text", "labels"))
    commit = "4fbd22cd78421f05b1ecdb4fc5725bc7a7bd8f66"
    return Source("cardiffnlp/tweeteval", commit, paths, "apart")


SOURCES = {
    "ag_news": Source(
        "mhjabreel/CharCnn_Keras", "555590db4219b1243abb1918effd6a7425a2d75f",
        ("data/ag_news_csv/test.csv",), "table",
    ),
    "customer_reviews": _sentences("custrev"),
    "movie_reviews": _sentences("rt-polarity"),
    "opinions": _sentences("mpqa"),
    "questions": _sentences("TREC.train"),
    "subjectivity": _sentences("subj"),
    "tweets_emoji": _tweets("emoji", "val"),
    "tweets_emotion": _tweets("emotion"),
    "tweets_hate": _tweets("hate"),
    "tweets_irony": _tweets("irony"),
    "tweets_offensive": _tweets("offensive"),
    "tweets_sentiment": _tweets("sentiment", "test"),
}  # fmt: skip


def labelled(form: str, contents: list[str]) -> Iterator[Labelled]:
    r"""(label, text) of a set.

    >>> list(labelled("label first", ["0 so so ;\n1 good\n"]))
    [('0', 'so so ;'), ('1', 'good')]
    >>> list(labelled("table", ['"3","A title","and a body"\n']))
    [('3', 'A title and a body')]
    >>> list(labelled("apart", ["one\ntwo\n", "1\n0\n"]))
    [('1', 'one'), ('0', 'two')]
    """
    if form == "table":
        for label, *words in csv.reader(io.StringIO(contents[0])):
            yield label, " ".join(words)
    elif form == "apart":
        lines, labels = (content.rstrip("\n").split("\n") for content in contents)
        for label, text in zip(labels, lines, strict=True):
            yield label.strip(), text
    else:
        for line in contents[0].rstrip("\n").split("\n"):
            label, _, text = line.partition(" ")
            yield label, text


def read(source: Source, clones: Path) -> Iterator[Labelled]:
    """The texts of a set, from a clone of its repository."""
    contents = []
    for path in source.paths:
        words = ["git", "-C", str(clones / source.repository), "show", f"{source.commit}:{path}"]
        shown = subprocess.run(words, capture_output=True)
        if shown.returncode:
            raise LabError(
                f"{clones / source.repository} has no {path} at {source.commit[:8]}: it is to be a "
                f"clone of {source.repository} on GitHub. {shown.stderr.decode().strip()}"
            )
        contents.append(shown.stdout.decode("utf-8", errors="replace"))
    return labelled(source.form, contents)


def task(path: Path, folder: Path, encoder: str) -> Task:
    """A .csv file of texts as a task of little data: a small network after a frozen encoder.

    Args:
        path: of the file, with the columns text and label.
        folder: where the texts that are taken are written.
        encoder: its name or its folder.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(row["label"], row["text"]) for row in csv.DictReader(file)]
    found = texts.distinct(texts.Text("", *row) for row in rows).kept
    chosen = np.random.default_rng(0).permutation(len(found))[: tables.MOST]
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / path.name
    write([(found[k].label, found[k].text) for k in chosen], written)
    made, _ = own.own(written, text_column="text", label_column="label", encoder=encoder)
    return tables.of_little_data(frozen(made), len(chosen))


def write(rows: list[Labelled], path: Path) -> None:
    """A .csv file with the columns label and text."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("label", "text"), *rows])


def main() -> None:
    """Write a .csv file for each set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clones", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, source in SOURCES.items():
        rows = list(read(source, options.clones))
        write(rows, options.folder / f"{name}.csv")
        print(f"{name}: {len(rows)} texts, {len({label for label, _ in rows})} classes")


if __name__ == "__main__":
    run(main)
