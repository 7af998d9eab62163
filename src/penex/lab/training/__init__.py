"""How a run is carried out: data, model, training, and what it leaves."""

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from penex import metrics, registry
from penex.calibration import fit_temperature
from penex.conex import ZeroSumHead
from penex.lab.data import Data, Part
from penex.lab.engine import checkpoint, loop, seeds
from penex.lab.engine.alone import Alone
from penex.lab.engine.evaluation import logits_of, numbers
from penex.lab.engine.learner import Learner
from penex.lab.engine.recipe import Recipe
from penex.lab.ground import chance, environment, memory, ranks
from penex.lab.ground.errors import LabError, RecordError
from penex.lab.models import exported
from penex.lab.records import Json, Record
from penex.lab.records.reading import BEST, CALIBRATED
from penex.lab.tasks.runs import Run
from penex.lab.training.place import Hooks as Hooks
from penex.lab.training.place import Place as Place


def train(run: Run, place: Place) -> Record:
    """Carry out a run, or what is left of it; its record. A run that is done is not repeated."""
    record, device = place.record(run), place.device
    reused = record.is_done
    if not _is_done(run, record, place):
        with _alone(record, device), settings(run.recipe, device):
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
def settings(recipe: Recipe, device: torch.device) -> Iterator[None]:
    """The recipe's matmul precision and a random state of its own, for the time of a run."""
    if device.type == "cpu":
        memory.keep()
    before = torch.get_float32_matmul_precision()
    with chance.sown(device):
        torch.set_float32_matmul_precision(recipe.matmul_precision)
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
    return Learner(model, loss, run.recipe, device, seed % 2**32)


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
    writer = Writer(run, record, learner, data, position, place.hooks)
    return loop.Seat(learner, data, run.seed, position, writer)


@dataclass(frozen=True)
class Writer:
    """Writes the record of a run while it is trained.

    Attributes:
        run: what is trained.
        record: of the run.
        learner: the model.
        data: of the run.
        position: how far it has come.
        hooks: who watches.
    """

    run: Run
    record: Record
    learner: Learner
    data: Data
    position: loop.Position
    hooks: Hooks

    def epoch(self, line: Json) -> None:
        """Add the line of an epoch."""
        self.record.add_metrics(line)
        self.hooks.epoch(self.run, line)

    def save(self, position: loop.Position, seconds: float) -> None:
        """Write a checkpoint."""
        position.lines_sha256 = self.record.keep_metrics()
        checkpoint.save(self.record.checkpoint, self.learner, position)
        self.record.add_time(seconds)

    def end(self, outcome: loop.Outcome, seconds: float) -> None:
        """Write what a run that came to its end leaves."""
        began = time.monotonic()
        results: Json | None = {}
        if outcome.status == "completed":
            results = _evaluate(self.record, self.learner, self.data)
            if results is None:
                what = f"the outputs for the test set were not finite at step {outcome.steps}"
                outcome = replace(outcome, status="diverged", reason=what)
            else:
                card = card_of(self.run, self.learner, self.data)
                exported.save(self.record.folder, self.learner.module, card)
                results["best"] = self._best(card, results)
        total = self.record.add_time(seconds + time.monotonic() - began)
        self.record.finish(
            {
                "status": outcome.status,
                "steps": outcome.steps,
                "reason": outcome.reason,
                "diverged": outcome.numbers or None,
                "classes": len(self.data.classes),
                **(results or {}),
                "wall_time": total,
                "peak_memory": environment.peak_memory(self.learner.device),
            },
            keep_checkpoint=self.hooks.keep_checkpoints,
        )

    def _best(self, card: Json, last: Json) -> Json | None:
        """The same judgement after the best epoch, whose network lies in a folder of its own.

        None where that epoch is not known; the last epoch's own where it is the best.
        """
        epoch, learner = self.position.best_epoch, self.learner
        if not epoch:
            return None
        if epoch == self.run.recipe.epochs:
            return {"epoch": epoch, **last}
        with learner.at_best():
            found = judged(_outputs(learner, self.data), self.data, learner.loss.temperature)
            if found is not None:
                (self.record.folder / BEST).mkdir(exist_ok=True)
                exported.save(self.record.folder / BEST, learner.module, card)
        return None if found is None else {"epoch": epoch, **found}


def card_of(run: Run, learner: Learner, data: Data) -> Json:
    """What model.json says besides its format: all that a prediction needs but the numbers."""
    return {
        "model": run.task.model,
        "model_source": run.task.identity.get("model_source"),
        "shape": list(data.shape),
        "zero_sum_head": registry.find(run.loss.name).zero_sum_head,
        "classes": list(data.classes),
        "temperature": learner.loss.temperature,
        "preprocessing": {
            **run.task.preprocessing,
            "inputs": str(data.train.inputs.dtype).removeprefix("torch."),
            "range": [float(value) for value in data.train.inputs.aminmax()],
            "mean": data.mean.flatten().tolist(),
            "std": data.std.flatten().tolist(),
        },
        "loss": str(run.loss),
        "task": run.task.name,
    }


def _evaluate(record: Record, learner: Learner, data: Data) -> Json | None:
    """Write the predictions; the metrics of validation and test with their bootstrap spreads.

    None if an output is not finite.
    """
    logits = _outputs(learner, data)
    results = judged(logits, data, learner.loss.temperature)
    if results is not None:
        record.write_predictions(
            learner.loss.temperature,
            val_logits=logits["validation"],
            val_targets=data.val.targets,
            test_logits=logits["test"],
            test_targets=data.test.targets,
        )
    return results


def _parts(data: Data) -> dict[str, Part]:
    return {"validation": data.val, "test": data.test}


def _outputs(learner: Learner, data: Data) -> dict[str, Tensor]:
    return {name: logits_of(learner, data, part) for name, part in _parts(data).items()}


def judged(logits: dict[str, Tensor], data: Data, temperature: float) -> Json | None:
    """What is to be said of a network's outputs: at its loss's temperature, and at a fitted one.

    The fitted one is that of the validation set, which is therefore judged too kindly at it. None
    if an output is not finite.

    Args:
        logits: of the parts, by name.
        data: of the run.
        temperature: of the loss.
    """
    if not all(bool(some.isfinite().all()) for some in logits.values()):
        return None
    fitted = float(fit_temperature(logits["validation"], data.val.targets))
    own = _at(temperature, logits, data)
    return {**own, CALIBRATED: {"temperature": fitted, **_at(fitted, logits, data)}}


def _at(temperature: float, logits: dict[str, Tensor], data: Data) -> Json:
    results: Json = {}
    for name, part in _parts(data).items():
        scores = metrics.scores(
            logits[name], part.targets, temperature=temperature, votes=part.votes
        )
        results[name] = numbers(metrics.summary(scores))
        results[f"{name}_spread"] = numbers(metrics.bootstrap_scores(scores))
    return results
