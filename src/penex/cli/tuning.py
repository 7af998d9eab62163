"""penex tune."""

import math
import shlex
from pathlib import Path
from typing import Annotated

import tyro

from penex.cli import given
from penex.cli.options import (
    LAST,
    NO_DATA,
    UNCHANGED,
    Judged,
    OwnData,
    Recipe,
    Size,
    TaskName,
    hinted,
    separated,
    words_of,
)
from penex.lab.ground.sentences import without_password
from penex.lab.training.session import EngineName
from penex.lab.tuning.search import Tuning, ranges_of
from penex.lab.workers import leases
from penex.paper import studies
from penex.registry import FIVE


def tune(
    task: TaskName = None,
    /,
    loss: Annotated[tuple[str, ...], hinted("LOSS [LOSS ...]", "(this, or --all)")] = (),
    all: bool = False,
    along: Annotated[
        tuple[str, ...], tyro.conf.arg(name="with", metavar="lr|weight_decay [...]")
    ] = (),
    ranges: Annotated[
        tuple[str, ...], tyro.conf.arg(name="range", metavar="NAME=LOW:HIGH [...]")
    ] = (),
    trials: int = 50,
    batch: int = 10,
    seed: int = 0,
    storage: Annotated[str | None, hinted("URL", "(default: a journal in OUT/TASK)")] = None,
    train_size: Size = None,
    device: str = "auto",
    out: Path = Path("runs"),
    slim: Annotated[Path | None, hinted("DIR")] = None,
    minutes: Annotated[float, hinted("N", "(default: no limit)")] = math.inf,
    save_seconds: float = 30.0,
    keep_checkpoints: bool = False,
    pack: str = "auto",
    engine: EngineName = "local",
    lease_seconds: float = leases.SECONDS,
    own: OwnData = NO_DATA,
    recipe: Recipe = UNCHANGED,
    judged: Judged = LAST,
) -> None:
    """Search the best parameter of a loss, by the validation set's cross-entropy.

    The paper's protocol: Optuna's TPE, 50 trials, full training, the last epoch. A batch of trials
    is trained as one pack; the same seed gives the same study. Finished trials are not repeated, a
    study that was stopped or killed goes on. The page and a record of every trial lie in OUT/TASK;
    studies in an archive OUT/TASK.zip are shown and not gone on with, their page in runs/report.

    Args:
        task: what to train on: digits, which comes with penex, or cifar10, cifar100, pathmnist, ...
        loss: what to tune, by name, with what is held fixed (penex:rho=1e-6); several are tuned
            side by side.
        all: tune every loss of the paper's table that has a parameter.
        along: what of the recipe to tune along with the loss's own parameters; then a loss without
            any can be tuned too.
        ranges: search a parameter between these edges and not the usual ones, as alpha=-0.9:-0.05
            for a PENEX that trusts labels less; another range is another study.
        trials: how many for each loss.
        batch: how many trials are suggested, trained and told together; another number is another
            study.
        seed: of the suggestions.
        storage: a database that Optuna takes, as a URL. On a PostgreSQL server any number of
            workers, given the same command, share a study; elsewhere one process tunes a loss.
        train_size: how many training examples.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        out: the folder for all that is written.
        slim: a folder for the journal and the small form of each study's best and worst trial,
            which are written after every batch.
        minutes: stop after that long; the same command goes on.
        save_seconds: how often to save a checkpoint, from which a stopped run goes on.
        keep_checkpoints: keep the last one of a run that is done too; nothing needs it.
        pack: how many models to train side by side as one, which is faster for small ones: a
            number, off, or auto for what pays. A study on a server keeps its first one.
        engine: who trains: local is this machine; ray, the nodes of a Ray cluster, a pack each,
            with no folder shared.
        lease_seconds: on a server, how long a pack stays a worker's of which nothing is heard.
        own: data of your own, and what is done to data.
        recipe: how to train, where the task's own recipe is not what you want.
        judged: after which epoch and at which temperature a trial's cross-entropy counts.
    """
    from penex.cli import progress

    way = studies.Way(
        given.command_line(),
        progress.watcher,
        out,
        storage,
        slim,
        minutes,
        device,
        save_seconds,
        pack,
        keep_checkpoints,
        lease_seconds,
        engine,
    )
    losses = studies.losses_of(separated(loss), all)
    chosen = own.task(task, out, device if engine == "local" else "auto")
    treatment = own.treatment(chosen)
    what = Tuning(
        chosen,
        losses,
        trials,
        batch,
        seed,
        train_size,
        recipe.given(),
        treatment,
        along,
        judged,
        ranges_of(ranges),
    )
    if studies.tune(what, way):
        options = [*words_of(own), *words_of(recipe), *words_of(judged)]
        options += ["--train-size", str(train_size)] if train_size is not None else []
        command = _compare(task, losses, storage, out, options)
        print(f"To compare the losses at these values: {command}")


def _compare(
    task: str | None, losses: tuple[str, ...], storage: str | None, out: Path, options: list[str]
) -> str:
    """The command that compares what was tuned, on the same data and with the same recipe."""
    words = ["penex", "compare", *([task] if task else []), "--tuned"]
    if not set(losses) <= set(FIVE):
        words += ["--losses", *dict.fromkeys(("ce", *losses))]
    words += options
    words += ["--storage", without_password(storage)] if storage is not None else []
    words += ["--out", str(out)] if out != Path("runs") else []
    return shlex.join(words)
