"""penex tune."""

import contextlib
import os
import time
from pathlib import Path
from typing import Annotated

from penex.cli import training
from penex.cli.options import NO_DATA, UNCHANGED, OwnData, Recipe, Size, TaskName, hinted
from penex.lab.errors import LabError
from penex.lab.tuning.plan import Tuning
from penex.lab.tuning.study import Progress, all_studies

_TABLE = ("label_smoothing", "confidence_penalty", "focal", "penex")


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
        save_seconds: how often to save a checkpoint while training.
        pack: how many models to train at once: a number, off, or auto for what pays.
        own: data.
        recipe: changes.
    """
    from penex.lab import tuning
    from penex.lab.tuning.storage import open_storage, trouble
    from penex.report import studies

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise LabError("penex tune trains many models in one process: start it without torchrun.")
    if all == bool(loss):
        raise LabError("Say what to tune: --loss penex, or --all; not both.")
    chosen = own.task(task)
    losses = _TABLE if all else loss
    treatment = own.treatment(chosen)
    what = Tuning(chosen, losses, trials, batch, seed, train_size, recipe.given(), treatment)
    folder = out / chosen.name
    place = open_storage(storage, folder)
    began = time.monotonic()
    done_before: list[int] = []

    def told(stand: list[Progress]) -> None:
        finished = sum(one.finished for one in stand)
        done_before[:] = done_before or [finished]
        seconds = time.monotonic() - began
        left = sum(max(one.wanted - one.finished, 0) for one in stand)
        now = finished - done_before[0]
        session.say("\n".join(_line(one) for one in stand))
        if now and left:
            session.say(f"about {seconds / now * left:.0f} s left")

    total = trials * len(losses)
    with contextlib.closing(place), trouble(place):
        with training.open_session(device, None, out, total, save_seconds) as session:
            found = tuning.tune(
                what,
                place,
                out,
                session.device,
                hooks=session.hooks,
                done=session.done,
                told=told,
                pack=training.pack_size(pack),
            )
        everything = {**all_studies(place, chosen.name), **found}
        results = {name: studies.load(study, name, out) for name, study in everything.items()}
    page = studies.write(folder, chosen.name, list(results.values()), training.command_line())
    print(studies.text([results[name] for name in found]))
    print(f"\n{time.monotonic() - began:.0f} s. Page: {page}. Studies: {place.shown}")


def _line(one: Progress) -> str:
    """How a study stands, in a line."""
    best = ", ".join(f"{name} {value:.4g}" for name, value in one.best.items())
    text = f"{one.loss}: {one.finished} of {max(one.wanted, one.finished)} trials"
    text += f", {one.running} running" if one.running else ""
    text += f", {one.failed} failed" if one.failed else ""
    return f"{text}; best so far {best} ({one.value:.4f})" if best else text
