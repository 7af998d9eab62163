"""What a benchmark leaves: rows of times, and what they are measured by."""

from typing import Any

FORMAT = 1
BASE = "cross-entropy"  # every ratio is to the loss of this name

Row = dict[str, Any]
