"""Where numbers go besides metrics.jsonl: TensorBoard or Weights & Biases, if asked for."""

import importlib
from pathlib import Path
from typing import Any

from penex.lab.ground.errors import LabError, unknown
from penex.lab.records import Json, Record


def flat(line: Json) -> dict[str, float]:
    """The numbers of a line under one name each.

    >>> flat({"epoch": 1, "validation": {"accuracy": 0.5}, "rho": None})
    {'epoch': 1, 'validation/accuracy': 0.5}
    """
    numbers: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            numbers |= {f"{name}/{key}": item for key, item in flat(value).items()}
        elif value is not None:
            numbers[name] = value
    return numbers


class TensorBoard:
    """A TensorBoard log in the run's folder: `tensorboard --logdir OUT` shows them all."""

    def __init__(self, folder: Path, config: Json) -> None:
        summary = _need("torch.utils.tensorboard", "tensorboard")
        self._folder, self._summary = folder / "tensorboard", summary
        self._writer: Any = None

    def _open(self, step: int) -> Any:
        """The log; what a killed process wrote from this step on is taken back."""
        if self._writer is None:
            self._writer = self._summary.SummaryWriter(str(self._folder), purge_step=step)
        return self._writer

    def epoch(self, line: Json) -> None:
        """Add the numbers at the line's step."""
        for name, value in flat(line).items():
            if name not in ("epoch", "step"):
                self._open(line["step"]).add_scalar(name, value, line["step"])

    def close(self) -> None:
        """Flush the log."""
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases:
    """A W&B run; WANDB_MODE=offline keeps it on this machine."""

    def __init__(self, folder: Path, config: Json) -> None:
        wandb = _need("wandb", "wandb")
        name = f"{config['task']}/{config['loss']['name']}/seed-{config['seed']}"
        self._run: Any = wandb.init(project="penex", name=name, config=config, dir=str(folder))

    def epoch(self, line: Json) -> None:
        """Log the numbers at the line's step."""
        self._run.log(flat(line), step=line["step"])

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


_SINKS: dict[str, type[TensorBoard] | type[WeightsAndBiases]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}


class Tracker:
    """The sinks of the runs that train now: one, or those of a pack.

    Args:
        name: ``tensorboard``, ``wandb``, or None for nothing.
        out: the folder of all tasks.
    """

    def __init__(self, name: str | None, out: Path) -> None:
        if name is not None and name not in _SINKS:
            raise unknown("tracker", name, _SINKS)
        if name is not None:
            _need({"tensorboard": "torch.utils.tensorboard"}.get(name, name), name)
        self.name, self.out = name, out
        self._sinks: dict[Path, TensorBoard | WeightsAndBiases] = {}

    def begin(self, config: Json) -> None:
        """A run with this configuration starts, or starts again on another machine."""
        if self.name is not None:
            self.end(config)
            folder = Record.of(self.out, config).folder
            folder.mkdir(parents=True, exist_ok=True)
            self._sinks[folder] = _SINKS[self.name](folder, config)

    def epoch(self, config: Json, line: Json) -> None:
        """It finished an epoch; news of a run that is over came too late."""
        sink = self._sinks.get(Record.of(self.out, config).folder)
        if sink is not None:
            sink.epoch(line)

    def end(self, config: Json) -> None:
        """It is over."""
        sink = self._sinks.pop(Record.of(self.out, config).folder, None)
        if sink is not None:
            sink.close()

    def close(self) -> None:
        """All are over."""
        while self._sinks:
            self._sinks.popitem()[1].close()


def _need(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise LabError(
            f"--track {package} needs the package {package}: pip install {package}."
        ) from error
