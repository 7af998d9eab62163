"""What a run leaves: its record while it is trained, and the judgement at its end."""

import time
from dataclasses import dataclass, replace

from torch import Tensor

from penex import metrics, registry
from penex.calibration import fit_temperature
from penex.lab.data import Data, Part
from penex.lab.engine import checkpoint, loop
from penex.lab.engine.evaluation import logits_of, numbers
from penex.lab.engine.learner import Learner
from penex.lab.ground import environment
from penex.lab.models import exported, frozen
from penex.lab.records import Json, Record
from penex.lab.records.reading import BEST, CALIBRATED
from penex.lab.tasks.runs import Run
from penex.lab.training.flow import Flow
from penex.lab.training.place import Hooks


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
        flow: how fast inputs come that stay in their files.
    """

    run: Run
    record: Record
    learner: Learner
    data: Data
    position: loop.Position
    hooks: Hooks
    flow: Flow

    def epoch(self, line: Json) -> None:
        """Add the line of an epoch."""
        self.record.add_metrics(line)
        self.hooks.epoch(self.run, {**line, **self.flow.epoch()})

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
                card = _card_of(self.run, self.learner, self.data)
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
        for sentence in self.flow.sentences():
            self.hooks.say(sentence)

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
            found = _judged(_outputs(learner, self.data), self.data, learner.loss.temperature)
            if found is not None:
                (self.record.folder / BEST).mkdir(exist_ok=True)
                exported.save(self.record.folder / BEST, learner.module, card)
        return None if found is None else {"epoch": epoch, **found}


def _card_of(run: Run, learner: Learner, data: Data) -> Json:
    """What model.json says besides its format: all that a prediction needs but the numbers."""
    encoder = run.task.encoder
    preprocessing = {
        **run.task.preprocessing,
        **(encoder.card if encoder else {}),
        "inputs": str(data.train.inputs.dtype).removeprefix("torch."),
        "range": _range(data.train),
        "mean": data.mean.flatten().tolist(),
        "std": data.std.flatten().tolist(),
    }
    shape = list(data.shape)
    if encoder and run.task.frozen:
        preprocessing, shape = frozen.card(encoder, preprocessing), [encoder.tokenizer.length]
    return {
        "model": run.task.model,
        "model_source": run.task.identity.get("model_source"),
        "shape": shape,
        "zero_sum_head": registry.find(run.loss.name).zero_sum_head,
        "classes": list(data.classes),
        "temperature": learner.loss.temperature,
        "preprocessing": preprocessing,
        "loss": str(run.loss),
        "task": run.task.name,
    }


def _range(part: Part) -> list[float]:
    """The least and the largest number among inputs; of images in files, those they may have."""
    if part.stream is not None:
        return [0.0, 255.0]
    return [float(value) for value in part.inputs.aminmax()]


def _evaluate(record: Record, learner: Learner, data: Data) -> Json | None:
    """Write the predictions; the metrics of validation and test with their bootstrap spreads.

    None if an output is not finite.
    """
    logits = _outputs(learner, data)
    results = _judged(logits, data, learner.loss.temperature)
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


def _judged(logits: dict[str, Tensor], data: Data, temperature: float) -> Json | None:
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
