"""Where a run took place: versions, device, revision."""

import functools
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import penex
from penex.lab.ground import ranks
from penex.lab.ground.errors import LabError
from penex.lab.ground.sentences import count

_LIBRARIES = ("numpy", "safetensors", "scikit-learn")


def device_of(name: str) -> torch.device:
    """The device of a name; ``auto`` is the first that is there of CUDA, MPS and CPU."""
    if not re.fullmatch(r"auto|(cpu|cuda|mps)(:\d+)?", name):
        meant = " Did you mean cuda?" if name.lower().startswith("gpu") else ""
        raise LabError(
            f"There is no device {name!r}.{meant} penex trains on cpu, cuda, cuda:1, mps, or auto, "
            "the best one there is."
        )
    if name == "auto":
        name = "cpu"
        if torch.cuda.is_available():
            name = "cuda"
        elif torch.backends.mps.is_available():
            name = "mps"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise LabError(f"The device {name!r} cannot be used here: {reason}") from error
    return ranks.own_device(device)


def describe(device: torch.device) -> dict[str, Any]:
    """What decides the last digits of a result, besides its configuration."""
    return {
        "penex": penex.__version__,
        "revision": revision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{name: version(name) for name in _LIBRARIES},
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "processes": ranks.world(),
    }


def device_name(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_name() if device.type == "cpu" else device.type


@functools.cache
def cpu_name() -> str:
    """The processor's name and how many cores this process may use."""
    name = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return f"{name}, {count(cores(), 'core')}"


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def version(library: str) -> str | None:
    """The installed version of a library; None if it is not there."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def revision() -> str | None:
    """The git revision of this code, if it runs from a checkout; with + if files were changed."""
    here = Path(penex.__file__).parent
    try:
        head = _git(here, "rev-parse", "HEAD")
        tracked = _git(here, "ls-files", "--error-unmatch", str(Path(__file__)))
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}{'+' if changed else ''}" if tracked else None


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, check=True, text=True, timeout=10
    ).stdout.strip()


def peak_memory(device: torch.device) -> int:
    """The most bytes in use so far: of the GPU if there is one, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource  # not on Windows, where `penex doctor` works all the same

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def free_memory() -> int:
    """Bytes of main memory that a program may still take, as far as the system says."""
    facts = Path("/proc/meminfo")
    if facts.exists():
        for line in facts.read_text(errors="replace").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
