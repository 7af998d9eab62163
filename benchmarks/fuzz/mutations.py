"""Ways to damage a file."""

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WRONG: list[Any] = [
    None, True, False, 0, -1, 2, 7, 1.5, 1e308, -1e-300, 10**400, 2**63, float("nan"),
    float("inf"), "", "x", "0", "\x1b[2J", "\0", "a/../../b", "\ud800", [], [1], [[]], {},
    {"a": None}, json.loads("[" * 400 + "]" * 400),
]  # fmt: skip


def damage(path: Path, chance: random.Random) -> str:
    """Damage a file in one way; the way in words."""
    ways: list[Callable[[Path, random.Random], str]] = [
        _flip, _flip, _cut, _insert, _digit, _digit, _lines, _replace, _remove
    ]  # fmt: skip
    if path.suffix in (".json", ".jsonl", ".journal"):
        ways += [_value] * 6
    way = chance.choice(ways)
    return f"{path.name}: {way(path, chance)}"


def _flip(path: Path, chance: random.Random) -> str:
    content = bytearray(path.read_bytes())
    if not content:
        return "nothing to flip"
    place = chance.randrange(len(content))
    content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return f"a bit of byte {place} flipped"


def _digit(path: Path, chance: random.Random) -> str:
    """A digit becomes another: the change that no parser sees."""
    content = bytearray(path.read_bytes())
    places = [k for k, byte in enumerate(content) if chr(byte).isdecimal()]
    if not places:
        return "no digit to change"
    place = chance.choice(places)
    before = content[place]
    content[place] = chance.choice([b for b in b"0123456789" if b != before])
    path.write_bytes(content)
    return f"the digit {chr(before)} at byte {place} became {chr(content[place])}"


def _cut(path: Path, chance: random.Random) -> str:
    content = path.read_bytes()
    end = chance.choice([0, len(content) // 2, max(len(content) - 1, 0)])
    end = chance.choice([end, chance.randint(0, len(content))])
    path.write_bytes(content[:end])
    return f"cut to {end} of {len(content)} bytes"


def _insert(path: Path, chance: random.Random) -> str:
    content = path.read_bytes()
    place = chance.choice([0, len(content), chance.randint(0, len(content))])
    size = chance.choice([1, 3, 200])
    more = chance.choice([chance.randbytes(size), b"\n", b"\0" * size, b" ", content[:size]])
    path.write_bytes(content[:place] + more + content[place:])
    return f"{more[:9]!r} inserted at byte {place}"


def _lines(path: Path, chance: random.Random) -> str:
    """A line is lost, there twice, or elsewhere."""
    lines = path.read_bytes().splitlines(keepends=True)
    if not lines:
        return "no line to move"
    number = chance.randrange(len(lines))
    line = lines[number]
    how = chance.choice(["lost", "twice", "moved"])
    if how != "twice":
        del lines[number]
    if how != "lost":
        lines.insert(chance.randint(0, len(lines)), line)
    path.write_bytes(b"".join(lines))
    return f"line {number} {how}"


def _replace(path: Path, chance: random.Random) -> str:
    """Something else in its place: a neighbour, a folder, a link to itself, nothing."""
    others = [p for p in sorted(path.parent.iterdir()) if p.is_file() and p != path]
    how = chance.choice(["neighbour", "folder", "loop", "deep", "empty"])
    path.unlink()
    if how == "neighbour" and others:
        other = chance.choice(others)
        shutil.copyfile(other, path)
        return f"replaced by {other.name}"
    if how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path.name)
    elif how == "deep":
        path.write_bytes(b"[" * 100_000)
    else:
        path.touch()
    return f"replaced by: {how}"


def _remove(path: Path, chance: random.Random) -> str:
    path.unlink()
    return "removed"


def _value(path: Path, chance: random.Random) -> str:
    """A value of JSON becomes another, or goes; of a file of lines, in one of them."""
    text = path.read_text()
    lines = [text] if path.suffix == ".json" else text.splitlines(keepends=True)
    if not lines:
        return "no value to change"
    number = chance.randrange(len(lines))
    whole = json.loads(lines[number])
    said = change_value(whole, chance)
    if said is None:
        return "no value to change"
    lines[number] = json.dumps(said[1]) + "\n"
    path.write_text("".join(lines))
    return f"line {number}, {said[0]}" if len(lines) > 1 else said[0]


def change_value(value: Any, chance: random.Random) -> tuple[str, Any] | None:
    """A copy of a JSON value with one place changed, and what was done; None if it has none."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    if not places:
        return None
    inner, key, name = chance.choice(places)
    before = inner[key]
    if chance.random() < 0.2:
        del inner[key]
        return f"{name} removed", value
    near = {bool: not before, int: 0, float: 0.0, str: f"{before}x"}
    if type(before) in (int, float) and chance.random() < 0.5:
        near[type(before)] = chance.choice([before + 1, before * 2, -before, before / 3, -0.0])
    after = chance.choice([near.get(type(before)), chance.choice(WRONG)])
    inner[key] = after
    return f"{name} = {after!r:.60}", value


def _places(value: Any, name: str = "") -> Iterator[tuple[Any, Any, str]]:
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, item in pairs:
        yield value, key, f"{name}.{key}"
        yield from _places(item, f"{name}.{key}")
