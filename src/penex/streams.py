"""Standard streams that outlive their reader: a closed pipe ends the output, not the work."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

STANDARD_OUTPUT = "standard output"

_LEFT = (errno.EPIPE, errno.EIO)  # the reader of a pipe; a terminal that was closed


def outlive_readers() -> None:
    """Replace the standard streams of this process."""
    sys.stdout, sys.stderr = _lasting(sys.stdout), _lasting(sys.stderr)


class _Stream(io.TextIOWrapper):
    """A stream whose reader may leave, as head does: what comes after is dropped.

    Results that find no room, on a full disk, are an error, once; what is said besides is none.
    """

    def write(self, text: str, /) -> int:
        """Write, if someone reads."""
        with self._outlived():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, if someone reads."""
        with self._outlived():
            super().flush()

    @contextmanager
    def _outlived(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._drop()
            if error.errno not in _LEFT and self is sys.stdout:
                error.filename = STANDARD_OUTPUT
                raise

    def _drop(self) -> None:
        """Let what is in the buffer and all that follows go nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def _lasting(stream: TextIO | None) -> TextIO:
    """A standard stream that outlives its reader, and replaces what a terminal cannot show."""
    if stream is None:  # it was closed before we began
        return open(os.devnull, "w")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    return _Stream(
        open(stream.fileno(), "wb", closefd=False),
        encoding=stream.encoding,
        errors="replace",
        line_buffering=stream.line_buffering or stream.write_through,
    )
