"""The `penex` command, and `python -m penex`, the form that torchrun takes.

What is here works before torch is imported, which takes seconds: the version, Ctrl-C, what is
missing, and output that nobody reads any more.
"""

import importlib.util
import sys
import traceback
from typing import NoReturn

import penex
from penex.installing import install
from penex.streams import STANDARD_OUTPUT, outlive_readers

_NEEDED = ("numpy", "rich", "safetensors", "tyro")
_INTERRUPTED = 130


def main() -> None:
    """Run the command line, or say in one sentence what it needs."""
    outlive_readers()
    try:
        try:
            _run(sys.argv[1:])
        finally:
            sys.stdout.flush()  # while it can still be said that there is no room for it
    except OSError as error:
        if error.filename != STANDARD_OUTPUT:
            _tell_all()
        print(f"penex: Cannot write to {STANDARD_OUTPUT}: {error.strerror}.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # before the command line could take it
        print("\nStopped.", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    except Exception:
        _tell_all()


def _tell_all() -> NoReturn:
    """End with a fault of ours: all of it, but no password."""
    from penex.lab.ground.sentences import without_password

    print(without_password(traceback.format_exc(), sys.argv), end="", file=sys.stderr)
    sys.exit(1)


def _run(words: list[str]) -> None:
    if words[:1] == ["--version"]:
        print(f"penex {penex.__version__}")
        return
    if words == ["doctor"]:  # it works without all that it looks for
        from penex.lab.ground import health

        print(health.report())
        return
    if lacking := _lacking():
        print(f"penex: {lacking} `penex doctor` says what is there.", file=sys.stderr)
        sys.exit(2)
    from penex import cli

    cli.main()


def _lacking() -> str:
    """What the laboratory cannot do without, in a sentence; empty if all is there."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    names = ", ".join(missing)
    return f"The command line needs the laboratory ({names} missing): {install('lab')}."


if __name__ == "__main__":
    main()
