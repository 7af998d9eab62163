"""Checkpoints: all that a run needs to go on, as safetensors and JSON.

`checkpoint/step-N.safetensors` holds the tensors by name, `checkpoint/position.json` says which
file is meant and where the run stands. The JSON is renamed into place last, so a checkpoint is
whole or absent.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from penex.lab.engine.learner import Learner
from penex.lab.engine.loop import Position
from penex.lab.ground import files, ranks
from penex.lab.ground.errors import LabError, RecordError
from penex.lab.records.sealing import is_as_sealed, sealed

FORMAT = 1

_POSITION = "position.json"


def save(folder: Path, learner: Learner, position: Position) -> None:
    """Write a checkpoint; the one before is removed when the new one stands."""
    steps = int(learner.count.item())
    name = f"step-{steps}.safetensors"
    tensors = {**learner.tensors(), **learner.kept(), "history": position.history}
    # Copies: layers that share weights have one tensor under two names, which no file takes.
    cpu = {key: value.detach().cpu().clone().contiguous() for key, value in tensors.items()}
    content: bytes = _safetensors().save(cpu)
    folder.mkdir(exist_ok=True)  # alone: a run's folder that was removed must not come back
    files.write(folder / name, content)
    place = {
        "format": FORMAT,
        "epoch": position.epoch,
        "step": position.step,
        "steps": steps,
        "tensors": name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "lines_sha256": position.lines_sha256,
        "best_epoch": position.best_epoch,
        "best_value": position.best_value if position.best_epoch else None,
    }
    files.write_json(folder / _POSITION, sealed(place))
    for other in folder.glob("step-*.safetensors"):
        if other.name != name:
            other.unlink()


def load(folder: Path, learner: Learner, position: Position) -> bool:
    """Go back to the checkpoint in a folder; False if there is none. On rank 0, then shared."""
    found, wrong = False, None
    if ranks.rank() == 0 and (folder / _POSITION).exists():
        try:
            _load(folder, learner, position)
            found = True
        except RecordError as error:
            wrong = error
    ranks.all_or_none(wrong, learner.device)
    if not ranks.agree(found, learner.device):
        return False
    place = torch.tensor([position.epoch, position.step], device=learner.device)
    ranks.share([place, position.history], learner.device)
    learner.share()
    position.epoch, position.step = (int(number) for number in place.tolist())
    return True


def _load(folder: Path, learner: Learner, position: Position) -> None:
    try:
        place: dict[str, Any] = files.loads((folder / _POSITION).read_text())
        written = place.get("format", FORMAT)  # the first format had no number
        if written != FORMAT:
            raise RecordError(
                f"The checkpoint in {folder} has the format {written!r}; this version of penex "
                f"reads {FORMAT}. Go on with the version that wrote it, or remove the folder to "
                "train this run from its start."
            )
        if not is_as_sealed(place):
            raise ValueError("its position was changed")
        content = (folder / place["tensors"]).read_bytes()
        if hashlib.sha256(content).hexdigest() != place["sha256"]:
            raise ValueError("its checksum is another")
        tensors: dict[str, Tensor] = _safetensors().load(content)
        history = tensors.pop("history")
        if history.shape != position.history.shape:
            raise ValueError("its epoch has another length")
        position.history.copy_(history)
        # Older checkpoints hold the generators' states; now every step has its own.
        learner.load({k: v for k, v in tensors.items() if not k.startswith("random.")})
        epoch, step, steps = int(place["epoch"]), int(place["step"]), len(history)
        if not (0 <= step < steps and epoch * steps + step == int(learner.count.item())):
            raise ValueError("its position is not that of its tensors")
        position.epoch, position.step = epoch, step
        position.lines_sha256 = str(place.get("lines_sha256", ""))  # older ones have none
        position.best_epoch = place.get("best_epoch")  # nor this
        if bool(position.best_epoch) != bool(learner.best):
            raise ValueError("its best epoch is not that of its tensors")
        if position.best_epoch:
            position.best_value = float(place["best_value"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
        raise RecordError(
            f"The checkpoint in {folder} cannot be read ({error}). Remove the folder to train this "
            "run from its start."
        ) from error


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise LabError("Checkpoints need safetensors: pip install safetensors.") from error
    return safetensors.torch
