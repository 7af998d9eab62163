"""penex predict and penex export: a trained model at work."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from penex.cli.options import hinted
from penex.lab.errors import LabError

Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def predict(
    run: Folder,
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES")],
    /,
    to: Annotated[Path | None, hinted("FILE", "(default: standard output)")] = None,
    form: Literal["csv", "jsonl"] = "csv",
    device: str = "auto",
    own_code: bool = False,
) -> None:
    """Calibrated probabilities for new files, prepared as the training data were.

    Files that cannot be read are named on standard error and skipped.

    Args:
        run: the folder of a completed run: runs/TASK/LOSS/HASH/seed-N.
        files: images, tables or arrays, as the model was trained on; or folders of them.
        to: where to write.
        form: csv (a column a class) or jsonl.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        own_code: import the module of a model of one's own, which runs its code.
    """
    from penex.lab import environment
    from penex.lab import files as writing
    from penex.lab import predict as lab
    from penex.lab.models.exported import load

    if not files:
        raise LabError("penex predict needs files to predict.")
    model = load(run, own_code=own_code)
    skipped: list[lab.Item] = []

    def skip(item: lab.Item) -> None:
        skipped.append(item)
        print(f"skipped {item.file}: {item.value}", file=sys.stderr)

    place = environment.device_of(device)
    predictions = lab.predict(model, lab.items(model, files), place, skip)
    lines = lab.as_csv(predictions, model.classes) if form == "csv" else lab.as_jsonl(predictions)
    if to is None:
        written = sum(print(line) is None for line in lines)
    else:
        text = list(lines)
        written = len(text)
        writing.write(to, ("\n".join(text) + "\n").encode(errors="surrogateescape"))
    if skipped:
        print(f"{len(skipped)} skipped.", file=sys.stderr)
    if written <= (form == "csv"):
        raise LabError("There was nothing to predict.")


def export(
    run: Folder,
    /,
    onnx: Annotated[Path, tyro.conf.arg(metavar="FILE")],
    own_code: bool = False,
) -> None:
    """Write a trained model as ONNX, from raw inputs to calibrated probabilities.

    Class names and temperature travel in the file's metadata. The run's own model.safetensors and
    model.json need no export: penex.lab.models.exported.load reads them with torch alone.

    Args:
        run: the folder of a completed run: runs/TASK/LOSS/HASH/seed-N.
        onnx: the file to write.
        own_code: import the module of a model of one's own, which runs its code.
    """
    from penex.lab.models import onnx as exporter
    from penex.lab.models.exported import load

    exporter.write(load(run, own_code=own_code), onnx)
    print(f"Written: {onnx}")
