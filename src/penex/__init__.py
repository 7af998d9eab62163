"""penex: the penalised exponential loss, where torch.nn.CrossEntropyLoss stands."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "PENEX",
    "baselines",
    "conex",
    "extras",
    "functional",
    "linear_penex",
    "metrics",
    "registry",
    "rivals",
    "theory",
]

if TYPE_CHECKING:
    from penex import baselines as baselines
    from penex import conex as conex
    from penex import extras as extras
    from penex import functional as functional
    from penex import metrics as metrics
    from penex import registry as registry
    from penex import rivals as rivals
    from penex import theory as theory
    from penex.linear import linear_penex as linear_penex
    from penex.loss import PENEX as PENEX
else:
    # Torch takes seconds to import: it comes with the first name that is used, so that the
    # command line is there before it, for Ctrl-C and for --version.
    def __getattr__(name: str) -> object:
        """A public name or a module of ours, imported when it is first asked for."""
        from importlib import import_module

        if name == "PENEX":
            return import_module("penex.loss").PENEX
        if name == "linear_penex":
            return import_module("penex.linear").linear_penex
        try:
            return import_module(f"penex.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"penex.{name}":
                raise
            raise AttributeError(f"module 'penex' has no attribute {name!r}") from None

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
