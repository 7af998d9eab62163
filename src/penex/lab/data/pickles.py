"""Pickles of arrays, lists, numbers and text, read without running what is in them."""

import io
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class _Stored:
    """What stands for numpy's types while a pickle is read: it keeps what it is given, as data.

    numpy's own dtype can be told to take bytes for pointers, so it never sees the pickle.
    """

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _encode(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"it encodes bytes as {encoding}")
    return text.encode("latin-1")


# All that a pickled array of numbers names, in any version of numpy and Python.
_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Stored,
    ("numpy", "dtype"): _Stored,
    ("numpy.core.multiarray", "_reconstruct"): _Stored,
    ("numpy._core.multiarray", "_reconstruct"): _Stored,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): bytes,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it would call {module}.{name}, which no data set needs")
        return _STAND_INS[module, name]


def loads(content: bytes) -> Any:
    """What a pickle holds; an array in it is for `array_of`. Anything that is no data raises.

    A damaged pickle raises all kinds of exceptions.

    >>> loads(pickle.dumps({"labels": [1, 2]}))
    {'labels': [1, 2]}
    >>> loads(pickle.dumps(print))
    Traceback (most recent call last):
    _pickle.UnpicklingError: it would call builtins.print, which no data set needs
    """
    return _ArraysOnly(io.BytesIO(content), encoding="latin1").load()


def array_of(stored: Any, kinds: Sequence[str]) -> Array | None:
    """The array that a pickle describes; None if it describes anything else.

    Args:
        stored: what `loads` has in its place.
        kinds: the legal types of its numbers, as numpy writes them without their byte order.

    >>> array_of(loads(pickle.dumps(np.array([1, 2]), protocol=2)), ["i8"])
    array([1, 2])
    """
    try:
        _, shape, kind, fortran, content = stored.state
        name = kind.given[0].removeprefix("|")
        order = kind.state[1]
        plain = name in kinds and order in ("<", ">", "|") and not fortran
        if not plain or not isinstance(content, bytes | str):
            return None
        if not all(isinstance(n, int) for n in shape):
            return None
        raw = content if isinstance(content, bytes) else content.encode("latin-1")
        return np.frombuffer(raw, np.dtype(order + name)).reshape(shape).copy()
    except (AttributeError, TypeError, ValueError, IndexError):
        return None
