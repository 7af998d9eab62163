"""From the words of a command line to a call, or to one sentence about what is wrong with them."""

import contextlib
import dataclasses
import difflib
import functools
import inspect
import io
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from penex.lab.ground.errors import LabError, unknown

Command = Callable[..., Any]

_REGISTRY = ConstructorRegistry()
_CONFIG = (tyro.conf.OmitArgPrefixes,)
_KINDS: dict[type, str] = {int: "a whole number", float: "a number"}
_ANSWERS = ("true", "false", "yes", "no", "on", "off", "0", "1")  # all but two are refused
_WORDS: dict[type, str] = {int: "N", float: "NUMBER", str: "NAME"}


class _Wrong(Exception):  # noqa: N818  (it becomes a LabError, which names the option too)
    """A value that an option does not take: the value, and what would be right."""


def call_of(commands: dict[str, Command], words: Sequence[str]) -> Callable[[], Any]:
    """The call that a command line asks for; a LabError if it is none.

    Args:
        commands: the functions, by their names.
        words: after `penex`.
    """
    name = words[0] if words else "--help"
    if name in ("-h", "--help"):
        return functools.partial(print, _overview(commands))
    if name.startswith("-"):
        raise _no_option(name, ("--help", "--version"))
    if name not in commands:
        raise unknown("command", name, commands)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            call, left = tyro.cli(
                _later(commands[name]),
                prog=f"penex {name}",
                args=_spelled_out(words[1:], commands[name]),
                return_unknown_args=True,
                config=_CONFIG,
                registry=_REGISTRY,
            )
    except _Wrong as error:
        value, right = error.args
        raise LabError(f"{_option_before(value, words)} takes {right}") from None
    except SystemExit as end:
        if end.code:
            raise LabError(f"{_in_a_line(said.getvalue())} See penex {name} --help.") from None
        raise
    options = [word.partition("=")[0] for word in left if word.startswith("-")]
    if options:
        raise _no_option(options[0], _options(commands[name]))
    if left:
        raise LabError(f"penex {name} does not know what {left[0]!r} is for: see penex {name} -h.")
    return call


def _overview(commands: dict[str, Command]) -> str:
    """What `penex --help` says: the first sentence of every command."""
    first = {name: (inspect.getdoc(c) or "").partition("\n")[0] for name, c in commands.items()}
    return "\n".join(
        [
            "usage: penex COMMAND [OPTIONS]",
            "",
            "A laboratory for losses: PENEX and what it is judged against.",
            "",
            *(f"  {name:10} {sentence}" for name, sentence in first.items()),
            "",
            "penex COMMAND --help explains a command; penex --version says the version.",
            "To begin: penex compare, which takes a minute and needs no data.",
        ]
    )


def _later(command: Command) -> Callable[..., Callable[[], Any]]:
    """The command, not called but bound, as tyro calls what it parses for."""

    def bound(*arguments: Any, **options: Any) -> Callable[[], Any]:
        return functools.partial(command, *arguments, **options)

    bound.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    bound.__annotations__ = get_type_hints(command, include_extras=True)
    # An option's help is one line, as tyro keeps the line breaks that it finds.
    bound.__doc__ = re.sub(r"\n {8,}", " ", inspect.getdoc(command) or "")
    return bound


@_REGISTRY.primitive_rule
def _rule(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """How numbers and choices are read: as tyro does, but with a sentence of ours."""
    wanted = kind.type
    if wanted in _KINDS:
        return _spec(_WORDS[wanted], functools.partial(_number, wanted), wanted)
    if wanted is str:
        return _spec(_WORDS[str], str, str)
    if wanted is bool:
        return _spec("True|False", lambda word: _choice(("True", "False"), word) == "True", bool)
    if get_origin(wanted) is Literal:
        choices = get_args(wanted)
        return _spec("|".join(choices), functools.partial(_choice, choices), str)
    return None


def _spec(
    metavar: str, read: Callable[[str], Any], kind: type | tuple[type, ...]
) -> PrimitiveConstructorSpec[Any]:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        # After an unknown option tyro has no word for what is left out: the option is refused then.
        instance_from_str=lambda words: read(words[0]) if isinstance(words[0], str) else None,
        is_instance=lambda value: isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


def _number(kind: type, word: str) -> Any:
    try:
        return kind(word)
    except ValueError:
        hint = ""
        if "," in word:
            hint = " Several numbers are separated by spaces."
        elif kind is float and re.fullmatch(r"[0-9.]+%", word):
            with contextlib.suppress(ValueError):
                hint = f" Write {float(word[:-1]) / 100:g}."
        raise _Wrong(word, f"{_KINDS[kind]}; got {word!r}.{hint}") from None


def _choice(choices: tuple[str, ...], word: str) -> str:
    if word not in choices:
        *some, last = choices
        right = f"{', '.join(some)} or {last}" if some else last
        raise _Wrong(word, f"{right}; got {word!r}.{_nearest(word, choices)}")
    return word


def _nearest(word: str, known: Sequence[str]) -> str:
    names = {name.lstrip("-"): name for name in known}  # dashes would make all options alike
    near = difflib.get_close_matches(word.lstrip("-"), names, n=1)
    return f" Did you mean {names[near[0]]}?" if near else ""


def _option_before(value: str, words: Sequence[str]) -> str:
    """The option that a value was given to; for a positional one, the command."""
    for k in range(len(words) - 1, 0, -1):
        if words[k].startswith("--") and words[k].endswith(f"={value}"):
            return words[k].partition("=")[0]
        if words[k] == value:
            options = [word for word in words[:k] if word.startswith("--")]
            return options[-1] if options else f"penex {words[0]}"
    return f"penex {words[0]}"


def _no_option(name: str, known: Sequence[str]) -> LabError:
    """What is wrong, without the value that came after it: it may be a password."""
    return LabError(f"There is no option {name}.{_nearest(name, known)}")


def _options(command: Command) -> list[str]:
    """The names of a command's options."""
    return ["--help", *_kinds_of(command)]


def _spelled_out(words: Sequence[str], command: Command) -> list[str]:
    """The words, with True after an option of True or False that stands without either.

    Such an option may be left out, given bare, or given its value: it has a default of its own.
    """
    maybes = {name for name, kind in _kinds_of(command).items() if kind == bool | None}
    found = []
    for word, following in zip(words, [*words, ""][1:], strict=True):
        bare = word in maybes and following.lower() not in _ANSWERS
        found += [word, "True"] if bare else [word]
    return found


def _kinds_of(command: Command) -> dict[str, Any]:
    """What each option of a command takes, as Python has it."""
    found: dict[str, Any] = {}
    hints = get_type_hints(command)
    for name, parameter in inspect.signature(command).parameters.items():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            continue
        inner = get_type_hints(hints[name]) if _nested(hints[name]) else {name: hints[name]}
        found |= {f"--{word.replace('_', '-')}": kind for word, kind in inner.items()}
    return found


def _nested(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _in_a_line(box: str) -> str:
    r"""What tyro says in a box, in a line: without its title, frame and footer.

    >>> _in_a_line("╭─ Missing ─╮\n│ No value │\n│ for --x. │\n│ ──── │\n│ See │\n╰──╯")
    'No value for --x.'
    >>> _in_a_line(" Missing\n ----\n  No value\n  for --x.\n ----\n  See\n")
    'No value for --x.'
    """
    parts: list[list[str]] = [[]]
    for line in box.splitlines():
        words = line.strip("│ ")
        if line.startswith("╭") or (words and not words.strip("─-")):  # a title above, or a rule
            parts.append([])
        elif not line.startswith("╰"):
            parts[-1].append(words)
    return " ".join(filter(None, parts[1] if len(parts) > 1 else parts[0]))
