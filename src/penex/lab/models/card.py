"""What model.json says of a trained model, and what it must say."""

import math
from typing import Any

_LARGEST = 2**28  # numbers of one input
_NEEDS = {"images": "image_size", "table": "columns", "arrays": "kind", "texts": "tokenizer"}


def check(card: dict[str, Any]) -> None:
    """A ValueError if a card does not say what a model needs, in the form it needs it."""
    shape: Any = card.get("shape")
    classes: Any = card.get("classes")
    temperature: Any = card.get("temperature")
    if not isinstance(shape, list) or not shape or not all(_is_count(n) for n in shape):
        raise ValueError(f"the shape {shape!r} is none")
    if math.prod(shape) > _LARGEST:
        raise ValueError(f"an input of shape {shape} is too large")
    if not _names(classes) or len(set(classes)) != len(classes) or len(classes) < 2:
        raise ValueError("the classes are no list of different names")
    if not _is_number(temperature) or not 0 < float(temperature) < math.inf:
        raise ValueError(f"the temperature {temperature!r} is none")
    if not isinstance(card.get("model"), str):
        raise ValueError("the model has no name")
    if not isinstance(card.get("zero_sum_head"), bool):
        raise ValueError("it does not say whether the model has a zero-sum head")
    if not isinstance(card.get("preprocessing"), dict):
        raise ValueError("it has no preprocessing")
    _check_preprocessing(card["preprocessing"], shape)


def _check_preprocessing(given: dict[str, Any], shape: list[int]) -> None:
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in _NEEDS:
        raise ValueError("the preprocessing is of no known kind")
    if _NEEDS[kind] not in given:
        raise ValueError(f"the preprocessing lacks {_NEEDS[kind]}")
    if kind == "images":
        side = given["image_size"]
        if not _is_count(side) or shape not in ([1, side, side], [3, side, side]):
            raise ValueError(f"images of {side!r} pixels are no inputs of shape {shape}")
        short = given.get("short_side", side)
        if not _is_count(short) or not side <= short <= 2 * side:
            raise ValueError(f"a shorter side of {short!r} pixels is none for {side}")
    if kind == "table":
        _check_table(given["columns"], given.get("words", {}), shape)
    if kind == "texts":
        _check_texts(given, shape)
    for name, least in (("mean", -math.inf), ("std", 0.0)):
        values = given.get(name)
        if not isinstance(values, list) or len(values) not in (1, shape[0]):
            raise ValueError(f"the {name} is not one number for each channel")
        if not all(_is_number(v) and least < float(v) < math.inf for v in values):
            raise ValueError(f"the {name} holds what is no {name}")
    if "inputs" in given and given["inputs"] not in ("uint8", "int32", "float32", "float64"):
        raise ValueError(f"inputs are never {given['inputs']!r}")
    if "range" in given:
        low, high = given["range"] if _is_pair(given["range"]) else (1, 0)
        if not -math.inf < float(low) <= float(high) < math.inf:
            raise ValueError("the range is no pair of numbers")


def _check_table(columns: Any, words: Any, shape: list[int]) -> None:
    if not _names(columns):
        raise ValueError("the columns are no list of names")
    if not isinstance(words, dict) or not set(words) <= set(columns):
        raise ValueError("the words are not those of columns")
    for name, known in words.items():
        if not isinstance(known, list) or not known or not all(type(w) is str for w in known):
            raise ValueError(f"the words of the column {name!r} are none")
        if len(set(known)) < len(known):
            raise ValueError(f"the column {name!r} has a word twice")
    if shape != [sum(len(words.get(name, "x")) for name in columns)]:
        raise ValueError(f"the columns are no inputs of shape {shape}")


def _check_texts(given: dict[str, Any], shape: list[int]) -> None:
    if not isinstance(given["tokenizer"], str) or not isinstance(given.get("config"), dict):
        raise ValueError("it has no tokeniser, or no form of the encoder")
    if not _is_count(given.get("length")) or shape != [given["length"]]:
        raise ValueError(f"texts of {given.get('length')!r} tokens are no inputs of shape {shape}")
    if type(given.get("pad")) is not int or given["pad"] < 0:
        raise ValueError(f"the padding {given.get('pad')!r} is no token")
    if not isinstance(given.get("text_column"), str):
        raise ValueError("the column of texts has no name")
    if "features" in given:
        _check_features(given["features"], given.get("encoder"))


def _check_features(given: Any, encoder: Any) -> None:
    if not isinstance(given, dict) or not isinstance(given.get("encoder_sha256"), str):
        raise ValueError("it does not say which encoder its features are of")
    if not isinstance(encoder, str):
        raise ValueError("its encoder has no name")
    mean, std = given.get("mean"), given.get("std")
    if not isinstance(mean, list) or not isinstance(std, list) or len(mean) != len(std) or not mean:
        raise ValueError("its features have no mean and deviation")
    for values, least in ((mean, -math.inf), (std, 0.0)):
        if not all(_is_number(v) and least < float(v) < math.inf for v in values):
            raise ValueError("the mean or deviation of its features is none")


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_is_number(v) for v in value)


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
