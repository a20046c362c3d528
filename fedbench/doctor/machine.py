"""Cores, memory and GPUs."""

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from fedbench.commands import ask
from fedbench.doctor.finding import Finding
from fedbench.gpus import listed
from fedbench.progress import size

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
RUN_BYTES = 8e9  # what workflow/rules/run.smk asks for
PROBE_SECONDS = 120.0

# Runs in a process of its own: a broken driver can hang or crash it.
PROBE = """
import json, torch
devices = []
for number in range(torch.cuda.device_count()):
    free, total = torch.cuda.mem_get_info(number)
    devices.append({"name": torch.cuda.get_device_name(number), "free": free, "total": total})
print(json.dumps({"cuda": torch.version.cuda, "devices": devices}))
"""


def cores() -> Finding:
    """CPU cores that this process may use: the machine's, its affinity, a container's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(CGROUP / "cpu.max")
    if quota is not None and quota < count:
        fix = f"call snakemake with --cores {max(1, int(quota))}"
        return Finding("warning", "cores", f"{count}, of which a quota allows {quota:g}", fix)
    return Finding("ok", "cores", f"{count} usable of {os.cpu_count()}")


def _quota(path: Path) -> float | None:
    """Cores that a control group allows, or None for no limit."""
    try:
        limit, period = path.read_text().split()
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) / int(period)


def memory() -> Finding:
    """Memory of the machine or the container."""
    found = _memory()
    if found is None:
        return Finding("warning", "memory", "unknown on this system", f"a run may take {size(RUN_BYTES)}")
    total, free = found
    text = f"{size(total)}, {size(free)} of it free"
    if free < RUN_BYTES:
        fix = f"a run may take {size(RUN_BYTES)}: run few at a time (--cores), or use small models"
        return Finding("warning", "memory", text, fix)
    return Finding("ok", "memory", f"{text}; enough for {int(free / RUN_BYTES)} runs of {size(RUN_BYTES)} at a time")


def _memory() -> tuple[int, int] | None:
    try:
        values = {name: 1024 * int(number) for name, number in re.findall(r"(\w+): +(\d+) kB", MEMINFO.read_text())}
        total, free = values["MemTotal"], values["MemAvailable"]
    except (OSError, KeyError):
        return None
    try:
        limit = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
    except (OSError, ValueError):  # no control group here, or no limit ("max")
        return total, free
    return min(total, limit), min(free, max(0, limit - used))


def devices(wanted: str) -> Iterator[Finding]:
    """GPUs as torch sees them.

    Parameters
    ----------
    wanted : as in ``--device``
    """
    if importlib.util.find_spec("torch") is None:
        yield Finding("warning", "devices", "unknown, torch is not installed", "install it, then ask again")
        return
    answer = ask([sys.executable, "-c", PROBE], PROBE_SECONDS)
    if not answer.good:
        fix = f"find out with {Path(sys.executable).name} -c 'import torch; torch.cuda.init()'"
        yield Finding("missing", "devices", f"torch does not work ({answer.complaint})", fix)
        return
    found = json.loads(answer.output.splitlines()[-1])
    for number, device in enumerate(found["devices"]):
        text = f"{device['name']}, {size(device['total'])}, {size(device['free'])} of it free"
        yield Finding("ok", f"GPU {number}", text)
    yield from _complaints(wanted, len(found["devices"]), found["cuda"])


def _complaints(wanted: str, count: int, cuda: str | None) -> Iterator[Finding]:
    kind, _, number = wanted.partition(":")
    if kind == "cuda" and int(number or 0) >= count:
        fix = "choose another --device (or FEDBENCH_DEVICE), or see to it that torch finds the GPU"
        yield Finding("missing", "devices", f"{wanted} is asked for, but torch sees {count} GPUs", fix)
    if count:
        return
    cards = len(listed(ask(["nvidia-smi", "-L"], 20).output))
    if not cards:
        yield Finding("ok", "devices", "no GPU, runs use the CPU")
    elif cuda is None:
        yield Finding("warning", "devices", f"{cards} GPUs, but this torch is for CPUs only", "install torch with CUDA")
    else:
        fix = "look at CUDA_VISIBLE_DEVICES, and whether the driver is new enough"
        yield Finding("warning", "devices", f"{cards} GPUs, but torch (CUDA {cuda}) sees none of them", fix)
