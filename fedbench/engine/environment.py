"""What a run ran on: versions, commit, memory."""

from __future__ import annotations

import importlib.metadata
import platform
import resource
import subprocess
from pathlib import Path
from typing import Any

import torch

from fedbench import __version__

PACKAGES = ("numpy", "safetensors", "timm", "torch", "torchvision")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute."""
    # fedbench's own from the source: in a container it may be on the path without being installed
    own = {"python": platform.python_version(), "fedbench": __version__}
    return {**own, **{name: importlib.metadata.version(name) for name in PACKAGES}}


def commit() -> dict[str, Any]:
    """The source tree's commit and whether it had changes; nulls where it is no git checkout."""
    root = Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if not (root / ".git").exists():
        return {"commit": None, "dirty": None}
    status = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def peak_rss_bytes() -> int:
    """Largest resident memory of this process so far."""
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def peak_gpu_bytes(device: torch.device) -> int | None:
    """Largest GPU memory allocated so far; None on the CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def device_name(device: torch.device) -> str:
    """``cpu (model)`` or the GPU's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.machine()})"
