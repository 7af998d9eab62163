"""penex predict and penex export: a trained model at work."""

import contextlib
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from penex.cli.options import hinted
from penex.lab.ground.errors import LabError
from penex.lab.ground.sentences import count, visible

if TYPE_CHECKING:
    from penex.lab.models.exported import Exported

Softer = hinted("T", "(default: as the runs were judged, the loss's own or a fitted one)")
Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def predict(
    run: Folder,
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES")],
    /,
    to: Annotated[Path | None, hinted("FILE", "(default: standard output)")] = None,
    form: Literal["csv", "jsonl"] = "csv",
    device: str = "auto",
    own_code: bool = False,
    temperature: Annotated[float | None, Softer] = None,
    encoder: Annotated[
        str | None, hinted("NAME | FOLDER", "(default: as the run calls it)")
    ] = None,
) -> None:
    """Calibrated probabilities for new files, prepared as the training data were.

    Files that cannot be read and empty texts are named on standard error and skipped; the exit code
    is 0 if any was predicted, and 2 if none was. Lines have the order of the files.

    Args:
        run: the folder of a completed run, runs/TASK/LOSS/HASH/seed-N; or of a loss or a task, for
            the run with the lowest validation cross-entropy (of the latest comparison).
        files: images, tables or arrays, as the model was trained on; or folders of them.
        to: where to write.
        form: csv (a column a class) or jsonl.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        own_code: import the module of a model of one's own, which runs its code.
        temperature: what logits are divided by.
        encoder: of a run with --frozen: where its encoder is, if it is not found by its name.
    """
    from penex.lab.ground import environment
    from penex.lab.ground import files as writing
    from penex.lab.models import predict as lab
    from penex.lab.models import raw

    if not files:
        raise LabError("penex predict needs files to predict.")
    if to is not None:
        writing.check_target(to)
    model = _model(run, own_code, temperature, encoder)
    place = environment.device_of(device)
    skipped: list[raw.Item] = []

    def skip(item: raw.Item) -> None:
        skipped.append(item._replace(value=""))
        where = item.file if item.row is None else f"{item.file}, row {item.row}"
        print(visible(f"skipped {where}: {item.value}"), file=sys.stderr)

    paths = raw.files_in(files)
    with _progress(len(paths), shown=to is not None or not sys.stdout.isatty()) as tick:
        found = itertools.chain.from_iterable(
            raw.items(model.card, [path]) for path in _ticking(paths, tick)
        )
        predictions = lab.predict(model, found, place, skip)
        first = next(predictions, None)
        if first is not None:
            predictions = itertools.chain([first], predictions)
            lines = (
                lab.as_csv(predictions, model.classes)
                if form == "csv"
                else lab.as_jsonl(predictions)
            )
            _write(lines, to)
    if skipped:
        print(f"{len(skipped)} skipped.", file=sys.stderr)
    if first is None:
        raise LabError("There was nothing to predict.")


def _write(lines: Iterator[str], to: Path | None) -> None:
    """Write lines as they come; a file is whole or as it was."""
    from penex.lab.ground import files

    if to is None:
        for line in lines:
            print(line)
        return
    with files.writing(to) as file:
        for line in lines:
            file.write(f"{line}\n".encode())


def _ticking(paths: list[Path], tick: Callable[[], None]) -> Iterator[Path]:
    for path in paths:
        yield path
        tick()


@contextlib.contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Callable[[], None]]:
    """A bar on a terminal that predictions do not go to."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    hidden = not shown or not console.is_terminal
    with Progress(console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("predicting", total=total)
        yield lambda: bar.advance(task)


def _model(
    run: Path, own_code: bool, temperature: float | None, encoder: str | None = None
) -> "Exported":
    """The model of a run, or of the best one in a folder of runs, which is said."""
    from penex.lab.models.exported import CARD, load
    from penex.lab.records.best import best_run

    if temperature is not None and not 0 < temperature < math.inf:
        raise LabError(f"--temperature must be a finite number above 0; got {temperature:g}.")
    if not (run / CARD).exists() and not (run / "done.json").exists():
        choice = best_run(run)
        runs = count(choice.among, "run")
        when = f" {choice.view.words}" if choice.view.identity else ""
        print(
            f"The best of {runs} by validation cross-entropy{when}: {choice.folder}",
            file=sys.stderr,
        )
        run = choice.folder
        temperature = temperature or choice.temperature
    model = load(run, own_code=own_code, encoder=encoder)
    model.temperature = temperature or model.temperature
    return model


def export(
    run: Folder,
    /,
    onnx: Annotated[Path, tyro.conf.arg(metavar="FILE")],
    own_code: bool = False,
    temperature: Annotated[float | None, Softer] = None,
) -> None:
    """Write a trained model as ONNX, from raw inputs to calibrated probabilities.

    Class names, temperature and the form of the inputs travel in the file's metadata. The run's own
    model.safetensors and model.json need no export: penex.lab.models.exported.load reads them with
    torch alone.

    Args:
        run: the folder of a completed run, runs/TASK/LOSS/HASH/seed-N; or of a loss or a task, for
            the run with the lowest validation cross-entropy (of the latest comparison).
        onnx: the file to write, NAME.onnx.
        own_code: import the module of a model of one's own, which runs its code.
        temperature: what logits are divided by.
    """
    from penex.lab.models import onnx as exporter

    exporter.check(onnx)
    exporter.write(_model(run, own_code, temperature), onnx)
    print(f"Written: {onnx}")
