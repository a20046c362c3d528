"""Cores, memory and GPUs."""

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from fedbench.doctor.finding import Finding
from fedbench.errors import FedbenchError
from fedbench.site.gpus import CHOSEN, heeds, listed, named, resolve
from fedbench.site.programs import ask
from fedbench.site.progress import size

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
RUN_BYTES = 8e9  # what workflow/rules/run.smk asks for
PROBE_SECONDS = 120.0

# Runs in a process of its own: a broken driver can hang or crash it.
PROBE = """
import json, os, sys
if sys.argv[1:]:
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]
import torch
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
    """GPUs as runs see them, which FEDBENCH_GPUS decides.

    Parameters
    ----------
    wanted : as in ``--device``
    """
    try:
        names = named() if heeds(wanted) else None
    except FedbenchError as error:
        yield Finding("missing", "devices", str(error))
        return
    if names is not None:
        yield Finding("ok", CHOSEN, _shared(names))
    elif CHOSEN in os.environ:
        yield Finding("ok", CHOSEN, "not heeded: the job of SLURM or --device has chosen")
    if importlib.util.find_spec("torch") is None:
        yield Finding("warning", "devices", "unknown, torch is not installed", "install it, then ask again")
        return
    shown = [] if names is None else [",".join(dict.fromkeys(names))]
    answer = ask([sys.executable, "-c", PROBE, *shown], PROBE_SECONDS)
    if not answer.good:
        fix = f"find out with {Path(sys.executable).name} -c 'import torch; torch.cuda.init()'"
        yield Finding("missing", "devices", f"torch does not work ({answer.complaint})", fix)
        return
    found = json.loads(answer.output.splitlines()[-1])
    for number, device in enumerate(found["devices"]):
        name = shown[0].split(",")[number] if shown else number  # torch counts from 0 what it is shown
        text = f"{device['name']}, {size(device['total'])}, {size(device['free'])} of it free"
        yield Finding("ok", f"GPU {name}", text)
    yield from _complaints(wanted, names, len(found["devices"]), found["cuda"])


def _shared(names: list[str]) -> str:
    if not names:
        return "empty, runs use the CPU"
    runs = f"{len(names)} runs at a time" if len(names) > 1 else "one run at a time"
    different = list(dict.fromkeys(names))
    return f"{runs}, on GPU{'s' * (len(different) > 1)} {', '.join(different)}"


def _complaints(wanted: str, names: list[str] | None, count: int, cuda: str | None) -> Iterator[Finding]:
    usable = True
    try:
        resolve(wanted, count)
    except FedbenchError as error:
        usable = False
        yield Finding("missing", "devices", str(error))
    if count:
        return
    cards = 0 if names == [] else len(listed(ask(["nvidia-smi", "-L"], 20).output))
    if cards and cuda is None:
        yield Finding("warning", "devices", f"{cards} GPUs, but this torch is for CPUs only", "install torch with CUDA")
    elif cards:
        fix = "look at CUDA_VISIBLE_DEVICES, and whether the driver is new enough"
        yield Finding("warning", "devices", f"{cards} GPUs, but torch (CUDA {cuda}) sees none of them", fix)
    elif usable:
        yield Finding("ok", "devices", "no GPU, runs use the CPU")
