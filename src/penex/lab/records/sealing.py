"""Files that hold their own checksum, so that one which somebody changed can be told."""

import hashlib

from penex.lab.ground import files
from penex.lab.records.identity import Json


def seal(content: Json) -> str:
    """The checksum of what a file holds, without itself.

    >>> seal({"status": "completed", "seal": "x"}) == seal({"status": "completed"})
    True
    """
    rest = {key: value for key, value in content.items() if key != "seal"}
    return hashlib.sha256(files.dumps(rest).encode()).hexdigest()


def sealed(content: Json) -> Json:
    """What is written with its own checksum inside."""
    return {**content, "seal": seal(content)}


def is_as_sealed(content: Json) -> bool:
    """Whether what was read is what was sealed; what an earlier version wrote has no seal."""
    return content.get("seal") in (None, seal(content))
