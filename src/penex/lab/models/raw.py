"""Raw inputs of a trained model: from files, images and arrays, in the form it was trained on."""

import functools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penex.lab.data.tokens import Tokenizer
from penex.lab.ground.errors import LabError

_INPUTS = ("x", "x_test", "test_images")  # of an .npz file, the first that is there
_EMPTY = "nothing stands in it"
_CHUNK = 1024  # rows of an array that are looked at together
_DARK = 64.0  # a set of photographs has a brighter pixel somewhere
_OTHER = 4.0  # times the training data's largest number: another scale


class Item(NamedTuple):
    """Something to predict.

    Attributes:
        file: where it came from.
        row: which of several in that file, from 0; None for a file of one.
        value: the raw input, or a sentence why there is none.
    """

    file: str
    row: int | None
    value: Tensor | str


def check(inputs: Tensor, card: dict[str, Any], scale: float | None = None) -> Tensor:
    """Inputs (N, ...) that are raw for sure, multiplied by `scale` if it is given.

    Args:
        inputs: uint8 or floating point.
        card: of the model.
        scale: what makes inputs raw; given, even 1, nobody asks whether numbers from 0 to 1 are.
    """
    shape = tuple(card["shape"])
    if not isinstance(inputs, Tensor):
        raise LabError(
            f"The model takes a tensor; got {type(inputs).__name__}. model.predict takes files, "
            "images and arrays."
        )
    if tuple(inputs.shape[1:]) != shape or inputs.dim() != len(shape) + 1:
        axes = ", ".join(["N", *map(str, shape)])
        raise LabError(f"The model takes inputs of shape ({axes}); got {tuple(inputs.shape)}.")
    if inputs.dtype == torch.bool or inputs.is_complex():
        raise LabError(f"The model takes uint8 or floating-point inputs; got {inputs.dtype}.")
    if scale is not None:
        if not 0 < scale < float("inf"):
            raise LabError(f"scale must be a finite number above 0; got {scale}.")
        inputs = (inputs if inputs.is_floating_point() else inputs.float()) * scale
    if not inputs.numel():
        return inputs
    if not bool(inputs.isfinite().all()):
        raise LabError("The inputs hold a number that is not finite.")
    if len(shape) == 3:
        _check_scale(inputs, card["preprocessing"], scale)
    return inputs


def names_of(preprocessing: dict[str, Any]) -> list[str]:
    """What each input of a table is: a column, or a word of one.

    >>> names_of({"columns": ["colour", "weight"], "words": {"colour": ["blue", "red"]}})
    ['colour=blue', 'colour=red', 'weight']
    """
    words = preprocessing.get("words", {})
    parts = (
        [f"{column}={word}" for word in words[column]] if column in words else [column]
        for column in preprocessing.get("columns", [])
    )
    return [name for part in parts for name in part]


def range_of(made: dict[str, Any]) -> tuple[float, float] | None:
    """Between which numbers raw inputs lie, by the preprocessing; None for older float models.

    Bytes go from 0 to 255, however dark the images were; unless all are so small that they are
    something else: the digits go to 16.

    >>> range_of({"inputs": "uint8", "range": [3.0, 188.0]})
    (0.0, 255.0)
    """
    if made.get("inputs") != "uint8":
        return tuple(made["range"]) if "range" in made else None
    high = made.get("range", (0.0, 255.0))[1]
    return 0.0, high if high < _DARK else 255.0


def _check_scale(images: Tensor, made: dict[str, Any], scale: float | None) -> None:
    """A LabError if images have another scale than the training data's."""
    known_range = range_of(made)
    if known_range is None:
        return
    low, high = known_range
    smallest, largest = (float(value) for value in images.aminmax())
    known = f"the training data went from {low:g} to {high:g}"
    if made.get("inputs") == "uint8" and (smallest < 0 or largest > 255):
        raise LabError(
            f"The images go from {smallest:g} to {largest:g}, but {known}: give the raw pixels, "
            "from 0 to 255, which the model normalises itself."
        )
    floats = images.is_floating_point() and scale is None
    if floats and low >= 0 and high >= _OTHER and smallest >= 0 and 0 < largest <= 1:
        raise LabError(
            f"The images go from {smallest:g} to {largest:g}, but {known}: multiply them by "
            f"{high:g}, or give uint8 (in Python, scale={high:g} multiplies; scale=1 takes them as "
            "they are)."
        )
    if high > 0 and largest > _OTHER * high:
        raise LabError(f"The images go from {smallest:g} to {largest:g}, but {known}.")


def of(things: Any, card: dict[str, Any], scale: float | None = None) -> Tensor:
    """The raw inputs (N, ...) in a path, an image, an array, a tensor, or a list of such."""
    if isinstance(things, list | tuple):
        if not things:
            raise LabError("There is nothing to predict.")
        return torch.cat([of(thing, card, scale) for thing in things])
    if isinstance(things, str) and card["preprocessing"]["kind"] == "texts":
        (text,) = _words(card, [things])
        if isinstance(text, str):
            raise LabError(f"The text {things!r} cannot be predicted: {text}.")
        return text[None]
    if isinstance(things, str | Path):
        return _of_path(Path(things), card)
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None and isinstance(things, pillow.Image):
        return _of_image(things, card)[None]
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(things, numpy.ndarray | numpy.generic):
        return check(_of_array(things, card), card, scale)
    if isinstance(things, Tensor) and things.dim() == len(card["shape"]):
        things = things[None]
    return check(things, card, scale)


def _of_path(path: Path, card: dict[str, Any]) -> Tensor:
    found = []
    for item in items(card, [path]):
        if isinstance(item.value, str):
            raise LabError(f"{item.file} cannot be predicted: {item.value}")
        found.append(item.value)
    if not found:
        raise LabError(f"There is nothing to predict in {path}.")
    return torch.stack(found)


def _of_image(image: Any, card: dict[str, Any]) -> Tensor:
    from penex.lab.data import pixels

    if card["preprocessing"]["kind"] != "images":
        raise LabError("The model was not trained on images: give it an array.")
    made = card["preprocessing"]
    array, grey = pixels.prepared(image, image.format, made["image_size"], made.get("short_side"))
    return torch.from_numpy(pixels.with_channels(array, card["shape"][0], grey))


def _of_array(array: Any, card: dict[str, Any]) -> Tensor:
    from penex.lab.data import arrays

    shape = tuple(card["shape"])
    several = len(shape) == 3 and shape[0] == 1 and array.shape[1:] == shape[1:]
    grey = len(shape) == 3 and array.ndim == 2
    if (array.ndim == len(shape) and not several) or grey:
        array = array[None]
    return arrays.as_inputs(array.copy(), Path("array"), "it")  # torch may write to its own


def files_in(paths: Iterable[Path]) -> list[Path]:
    """Files and, for folders, the files below them, hidden ones left out."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = (p for p in path.rglob("*") if p.is_file())
        found += sorted(
            p for p in inside if not any(n.startswith(".") for n in p.relative_to(path).parts)
        )
    return found


def items(card: dict[str, Any], paths: Iterable[Path]) -> Iterator[Item]:
    """The raw inputs in some files, in their order; a folder stands for the files in it."""
    kind = card["preprocessing"]["kind"]
    readers = {"images": _images, "table": _table, "arrays": _arrays, "texts": _texts}
    for file in files_in(paths):
        numbers = file.suffix.lower() in (".npy", ".npz") and kind != "texts"
        yield from (_arrays if numbers else readers[kind])(card, file)


def _reason(error: Exception) -> str:
    """Why a file cannot be read, its name left out."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return str((isinstance(error, OSError) and error.strerror) or error)


def _images(card: dict[str, Any], path: Path) -> Iterator[Item]:
    from penex.lab.data import pixels

    try:
        content = path.read_bytes()
        if not content:
            raise ValueError("the file is empty")
        made = card["preprocessing"]
        array, grey, _ = pixels.decode(content, made["image_size"], made.get("short_side"))
    except FileNotFoundError as error:
        yield Item(str(path), None, _reason(error))
    except Exception as error:  # Pillow's plugins raise all kinds
        yield Item(str(path), None, pixels.reason(error))
    else:
        value = torch.from_numpy(pixels.with_channels(array, card["shape"][0], grey))
        yield Item(str(path), None, value)


def _table(card: dict[str, Any], path: Path) -> Iterator[Item]:
    from penex.lab.data import table

    columns, words = (card["preprocessing"].get(name, {}) for name in ("columns", "words"))
    try:
        content = table.read_table(path)
        known = set(content.header)
        missing = [name for name in columns if name not in known]
        if missing:
            raise LabError(f"the column {missing[0]!r} is missing")
        values = table.numbers(path, content, columns, words)
    except (LabError, OSError) as error:
        yield Item(str(path), None, _reason(error))
    else:
        yield from (Item(str(path), k, value) for k, value in enumerate(values))


def _texts(card: dict[str, Any], path: Path) -> Iterator[Item]:
    """The text of a file, or those in a column of a .csv file."""
    from penex.lab.data import table, texts

    column = card["preprocessing"]["text_column"]
    try:
        if path.suffix.lower() != ".csv":
            yield Item(str(path), None, _words(card, [texts.decoded(path)])[0])
            return
        content = table.read_table(path)
        if column not in content.header:
            raise LabError(f"the column {column!r} is missing")
    except (LabError, OSError) as error:
        yield Item(str(path), None, _reason(error))
    else:
        place = content.header.index(column)
        for start in range(0, len(content.rows), _CHUNK):
            rows = content.rows[start : start + _CHUNK]
            found = _words(card, [row[place] for row in rows])
            yield from (Item(str(path), start + k, value) for k, value in enumerate(found))


def _words(card: dict[str, Any], given: list[str]) -> list[Tensor | str]:
    """The tokens of texts; a sentence for an empty one, as no model was trained on such."""
    made = card["preprocessing"]
    tokenizer = _kept_tokenizer(made["tokenizer"], made["length"], made["pad"])
    rows = tokenizer.ids(given)
    return [row if text.strip() else _EMPTY for row, text in zip(rows, given, strict=True)]


_kept_tokenizer = functools.lru_cache(maxsize=2)(Tokenizer)  # it takes a while to be read


def _arrays(card: dict[str, Any], path: Path) -> Iterator[Item]:
    """The rows of an array, some at a time: an .npy file may be larger than the memory."""
    import numpy as np

    from penex.lab.data import arrays

    start = 0
    try:
        found = _array(path)
        if not found.ndim:
            raise LabError("it holds a single number")
        for start in range(0, len(found), _CHUNK):
            values = arrays.as_inputs(np.array(found[start : start + _CHUNK]), path, "x")
            check(values, card)
            yield from (Item(str(path), start + k, value) for k, value in enumerate(values))
    except (LabError, OSError, ValueError, EOFError) as error:
        where = f"from row {start} on: " if start else ""
        yield Item(str(path), None, f"{where}{_reason(error)}")


def _array(path: Path) -> Any:
    import numpy as np

    from penex.lab.data import arrays

    if path.suffix.lower() == ".npy":
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise LabError("it holds several arrays: name it .npz")
        return found
    content = arrays.load(path, lambda names: [n for n in _INPUTS if n in names][:1])
    if not content:
        raise LabError(f"it has none of the arrays {', '.join(_INPUTS)}")
    return next(iter(content.values()))
