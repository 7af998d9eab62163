"""What is installed, what is not, and what that means for which command."""

import functools
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from penex.installing import install
from penex.lab.ground import environment
from penex.lab.ground.sentences import count

NO_BFLOAT16 = (
    "it announces AMX and refuses it, so that a product in bfloat16 would kill the process. "
    "export ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 helps."
)

# (package, what for, extra)
_PARTS = (
    ("numpy", "every command", "lab"),
    ("safetensors", "every command: checkpoints", "lab"),
    ("rich", "every command: progress and tables", "lab"),
    ("tyro", "every command", "lab"),
    ("scikit-learn", "the task digits; penex.boosting", "lab"),
    ("scipy", "compare: intervals", "lab"),
    ("matplotlib", "compare: figures", "lab"),
    ("SciencePlots", "compare: figures", "lab"),
    ("pillow", "image files", "lab"),
    ("optuna", "penex tune", "tune"),
    ("psycopg", "penex tune --storage postgresql://...", "tune"),
    ("ray", "--engine ray", "ray"),
    ("onnx", "penex export --onnx", "onnx"),
    ("onnxscript", "penex export --onnx", "onnx"),
    ("transformers", "texts", "text"),
    ("tensorboard", "--track tensorboard", ""),
    ("wandb", "--track wandb", ""),
)


def report() -> str:
    """The report of `penex doctor`: versions, devices, parts, and how to get what is missing."""
    here = environment.describe(torch.device("cpu"))
    lines = [
        f"penex        {here['penex']}"
        + (f" ({here['revision'][:12]})" if here["revision"] else ""),
        f"python       {here['python']} on {here['platform']}",
        f"torch        {here['torch']}",
        f"CPU          {here['device']}, {count(here['threads'], 'thread')} in use",
        f"bfloat16     {_bfloat16()}",
        f"CUDA         {_cuda()}",
        f"MPS          {'yes' if torch.backends.mps.is_available() else 'no'}",
        f"--device auto takes {environment.device_of('auto')}",
        f"free disk    {shutil.disk_usage('.').free / 2**30:.1f} GiB here",
        f"file locks   {_locks()}",
        "",
    ]
    for package, purpose, extra in _PARTS:
        version = environment.version(package)
        if version is not None:
            lines.append(f"{package:12} {version:10} {purpose}")
        else:
            how = install(extra) if extra else f"pip install {package}"
            needed = "missing" if extra == "lab" else "not there"
            lines.append(f"{package:12} {needed:10} {purpose}: {how}")
    return "\n".join(lines)


def _bfloat16() -> str:
    return f"not on this CPU: {NO_BFLOAT16}" if refuses_bfloat16() else "yes"


@functools.cache
def refuses_bfloat16() -> bool:
    """Whether a product in bfloat16 would kill a process here: asked of another one, once."""
    cpu = Path("/proc/cpuinfo")
    announced = cpu.is_file() and "amx_tile" in cpu.read_text()
    return announced and not survives("a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a")


def survives(code: str) -> bool:
    """Whether a process of its own gets through some lines that need torch."""
    command = [sys.executable, "-c", f"import torch; {code}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _locks() -> str:
    if importlib.util.find_spec("fcntl") is None:
        return "no (fcntl is missing): nothing can be trained here; the losses work"
    return "yes"


def _cuda() -> str:
    if not torch.cuda.is_available():
        built = torch.version.cuda
        return "no" + ("" if built else " (this torch was built without it)")
    names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    return f"{torch.version.cuda}: {', '.join(names)}"
