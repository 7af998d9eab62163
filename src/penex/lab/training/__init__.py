"""How a run is carried out: data, model, training."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from penex import registry
from penex.conex import ZeroSumHead
from penex.lab.data import Data
from penex.lab.engine import checkpoint, loop, seeds
from penex.lab.engine.alone import Alone
from penex.lab.engine.learner import Learner
from penex.lab.engine.recipe import Recipe
from penex.lab.ground import chance, environment, health, memory, ranks
from penex.lab.ground.batches import is_lack_of_memory
from penex.lab.ground.errors import LabError, RecordError
from penex.lab.records import Record
from penex.lab.tasks.runs import Run
from penex.lab.training.flow import Flow
from penex.lab.training.place import Hooks as Hooks
from penex.lab.training.place import Place as Place
from penex.lab.training.writing import Writer


def train(run: Run, place: Place) -> Record:
    """Carry out a run, or what is left of it; its record. A run that is done is not repeated."""
    record, device = place.record(run), place.device
    reused = record.is_done
    if not _is_done(run, record, place):
        with _alone(record, device), settings(run.recipe, device), _enough_memory(run):
            _train(run, record, place)
    place.hooks.done(run, record, reused)
    return record


def _is_done(run: Run, record: Record, place: Place) -> bool:
    """Whether rank 0, which writes, has the run already.

    A damaged one, or one that was trained on other data, raises a RecordError.
    """
    done, wrong = False, None
    if ranks.rank() == 0 and record.is_done:
        try:
            record.verify()
            record.check_data(place.facts(run))
            done = True
        except RecordError as error:
            wrong = error
    ranks.all_or_none(wrong, place.device)
    return ranks.agree(done, place.device)


def check_data(runs: Iterable[Run], place: Place) -> None:
    """A RecordError if a run that is done was trained on other data than those that are here."""
    wrong = None
    if ranks.rank() == 0:
        try:
            for run in runs:
                if (record := place.record(run)).is_done:
                    record.check_data(place.facts(run))
        except RecordError as error:
            wrong = error
    ranks.all_or_none(wrong, place.device)


@contextmanager
def _alone(record: Record, device: torch.device) -> Iterator[None]:
    """Lock the record, on the process that writes it; the others learn if that failed."""
    with ExitStack() as stack:
        wrong = None
        if ranks.rank() == 0:
            try:
                stack.enter_context(record.locked())
            except (RecordError, OSError) as error:
                wrong = error
        ranks.all_or_none(wrong, device)
        yield


@contextmanager
def _enough_memory(run: Run) -> Iterator[None]:
    """Say what helps where a run needs more memory than there is."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        recipe = run.recipe
        raise LabError(
            f"Memory is short for {run.task.name} with micro-batches of "
            f"{-(-recipe.batch_size // recipe.accumulate)} examples. --accumulate, now "
            f"{recipe.accumulate}, makes them smaller; --recompute saves memory in a vit, and "
            "the run goes on where it was; so it does with --shard on several processes. "
            "--autocast or a smaller --model need less too."
        ) from error


@contextmanager
def settings(recipe: Recipe, device: torch.device) -> Iterator[None]:
    """The recipe's matmul precision and a random state of its own, for the time of a run.

    On a CPU a product stays as precise as its dtype: which CPUs shorten it to bfloat16 differs, and
    a result must not. (Some virtual machines announce AMX, which would do that, and then refuse it:
    the process dies of an illegal instruction.)
    """
    if device.type == "cpu":
        memory.keep()
        if recipe.autocast and health.refuses_bfloat16():
            raise LabError(f"--autocast cannot be had on this CPU: {health.NO_BFLOAT16}")
    before = torch.get_float32_matmul_precision()
    with chance.sown(device):
        torch.set_float32_matmul_precision(
            "highest" if device.type == "cpu" else recipe.matmul_precision
        )
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


def learner_of(run: Run, data: Data, device: torch.device) -> Learner:
    """The model, freshly initialised by the run's seed, with its loss and optimiser."""
    if run.recipe.augment and len(data.shape) != 3:
        raise LabError(
            f"--augment {run.recipe.augment} is for images; the inputs of {run.task.name} are none."
        )
    entry = registry.find(run.loss.name)
    head = entry.zero_sum_head
    classes = len(data.classes)
    chance.sow(seeds.derive(run.seed, "initialisation"))
    model = run.task.build(data.shape, classes - 1 if head else classes)
    if head:
        model = nn.Sequential(model, ZeroSumHead())
    options: dict[str, Any] = {}
    if run.treatment.class_weights:
        options["weight"] = balanced_weights(data.train.targets, classes)
    if entry.accumulates:  # its rho moves once a batch
        options["accumulate"] = run.recipe.accumulate
    loss = run.loss.make(**options)
    loss.remember(len(data.train), classes)
    seed = seeds.derive(run.seed, "dropout")
    kind = _sharded() if run.recipe.shard else Learner
    return kind(model, loss, run.recipe, device, seed % 2**32)


def _sharded() -> type[Learner]:
    from penex.lab.engine.sharded import Sharded  # FSDP2 takes a second to import

    return Sharded


def balanced_weights(targets: Tensor, classes: int) -> Tensor:
    """A weight for each class that makes classes count alike: n / (K n_class); 0 if it has none.

    >>> balanced_weights(torch.tensor([0, 0, 0, 1]), 2)
    tensor([0.6667, 2.0000])
    """
    counts = torch.bincount(targets, minlength=classes)
    weights = len(targets) / (classes * counts.clamp(min=1))
    return weights.where(counts > 0, 0.0)


def _train(run: Run, record: Record, place: Place) -> None:
    device, hooks = place.device, place.hooks
    if _is_done(run, record, place):
        return  # another process finished it between the first look and the lock
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    seat = seated(run, record, place)
    if ranks.rank() == 0:
        hooks.begin(run, seat.position.epoch)
    loop.fit(Alone(seat), stop=hooks.stop, save_seconds=hooks.save_seconds)


def seated(run: Run, record: Record, place: Place) -> loop.Seat:
    """A run ready to be trained, from its start or from its last checkpoint."""
    data, device = place.data(run), place.device
    writes = ranks.rank() == 0
    if writes:
        record.begin(run.config, {**environment.describe(device), "data": data.facts})
    learner = learner_of(run, data, device)
    position = loop.start(learner, data)
    checkpoint.load(record.checkpoint, learner, position)
    if writes:
        record.rewind_metrics(position.epoch, position.lines_sha256)
    writer = Writer(run, record, learner, data, position, place.hooks, Flow(data))
    return loop.Seat(learner, data, run.seed, position, writer)
