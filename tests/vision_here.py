"""torchvision, for the frameworks that import it, in a torch without CUDA."""

import sys
from pathlib import Path

import pytest
import torch

# Where `make test-frameworks` puts it. There is no build of it for a torch without CUDA, and
# whatever else finds it there tries to import it.
VISION = Path(sys.prefix) / "vision"

_kept: list[torch.library.Library] = []  # a library goes with its last reference


def declare() -> None:
    """Make torchvision importable without its compiled operators, which no test here calls."""
    if not VISION.exists():
        pytest.skip("needs torchvision (make test-frameworks)", allow_module_level=True)
    if str(VISION) not in sys.path:
        sys.path.append(str(VISION))
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        _kept.append(library)
        for name in ("nms", "qnms"):
            schema = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema)  # type: ignore[no-untyped-call]
