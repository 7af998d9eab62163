"""One run: a task, a loss, a recipe and a seed; what it is, and how it is carried out."""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penex import metrics, registry
from penex.conex import ZeroSumHead
from penex.lab import environment, tasks
from penex.lab.data import Data
from penex.lab.engine import checkpoint, loop, ranks, seeds
from penex.lab.engine.evaluation import logits_of, numbers, scores_of
from penex.lab.engine.learner import AnyLoss, Learner
from penex.lab.errors import LabError
from penex.lab.recipe import Recipe
from penex.lab.records import FORMAT, Json, Record

Value = float | bool | str


@dataclass(frozen=True)
class LossSpec:
    """A loss by its name, with arguments: ``penex``, or ``penex:alpha=0.03,order=listing``.

    Attributes:
        name: the name in the registry.
        arguments: what was given, over the registry's defaults.
    """

    name: str
    arguments: dict[str, Value] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "LossSpec":
        """The loss of a word on the command line.

        >>> LossSpec.parse("penex:alpha=0.03").arguments
        {'alpha': 0.03}
        """
        name, _, rest = text.partition(":")
        arguments = {}
        for pair in filter(None, rest.split(",")):
            key, equals, value = pair.partition("=")
            if not equals:
                raise LabError(
                    f"{text!r} is not a loss: write name:argument=value, as penex:alpha=0.03."
                )
            arguments[key.strip()] = _value(value.strip())
        spec = cls(name, arguments)
        spec.make()
        return spec

    @property
    def resolved(self) -> dict[str, Value]:
        """The arguments with the defaults of what was not given."""
        return {**registry.find(self.name).defaults, **self.arguments}

    def make(self, **options: Any) -> AnyLoss:
        """The loss itself, or a LabError if there is none such."""
        try:
            return registry.make(self.name, **self.arguments, **options)
        except (TypeError, ValueError) as error:
            raise LabError(str(error)) from error

    def __str__(self) -> str:
        given = ",".join(
            f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in self.arguments.items()
        )
        return f"{self.name}:{given}" if given else self.name


def _value(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        task: the name of the task.
        loss: what is minimised.
        recipe: how; the learning rate is already this loss's.
        seed: decides initialisation, split, order and dropout.
        train_size: the number of training examples.
    """

    task: str
    loss: LossSpec
    recipe: Recipe
    seed: int
    train_size: int

    @property
    def config(self) -> Json:
        """What decides the result, resolved: config.json."""
        return {
            "format": FORMAT,
            "task": self.task,
            "loss": {"name": self.loss.name, "arguments": self.loss.resolved},
            "model": tasks.find(self.task).model,
            "train_size": self.train_size,
            "recipe": asdict(self.recipe),
            "seed": self.seed,
        }

    def __str__(self) -> str:
        return f"{self.loss} seed {self.seed}"


def plan(
    task: str,
    loss: LossSpec,
    seed: int,
    train_size: int | None = None,
    changes: dict[str, Any] | None = None,
) -> Run:
    """The run of a loss on a task, with the task's recipe where `changes` says nothing."""
    if seed < 0:
        raise LabError(f"A seed must be at least 0; got {seed}.")
    found = tasks.find(task)
    changes = dict(changes or {})
    if loss.name in found.rates:
        changes.setdefault("lr", found.rates[loss.name])
    recipe = replace(found.recipe, **changes)
    return Run(task, loss, recipe, seed, found.train_size if train_size is None else train_size)


@dataclass(frozen=True)
class Hooks:
    """What someone who watches a run is told, and may ask for.

    Attributes:
        begin: (run, epochs already trained) before training.
        epoch: (run, line) after each epoch.
        stop: asked after each step; True to save and stop.
        save_seconds: how often to save a checkpoint.
    """

    begin: Callable[[Run, int], None] = lambda run, epochs: None
    epoch: Callable[[Run, Json], None] = lambda run, line: None
    stop: Callable[[], bool] = loop.never
    save_seconds: float = 30.0

    def __post_init__(self) -> None:
        if not self.save_seconds >= 0:
            raise LabError(f"save_seconds must be a number of at least 0; got {self.save_seconds}.")


def train(run: Run, out: Path, device: torch.device, hooks: Hooks | None = None) -> Record:
    """Carry out a run, or what is left of it; its record. A run that is done is not repeated."""
    hooks = hooks or Hooks()
    record = Record.of(out, run.config)
    if not _is_done(record, device):
        with _alone(record), _settings(run.recipe, device):
            _train(run, record, device, hooks)
    return record


def _is_done(record: Record, device: torch.device) -> bool:
    """Whether rank 0, which writes, has the run already; a damaged one raises a RecordError."""
    done = ranks.rank() == 0 and record.is_done
    if done:
        record.config()
        record.done()
    return ranks.agree(done, device)


@contextmanager
def _alone(record: Record) -> Iterator[None]:
    """Lock the record, on the process that writes it."""
    if ranks.rank() == 0:
        with record.locked():
            yield
    else:
        yield


@contextmanager
def _settings(recipe: Recipe, device: torch.device) -> Iterator[None]:
    """The recipe's matmul precision and a random state of its own, for the time of a run."""
    before = torch.get_float32_matmul_precision()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.set_float32_matmul_precision(recipe.matmul_precision)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


def learner_of(run: Run, data: Data, device: torch.device) -> Learner:
    """The model, freshly initialised by the run's seed, with its loss and optimiser."""
    entry = registry.find(run.loss.name)
    classes = len(data.classes)
    torch.manual_seed(seeds.derive(run.seed, "initialisation"))
    build = tasks.find(run.task).build
    model = build(data.shape, classes - 1 if entry.zero_sum_head else classes)
    if entry.zero_sum_head:
        model = nn.Sequential(model, ZeroSumHead())
    micro = {"accumulate": run.recipe.accumulate} if run.loss.name == "penex" else {}
    learner = Learner(model, run.loss.make(**micro), run.recipe, device)
    torch.manual_seed(seeds.derive(run.seed, "dropout"))
    return learner


@functools.lru_cache(maxsize=4)
def data_of(task: str, seed: int, train_size: int, device: torch.device) -> Data:
    """The data of a run, on the device; runs that differ in their loss share it."""
    return tasks.find(task).load(seed, train_size).to(device)


def _train(run: Run, record: Record, device: torch.device, hooks: Hooks) -> None:
    began = time.monotonic()
    writes = ranks.rank() == 0
    if _is_done(record, device):
        return  # another process finished it between the first look and the lock
    data = data_of(run.task, run.seed, run.train_size, device)
    if writes:
        record.begin(run.config, {**environment.describe(device), "data": data.facts})
    learner = learner_of(run, data, device)
    position = loop.start(learner, data)
    checkpoint.load(record.checkpoint, learner, position)
    if writes:
        record.rewind_metrics(position.epoch)
        hooks.begin(run, position.epoch)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)

    def on_epoch(line: Json) -> None:
        record.add_metrics(line)
        hooks.epoch(run, line)

    def save(position: loop.Position) -> None:
        nonlocal began
        checkpoint.save(record.checkpoint, learner, position)
        record.add_time(time.monotonic() - began)
        began = time.monotonic()

    outcome = loop.fit(
        learner,
        data,
        run.seed,
        position,
        on_epoch=on_epoch,
        save=save,
        stop=hooks.stop,
        save_seconds=hooks.save_seconds,
    )
    if writes:
        results = _evaluate(record, learner, data) if outcome.status == "completed" else {}
        seconds = record.add_time(time.monotonic() - began)
        record.finish(
            {
                "status": outcome.status,
                "steps": outcome.steps,
                "reason": outcome.reason,
                "diverged": outcome.numbers or None,
                **results,
                "wall_time": seconds,
                "peak_memory": environment.peak_memory(device),
            }
        )


def _evaluate(record: Record, learner: Learner, data: Data) -> Json:
    """Write the predictions; the metrics of validation and test with their bootstrap spreads."""
    results: Json = {}
    arrays: dict[str, Tensor] = {}
    for name, short, part in (("validation", "val", data.val), ("test", "test", data.test)):
        logits = logits_of(learner, data, part)
        scores = scores_of(learner, logits, part)
        results[name] = numbers(metrics.summary(scores))
        results[f"{name}_spread"] = numbers(metrics.bootstrap_scores(scores))
        arrays |= {f"{short}_logits": logits, f"{short}_targets": part.targets}
    record.write_predictions(learner.loss.temperature, **arrays)
    return results
