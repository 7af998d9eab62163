"""What a run is: the part of its configuration that decides its result, and its name on disk.

The name is a hash of that part. A field that comes later says with what value a run is as if the
field were not there (`since`); a run with that value has the name that it had before, so that new
fields of a recipe, of a treatment or of a loss rename nothing.
"""

import hashlib
from dataclasses import Field, asdict, field, fields, is_dataclass
from typing import Any

from penex import registry
from penex.lab.ground import files

Json = dict[str, Any]

_INTRODUCED = "introduced"
_ASIDE = "aside"


def since(value: Any) -> Any:
    """A dataclass's field that came after the first records, with its default.

    Its default may change later; `value`, with which a run is as if the field were not there, may
    not: then give ``field(default=..., metadata={"introduced": value})``.
    """
    return field(default=value, metadata={_INTRODUCED: value})


def aside(value: Any) -> Any:
    """A dataclass's field, with its default, that never changes a result: it is not recorded."""
    return field(default=value, metadata={_ASIDE: True})


def as_recorded(value: Any) -> Json:
    """A dataclass as a record has it: without fields that make no difference.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Recipe:
    ...     epochs: int
    ...     bold: bool = since(False)
    >>> as_recorded(Recipe(3)), as_recorded(Recipe(3, bold=True))
    ({'epochs': 3}, {'epochs': 3, 'bold': True})
    """
    assert is_dataclass(value)
    assert not isinstance(value, type)
    every = asdict(value)
    return {one.name: every[one.name] for one in fields(value) if not _is_idle(one, value)}


def _is_idle(one: Field[Any], value: Any) -> bool:
    if _ASIDE in one.metadata:
        return True
    return _INTRODUCED in one.metadata and getattr(value, one.name) == one.metadata[_INTRODUCED]


def of_loss(name: str, arguments: dict[str, Any]) -> Json:
    """A loss as a record has it.

    Args:
        name: in the registry, or module:Class.
        arguments: every one that decides it, given or not.
    """
    later = registry.find(name).introduced
    kept = {k: v for k, v in arguments.items() if k not in later or later[k] != v}
    if ":" not in name:
        return {"name": name, "arguments": kept}
    from penex.lab.models import sources

    return {"name": name, "arguments": kept, "source": sources.checksum(name.partition(":")[0])}


def config_hash(config: Json) -> str:
    """Twelve hexadecimal digits that stand for a configuration, whatever its seed.

    >>> config_hash({"a": 1, "seed": 0}) == config_hash({"a": 1, "seed": 1})
    True
    """
    rest = {key: value for key, value in config.items() if key != "seed"}
    return hashlib.sha256(files.dumps(rest).encode()).hexdigest()[:12]


def folder_of(config: Json) -> str:
    """Where a run lies below the folder of all tasks."""
    loss = config["loss"]["name"].replace(":", ".")
    return f"{config['task']}/{loss}/{config_hash(config)}/seed-{config['seed']}"
