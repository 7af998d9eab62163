"""penex compare and penex train."""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from penex.cli import given
from penex.cli.options import (
    AS_USUAL,
    LAST,
    NO_DATA,
    UNCHANGED,
    Judged,
    LossNames,
    Output,
    OwnData,
    Recipe,
    Size,
    Sizes,
    TaskName,
    hinted,
    separated,
)
from penex.lab.ground.errors import LabError, writes
from penex.lab.ground.processes import launched
from penex.lab.training.compare import Comparison
from penex.lab.training.session import EngineName, pack_size
from penex.lab.workers import leases
from penex.lab.workers.server import got, is_server, opened
from penex.paper.printed import authors_of
from penex.registry import FIVE

if TYPE_CHECKING:
    from penex.lab.tasks import Task
    from penex.lab.tasks.runs import Run


def compare(
    task: TaskName = None,
    /,
    losses: LossNames = FIVE,
    seeds: int = 3,
    train_size: Sizes = (),
    device: str = "auto",
    pack: str = "auto",
    engine: EngineName = "local",
    tuned: bool = False,
    storage: Annotated[str | None, hinted("URL")] = None,
    lease_seconds: float = leases.SECONDS,
    forget: bool = False,
    own: OwnData = NO_DATA,
    recipe: Recipe = UNCHANGED,
    judged: Judged = LAST,
    kept: Output = AS_USUAL,
) -> None:
    """Train every loss with every seed, print the table, say which one won.

    Runs that are done are not repeated, a run that was stopped goes on where it was. Records, the
    page, tables (Markdown, LaTeX, CSV) and figures (PNG, SVG) lie in OUT/TASK.

    Args:
        task: what to train on: digits, which comes with penex, or cifar10, cifar100, pathmnist, ...
        losses: what to compare, with arguments if you like, and a recipe of their own after an @:
            ce@lr=3e-4 penex:alpha=0.03 focal:gamma=1.
        seeds: how many; each decides initialisation, split, order and dropout.
        train_size: how many training examples; several numbers repeat the comparison for each.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        pack: how many models to train side by side as one, which is faster for small ones: a
            number, off, or auto for what pays.
        engine: who trains: local is this machine; ray, the nodes of a Ray cluster, a pack each,
            with no folder shared.
        tuned: give each loss the best value of its study (penex tune), else the authors', else the
            default, and say which.
        storage: a PostgreSQL server, as postgresql://user@host/name: any number of workers, given
            the same command, share the runs, and each ends with all of them and the table. With
            --tuned, the studies are read there too; they may also be in another database or, unless
            given, in the journal in OUT/TASK.
        lease_seconds: on a server, how long a pack stays a worker's of which nothing is heard.
        forget: remove the comparison and its records from the server when all of them are here.
        own: data of your own, and what is done to data.
        recipe: how to train, where the task's own recipe is not what you want.
        judged: after which epoch and at which temperature; records hold them all.
        kept: what is written where.
    """
    from penex.cli import progress
    from penex.lab.training import packing
    from penex.lab.training.compare import compare as carry_out
    from penex.lab.training.spread import Spread

    losses = separated(losses)
    out = kept.out
    shared = _shared(storage, tuned, forget, lease_seconds, engine)
    chosen = own.task(task, out, device if engine == "local" else "auto")
    treatment = own.treatment(chosen)
    sources: dict[str, str] = {}
    if tuned:
        like = Comparison(chosen, FIVE[:1], 1, train_size, recipe.given(), treatment)
        sources = _tuned(chosen, losses, like.runs, storage, out)
        losses = tuple(sources)
    comparison = Comparison(
        chosen, losses, seeds, train_size, recipe.given(), treatment, sources, judged
    )
    planned = comparison.runs
    began = time.monotonic()
    watch = progress.watcher(len(planned))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(opened(shared)) if shared else None
        # How long it takes is not for one of many workers to say.
        expected = () if server else planned
        session = stack.enter_context(kept.session(watch, device, expected, engine))
        way = Spread(server, session.say, lease_seconds, forget) if server else packing.carry_out
        listing = carry_out(
            comparison,
            session.place,
            command=given.command_line(),
            pack=pack_size(pack),
            carry_out=way,
        )
    if writes():
        _report(out / chosen.name, listing, time.monotonic() - began)


def train(
    task: TaskName = None,
    /,
    *,
    loss: str,
    seed: int = 0,
    train_size: Size = None,
    device: str = "auto",
    own: OwnData = NO_DATA,
    recipe: Recipe = UNCHANGED,
    kept: Output = AS_USUAL,
) -> None:
    """Train one run, or what is left of it, and print its metrics.

    Args:
        task: what to train on: digits, which comes with penex, or cifar10, cifar100, pathmnist, ...
        loss: what to minimise, with arguments if you like: penex:alpha=0.03.
        seed: decides initialisation, split, order and dropout.
        train_size: how many training examples; the task's own number unless given.
        device: cpu, cuda, cuda:1, mps, or auto for the best one there is.
        own: data of your own, and what is done to data.
        recipe: how to train, where the task's own recipe is not what you want.
        kept: what is written where.
    """
    from penex.cli import progress
    from penex.lab import training
    from penex.lab.tasks import runs

    spec = runs.LossSpec.parse(loss)
    out = kept.out
    chosen = own.task(task, out, device)
    run = runs.plan(chosen, spec, seed, train_size, recipe.given(), own.treatment(chosen))
    watch = progress.watcher(1)
    with kept.session(watch, device, [run]) as session:
        record = training.train(run, session.place)
    if writes():
        done = record.done()
        for part in ("validation", "test"):
            for name, value in done.get(part, {}).items():
                spread = done[f"{part}_spread"][name]
                shown = "not finite" if None in (value, spread) else f"{value:.4f} [{spread:.4f}]"
                print(f"{part:10} {name:19} {shown}")
        print(f"Record: {record.folder}")


def _shared(
    storage: str | None, tuned: bool, forget: bool, lease_seconds: float, engine: EngineName
) -> str | None:
    """The URL of the server on which workers share runs; None if they are all trained here."""
    on_server = storage is not None and is_server(storage)
    if storage is not None and not on_server and not tuned:
        raise LabError(
            "Workers share runs on a PostgreSQL server, as postgresql://user@host/name; another "
            f"storage is for the studies of --tuned{got(storage)}"
        )
    if forget and not on_server:
        raise LabError("--forget is for runs that workers share: it needs --storage postgresql://.")
    if not on_server:
        leases.check_alone(lease_seconds)
    others = ""
    if launched() and int(os.environ["WORLD_SIZE"]) > 1:
        others = "torchrun has one run trained by several processes"
    elif engine == "ray":
        others = "--engine ray has them trained by the nodes of a cluster"
    if not on_server or not others:
        return storage if on_server else None
    if not tuned:
        raise LabError(f"--storage shares runs among workers, and {others}: leave one of them out.")
    return None


def _tuned(
    task: "Task", losses: tuple[str, ...], like: "list[Run]", storage: str | None, out: Path
) -> dict[str, str]:
    """The losses with their tuned values, and where each came from, which is said."""
    from penex.lab.tuning.values import tuned

    found = tuned(task, losses, like, storage, out / task.name, authors_of(task.name))
    if writes():
        for one in found:
            print(f"{one.loss}: {one.source}", file=sys.stderr)
    return {one.loss: one.source for one in found}


def _report(folder: Path, listing: dict[str, Any], seconds: float) -> None:
    """Write tables, figures and the page beside the records; then print."""
    from penex.report import home, results, terminal
    from penex.report.all import write_all

    found = results.load(folder, listing)
    written = write_all(found, found.folder)
    terminal.show(found)
    print(
        f"\n{seconds:.0f} s. In {folder}: {', '.join(path.name for path in written)}, and a record "
        "of every run."
    )
    best = home.best(found.records(), found.view)
    if best is not None:  # every run may have diverged
        command = home.at_work(best, folder, found.view, shown=False).predict
        print(f"The best run by validation cross-entropy, at work: {command}")
