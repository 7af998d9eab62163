"""The labels that look wrong: on the terminal, as a table for other programs, and on a page."""

import csv
import io
from pathlib import Path
from typing import Any

import torch

import penex
from penex.lab.data.split import whole
from penex.lab.ground import files
from penex.lab.ground.sentences import count, visible
from penex.lab.records.examples import are_pictures, thumbnails
from penex.lab.records.folds import HeldOut
from penex.report.page import render
from penex.report.page.blocks import png
from penex.report.plain import csv_text

TABLE, PAGE = "suspects.csv", "suspects.html"
_ON_PURPOSE = "before"  # one column more where labels were made wrong on purpose


def rows(found: HeldOut, top: int | None = None) -> list[dict[str, Any]]:
    """The examples with what is said of each, the most suspicious first.

    Args:
        found: what models said that had not seen them.
        top: how many; None for all.
    """
    classes, names = found.collection.classes, found.collection.train.names
    order = found.order[:top]
    best = found.probabilities.amax(dim=1)
    on_purpose = found.average_precision is not None
    return [
        {
            "number": number,
            "where": names[number] if names else "",
            "given": classes[given],
            "score": score,
            "predicted": classes[predicted],
            "probability": probability,
            "suspected": suspected,
            **({_ON_PURPOSE: classes[before]} if on_purpose else {}),
        }
        for number, given, predicted, probability, score, suspected, before in zip(
            *(
                values.tolist()
                for values in (
                    order,
                    found.given[order],
                    found.predicted[order],
                    best[order],
                    found.score[order],
                    found.suspected[order],
                    found.before[order],
                )
            ),
            strict=True,
        )
    ]


def sentences(found: HeldOut) -> list[str]:
    """What came out, in words."""
    n, suspected = len(found.given), int(found.suspected.sum())
    said = [
        f"{estimate(found)} {count(suspected, 'example')} of {n} "
        f"{'is' if suspected == 1 else 'are'} confidently of another class than given.",
        "A label is suspected by models that were not trained on it; they are wrong too, about "
        "rare and hard examples most of all. Look before you change one.",
    ]
    if found.average_precision is not None:
        wrong = float((found.given != found.before).double().mean())
        said.append(
            f"{wrong:.1%} of the labels were made wrong on purpose; the order finds them with an "
            f"average precision of {found.average_precision:.3f} (chance: {wrong:.3f})."
        )
    return said


def estimate(found: HeldOut) -> str:
    """The estimated share of wrong labels, and how it was estimated."""
    folds = len(found.fold.unique())  # type: ignore[no-untyped-call]
    share, error, way = found.wrong_share
    start, others = "Estimated share of wrong labels:", f"{found.disagreement:.1%} of the labels"
    if way == "disagreement":
        return (
            f"{start} at most {share:.1%}, an upper bound: that many are not what was predicted, "
            "be it that the label is wrong or that the model errs."
        )
    if way == "sure":
        return (
            f"{start} {share:.1%} ± {error:.1%}: of what the models are surest of, so many labels "
            f"are others. {others} are not what was predicted; the models err, too."
        )
    return (
        f"{start} {share:.1%} ± {error:.1%} (confident learning; one standard error over {folds} "
        f"folds; too high where models often err). {others} are not what was predicted."
    )


def table(found: HeldOut) -> str:
    """All examples as CSV, the most suspicious first."""
    buffer = io.StringIO()
    lines = rows(found)
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(lines[0])
    for line in lines:
        writer.writerow([_cell(value) for value in line.values()])
    return buffer.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        return csv_text(value)
    return int(value) if isinstance(value, bool) else value


def text(found: HeldOut, top: int) -> str:
    """The most suspicious examples as a table of plain text, and what came out.

    Args:
        found: what models said that had not seen them.
        top: how many examples.
    """
    lines = [_shown(line) for line in rows(found, top)]
    heads = [name for name in lines[0] if any(line[name] for line in lines)]
    widths = {name: max(len(name), *(len(line[name]) for line in lines)) for name in heads}
    printed = [
        "  ".join(line[name].ljust(widths[name]) for name in heads).rstrip()
        for line in ({name: name for name in heads}, *lines)
    ]
    return "\n".join([*printed, "", *sentences(found)])


def _shown(line: dict[str, Any]) -> dict[str, str]:
    shown = {}
    for name, value in line.items():
        if isinstance(value, float):
            shown[name] = f"{value:.3f}"
        elif isinstance(value, bool):
            shown[name] = "yes" if value else ""
        else:
            shown[name] = visible(str(value))
    return shown


def write(folder: Path, task: str, found: HeldOut, top: int, command: str) -> list[Path]:
    """Write the table and, if the inputs are pictures, the page with the most suspicious ones.

    Args:
        folder: of the task.
        task: its name.
        found: what models said that had not seen them.
        top: how many pictures.
        command: how the user asked for it.
    """
    written = [folder / TABLE]
    files.write_text(folder / TABLE, table(found))
    if are_pictures(found.collection.train.inputs):
        files.write_text(folder / PAGE, page(task, found, top, command))
        written.append(folder / PAGE)
    else:
        (folder / PAGE).unlink(missing_ok=True)  # of other data that lay here
    return written


def page(task: str, found: HeldOut, top: int, command: str) -> str:
    """The page as text, every picture in it."""
    shown = torch.as_tensor(found.order[:top])
    images = thumbnails(whole(found.collection.train).some(shown).cpu())
    lines = [_shown(line) for line in rows(found, top)]
    return render(
        "suspects.html",
        {
            "version": penex.__version__,
            "title": f"Labels of {task} that look wrong",
            "asked": f"{count(len(lines), 'example')}, the most suspicious first.",
            "said": sentences(found),
            "pictures": [
                {**line, "source": png(image)} for line, image in zip(lines, images, strict=True)
            ],
            "table": TABLE,
            "command": command,
        },
    )
