"""A trained model on its own: two files, and how to load them with torch alone."""

import hashlib
import struct
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from penex.conex import ZeroSumHead
from penex.lab.data import normalise
from penex.lab.ground import files
from penex.lab.ground.batches import Batches
from penex.lab.ground.errors import LabError, RecordError
from penex.lab.models import card as cards
from penex.lab.models import encoder as encoders
from penex.lab.models import find, raw, source, state, tensors

CARD, TENSORS = "model.json", "model.safetensors"
_DONE = "done.json"  # of the record, which vouches for both
_FORMAT = 1


class Prediction(NamedTuple):
    """What a model says of one input.

    Attributes:
        label: the name of the most probable class.
        confidence: its probability.
        probabilities: that of every class, with as many digits as tell it from its neighbours.
    """

    label: str
    confidence: float
    probabilities: dict[str, float]


class Exported(nn.Module):
    """A trained network from raw inputs to calibrated probabilities.

    Raw are the numbers that the training data had: of images uint8, 0 to 255. Inputs of another
    shape, or images of another scale, are refused with a LabError.

    Args:
        network: from normalised inputs to logits.
        card: what model.json holds.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, card: dict[str, Any]) -> None:
        super().__init__()
        self.network = network
        self.card = card
        self.classes: tuple[str, ...] = tuple(card["classes"])
        self.temperature = float(card["temperature"])
        shape = (-1, *[1] * (len(card["shape"]) - 1))
        # Inputs that need float64 are normalised in it; other devices than a CPU may have none.
        single = card["preprocessing"].get("inputs") in ("uint8", "float32")
        for name in ("mean", "std"):
            value = torch.tensor(card["preprocessing"][name], dtype=torch.float64).reshape(shape)
            self.register_buffer(name, value.float() if single else value, persistent=False)

    def logits(self, inputs: Tensor, *, scale: float | None = None) -> Tensor:
        """The logits of raw inputs (N, ...), as the network gives them.

        Args:
            inputs: uint8 or floating point.
            scale: what makes inputs raw when they are multiplied by it: 255 for images from 0 to 1.
        """
        return self.unchecked_logits(raw.check(inputs, self.card, scale))

    def forward(self, inputs: Tensor, *, scale: float | None = None) -> Tensor:
        """The probability of each class, softmax(logits / temperature); see `logits`."""
        found = self.unchecked(raw.check(inputs, self.card, scale))
        if not bool(found.isfinite().all()):
            raise LabError("The model's answer is not finite: inputs are far from what it knows.")
        return found

    def predict(self, inputs: Any, *, scale: float | None = None) -> list[Prediction]:
        """Predictions for files, Pillow images, arrays or tensors: one for each input in them.

        Args:
            inputs: a path or an image, which are prepared as the training data were; an array or a
                tensor of one input or several; or a list of such. Where the training data were
                texts, a str is a text and a Path is a file.
            scale: see `logits`.

        Needs Pillow and numpy for all but tensors.
        """
        values = raw.of(inputs, self.card, scale)
        with torch.no_grad():
            found = Batches(self.mean.device)(lambda i, j: self.unchecked(values[i:j]), len(values))
        if not bool(found.isfinite().all()):
            raise LabError("The model's answer is not finite: inputs are far from what it knows.")
        return [self.prediction(row) for row in found.cpu()]

    def unchecked_logits(self, inputs: Tensor) -> Tensor:
        """The logits of inputs that were checked before."""
        dtype = next(self.network.parameters()).dtype
        there = inputs.to(self.mean.device)
        result: Tensor = self.network(normalise(there, self.mean, self.std, dtype))
        return result

    def unchecked(self, inputs: Tensor) -> Tensor:
        """The probabilities of inputs that were checked before."""
        return torch.softmax(self.unchecked_logits(inputs) / self.temperature, dim=1)

    def prediction(self, row: Tensor) -> Prediction:
        """What the probabilities of one input say."""
        short = _shortest if row.dtype == torch.float32 else float
        named = dict(zip(self.classes, map(short, row.tolist()), strict=True))
        label = self.classes[int(row.argmax())]
        return Prediction(label, named[label], named)


def _shortest(value: float) -> float:
    """The number with the fewest digits that is the same in float32.

    >>> _shortest(0.10000000149011612)
    0.1
    """
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if struct.unpack("f", struct.pack("f", short))[0] == value:
            return short
    return float(f"{value:.9g}")


def save(folder: Path, network: nn.Module, card: dict[str, Any]) -> None:
    """Write model.safetensors and model.json."""
    import safetensors.torch

    content = safetensors.torch.save(
        {
            name: value.detach().cpu().clone().contiguous()
            for name, value in state.of(network).items()
        }
    )
    files.write(folder / TENSORS, content)
    files.write_json(folder / CARD, {"format": _FORMAT, **card, "sha256": _sha256(content)})


def load(
    folder: str | Path, *, own_code: bool = False, encoder: str | Path | None = None
) -> Exported:
    """The model that a run left in its folder, ready to predict.

    It needs torch and this package; texts need transformers too. The two files are held against the
    checksums in model.json and in the run's done.json, where these have them.

    Args:
        folder: of a completed run.
        own_code: True to import the module of a model of one's own: that runs its code.
        encoder: of a model that learned on the features of a frozen one: where that is, if it is
            not found by its name.
    """
    folder = Path(folder)
    try:
        card, content = _read(folder)
        own = ":" in card["model"]
        if own:
            _check_own(folder, card, own_code)
        found = tensors.parse(content)
        made = card["preprocessing"]
        reads = made["kind"] == "texts" and "features" not in made
        real = own or reads  # it has buffers that are not saved
        network = _network(card, real)
        kind = next((v.dtype for v in found.values() if v.is_floating_point()), torch.float32)
        state.take(network.to(kind), found, assign=not real)
        _check_finite(network)
        if "features" in made:
            network = _reading(made, network, encoder)
        elif encoder is not None:
            raise RecordError(f"The model in {folder} needs no encoder: it is whole.")
        return Exported(network, card).eval()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RecordError(
            f"{folder} holds no trained model ({error.filename} is missing): give the folder of a "
            "completed run, runs/<task>/<loss>/<hash>/seed-<n>."
        ) from error
    except (
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        RuntimeError,
        MemoryError,
    ) as error:
        what = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise RecordError(f"The model in {folder} is damaged: {what}.") from error


def _read(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The card and the bytes of the tensors, as they were written."""
    sums = _sums(folder)
    content = {name: (folder / name).read_bytes() for name in (CARD, TENSORS)}
    for name, expected in sums.items():
        if name in content and _sha256(content[name]) != expected:
            raise ValueError(f"the checksum of {name} is not the one in {_DONE}")
    card = files.loads(content[CARD])
    if not isinstance(card, dict):
        raise ValueError("model.json is no object")
    if card.get("format") != _FORMAT:
        raise RecordError(
            f"{folder / CARD} was written by another version of penex (format "
            f"{card.get('format')!r}; this one has {_FORMAT})."
        )
    if "sha256" in card and _sha256(content[TENSORS]) != card["sha256"]:
        raise ValueError(f"the checksum of {TENSORS} is not the one in {CARD}")
    cards.check(card)
    return card, content[TENSORS]


def _sums(folder: Path) -> dict[str, Any]:
    """The checksums that a run's record has; none where the model was copied without it."""
    if not (folder / _DONE).exists():
        if folder.name == "" or not (folder.parent / _DONE).exists():
            return {}
        prefix = f"{folder.name}/"  # a folder in a run's own, as that of its best epoch
        rest = _sums(folder.parent).items()
        return {name.removeprefix(prefix): sum_ for name, sum_ in rest if name.startswith(prefix)}
    done = files.loads((folder / _DONE).read_bytes())
    if isinstance(done, dict) and done.get("status") == "diverged":
        raise RecordError(f"The run in {folder} diverged, so it left no model.")
    sums = done.get("sha256") if isinstance(done, dict) else None
    if not isinstance(sums, dict):
        raise ValueError(f"{_DONE} has no checksums")
    return sums


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _network(card: dict[str, Any], real: bool) -> nn.Module:
    """The network of a card; unless it is to be real without memory, which the tensors bring."""
    head, n_out = card["zero_sum_head"], len(card["classes"])
    n_out -= head
    made = card["preprocessing"]
    with torch.device("cpu" if real else "meta"):
        if "features" in made:
            network = find(card["model"], trained=True)([len(made["features"]["mean"])], n_out)
        elif made["kind"] == "texts":
            network = encoders.of_card(made, n_out)
        else:
            network = find(card["model"], trained=True)(card["shape"], n_out)
        return nn.Sequential(network, ZeroSumHead()) if head else network


def _reading(made: dict[str, Any], network: nn.Module, given: str | Path | None) -> nn.Module:
    """The network with its encoder before it, which needs numpy where this module does not."""
    from penex.lab.models import frozen

    return frozen.whole(made, network, None if given is None else str(given))


def _check_own(folder: Path, card: dict[str, Any], own_code: bool) -> None:
    if not own_code:
        raise RecordError(
            f"The model in {folder} is made by {card['model']}, code outside penex: say --own-code "
            "(in Python, own_code=True) to import it."
        )
    if source(card["model"]) != card.get("model_source"):
        raise RecordError(
            f"The code of {card['model']} is not the one that the model in {folder} was trained "
            "with: it would compute something else."
        )


def _check_finite(network: nn.Module) -> None:
    """A ValueError where a weight is not finite; a buffer may well be a mask of -inf."""
    for name, weight in network.named_parameters():
        if not bool(weight.isfinite().all()):
            raise ValueError(f"{name} holds numbers that are not finite")
    for name, buffer in network.named_buffers():
        if bool(buffer.isnan().any()):
            raise ValueError(f"{name} holds numbers that are not finite")
