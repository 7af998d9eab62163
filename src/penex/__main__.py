"""The `penex` command, and `python -m penex`, the form that torchrun takes."""

import importlib.util
import sys

_NEEDED = ("numpy", "rich", "safetensors", "tyro")


def main() -> None:
    """Run the command line, or say in one sentence what it needs."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"penex: The command line needs the laboratory ({', '.join(missing)} missing): "
            "pip install 'penex[lab]'.",
            file=sys.stderr,
        )
        sys.exit(2)
    from penex import cli

    cli.main()


if __name__ == "__main__":
    main()
