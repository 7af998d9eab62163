"""Standard streams that outlive their reader: a closed pipe ends the output, not the work."""

import io
import os
import sys
from typing import TextIO


def outlive_readers() -> None:
    """Replace the standard streams of this process."""
    sys.stdout, sys.stderr = _lasting(sys.stdout), _lasting(sys.stderr)


class _Stream(io.TextIOWrapper):
    """A stream whose reader may leave, as head does: what comes after is dropped."""

    def write(self, text: str, /) -> int:
        """Write, if someone reads."""
        try:
            return super().write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        """Flush, if someone reads."""
        try:
            super().flush()
        except BrokenPipeError:
            self._drop()

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
