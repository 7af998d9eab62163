"""Comparisons that many workers share: how each is cut into packs, and the records they hand over.

A run is known by its number in the comparison. Its record lies there as a parcel, cut into parts,
as PostgreSQL takes no value of more than a gigabyte.
"""

import json
from dataclasses import dataclass
from typing import Any

from penex.lab.workers.server import call, make_table

_PART = 8 << 20  # bytes

_COMPARISONS = """
CREATE TABLE IF NOT EXISTS penex_comparisons (
    job text PRIMARY KEY,
    packs text NOT NULL,
    size integer NOT NULL,
    data text NOT NULL,
    made timestamp with time zone NOT NULL DEFAULT now()
)"""
_PARCELS = """
CREATE TABLE IF NOT EXISTS penex_parcels (
    job text NOT NULL REFERENCES penex_comparisons ON DELETE CASCADE,
    number integer NOT NULL,
    part integer NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (job, number, part)
)"""
_AS_IT_IS = "ALTER TABLE penex_parcels ALTER content SET STORAGE EXTERNAL"  # a zip is dense already
_FIND = "SELECT packs, size, data FROM penex_comparisons WHERE job = :job"
_MAKE = """
INSERT INTO penex_comparisons (job, packs, size, data) VALUES (:job, :packs, :size, :data)"""
_DELIVERED = "SELECT number FROM penex_parcels WHERE job = :job AND part = 0"
_PUT = """
INSERT INTO penex_parcels (job, number, part, content) VALUES (:job, :number, :part, :content)"""
_REMOVE = "DELETE FROM penex_parcels WHERE job = :job AND number = :number"
_GET = "SELECT content FROM penex_parcels WHERE job = :job AND number = :number ORDER BY part"
_FORGET = "DELETE FROM penex_comparisons WHERE job = :job"
_FORGET_PACKS = "DELETE FROM penex_leases WHERE job = :job"


@dataclass(frozen=True)
class Kept:
    """What a comparison's first worker decided.

    Attributes:
        packs: the numbers of the runs in each.
        size: the most that a pack may have.
        data: the checksums of the data.
    """

    packs: list[list[int]]
    size: int
    data: dict[str, Any]


def prepare(connection: Any) -> None:
    """Make the tables, if they are not there."""
    make_table(connection, "penex_comparisons", _COMPARISONS)
    make_table(connection, "penex_parcels", _PARCELS, _AS_IT_IS)


def find(connection: Any, job: str) -> Kept | None:
    """A comparison; None if nobody made it, or someone had it forgotten.

    What someone changed by hand until it is no list of lists of numbers has no packs.
    """
    for packs, size, data in call(connection, _FIND, job=job):
        try:
            cut = json.loads(packs)
            whole = all(type(number) is int for pack in cut for number in pack)
            return Kept(cut if whole else [], size, json.loads(data))
        except (ValueError, TypeError):
            return Kept([], size, {})
    return None


def make(connection: Any, job: str, kept: Kept) -> None:
    """Begin a comparison."""
    packs, data = json.dumps(kept.packs), json.dumps(kept.data)
    call(connection, _MAKE, job=job, packs=packs, size=kept.size, data=data)


def delivered(connection: Any, job: str) -> set[int]:
    """The numbers of the runs whose records are there."""
    return set(call(connection, _DELIVERED, job=job).scalars())


def put(connection: Any, job: str, number: int, content: bytes) -> None:
    """Hand the parcel of a run over, in the place of one that is there."""
    call(connection, _REMOVE, job=job, number=number)
    for part, start in enumerate(range(0, len(content), _PART)):
        chunk = content[start : start + _PART]
        call(connection, _PUT, job=job, number=number, part=part, content=chunk)


def get(connection: Any, job: str, number: int) -> bytes:
    """The parcel of a run; empty if it is not there."""
    return b"".join(call(connection, _GET, job=job, number=number).scalars())


def forget(connection: Any, job: str) -> None:
    """Remove a comparison and the parcels of its runs."""
    call(connection, _FORGET_PACKS, job=job)
    call(connection, _FORGET, job=job)
