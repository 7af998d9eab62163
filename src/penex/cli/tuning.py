"""penex tune."""

import math
from pathlib import Path
from typing import Annotated

from penex.cli import training
from penex.cli.options import NO_DATA, UNCHANGED, OwnData, Recipe, Size, TaskName, hinted
from penex.lab.tuning.plan import Tuning
from penex.paper import studies


def tune(
    task: TaskName = None,
    /,
    loss: Annotated[tuple[str, ...], hinted("LOSS [LOSS ...]", "(this, or --all)")] = (),
    all: bool = False,
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
    pack: str = "auto",
    own: OwnData = NO_DATA,
    recipe: Recipe = UNCHANGED,
) -> None:
    """Search the best parameter of a loss, by the validation set's cross-entropy.

    The paper's protocol: Optuna's TPE, 50 trials, full training, the last epoch. A batch of trials
    is trained as one pack; the same seed gives the same study. Finished trials are not repeated, a
    study that was stopped or killed goes on. The page and a record of every trial lie in OUT/TASK.

    Args:
        task: what to train on.
        loss: names from the registry; several are tuned side by side.
        all: tune every loss of the paper's table that has a parameter.
        trials: how many for each loss.
        batch: how many trials are suggested, trained and told together; another number is another
            study.
        seed: of the suggestions.
        storage: a database that Optuna takes, as a URL; one process a loss may write to it at a
            time.
        train_size: how many training examples.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        out: the folder for records.
        slim: a folder for the journal and the small form of each study's best and worst trial,
            which are written after every batch.
        minutes: stop after that long; the same command goes on.
        save_seconds: how often to save a checkpoint while training.
        pack: how many models to train at once: a number, off, or auto for what pays.
        own: data.
        recipe: changes.
    """
    from penex.cli import progress

    way = studies.Way(
        training.command_line(),
        progress.watcher,
        out,
        storage,
        slim,
        minutes,
        device,
        save_seconds,
        pack,
    )
    losses = studies.losses_of(loss, all)
    chosen = own.task(task)
    treatment = own.treatment(chosen)
    studies.tune(
        Tuning(chosen, losses, trials, batch, seed, train_size, recipe.given(), treatment), way
    )
