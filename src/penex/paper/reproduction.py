"""What `penex reproduce` does: train what is missing, show it beside the paper's."""

import tempfile
from pathlib import Path

from penex.lab.ground.errors import LabError, writes
from penex.paper import parts, whole
from penex.paper.request import Request
from penex.paper.standins import write_people, write_stand_ins


def reproduce(request: Request) -> None:
    """Read the records, train what is missing, print it beside the paper's, write it."""
    with tempfile.TemporaryDirectory() as name:
        if request.smoke:
            write_stand_ins(Path(name) / "data")
            write_people(Path(name) / "data")
            request = request.tried(Path(name))
        made = whole.make(request) if request.what == "all" else parts.make(request)
        if not writes():
            return
        if made.text:
            print(made.text)
        if not made.text and not made.written:
            raise LabError(
                f"There are no records of this in {request.out}; command: penex reproduce "
                f"{request.what} --out {request.out}"
            )
    names = ", ".join(made.written)
    if names and request.smoke:
        print(f"\nAll of it works. What it wrote is gone: {names}. The numbers mean nothing.")
    elif names:
        print(f"\nIn {request.out}: {names}.")
