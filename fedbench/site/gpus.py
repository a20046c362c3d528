"""One GPU for each run on a machine without a scheduler.

Jobs that start side by side each lock one of the visible GPUs and hide the others from themselves. A lock is an flock
on a file of this machine, which the system drops with its process however that ends, so a slot is never lost.
"""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path

from fedbench.errors import FedbenchError
from fedbench.site.programs import ask

CHOSEN, VISIBLE = "FEDBENCH_GPUS", "CUDA_VISIBLE_DEVICES"
NAME = re.compile(r"0|[1-9][0-9]*|(GPU|MIG)-[0-9A-Za-z-]+(/[0-9]+/[0-9]+)?")
POLL_SECONDS = 0.5


def heeds(device: str) -> bool:
    """Whether a process with this ``--device`` heeds FEDBENCH_GPUS: not if it names one, nor if SLURM has chosen."""
    return device in ("auto", "cuda") and "SLURM_JOB_ID" not in os.environ


def named() -> list[str] | None:
    """Names in FEDBENCH_GPUS, where a GPU named twice takes two jobs at a time; None if it is not set.

    Raises
    ------
    FedbenchError
        If one is no name of a GPU, or of none that ``nvidia-smi`` lists. Where that lists nothing, torch has to judge.
    """
    text = os.environ.get(CHOSEN)
    if text is None or not text.strip():
        return None if text is None else []
    names = [name.strip() for name in text.split(",")]
    listing = _listing()
    numbers, uuids = re.findall(r"^GPU (\d+):", listing, re.MULTILINE), re.findall(r"\(UUID: (\S+?)\)", listing)
    for name in names:
        if not NAME.fullmatch(name):
            raise FedbenchError(
                f"{CHOSEN}={text}: {name!r} is no GPU; give numbers or UUIDs (GPU-..., MIG-...) with commas between, "
                "or nothing for the CPU"
            )
        # as CUDA does, the beginning of a UUID will do
        if numbers and name not in numbers and not any(uuid.startswith(name) for uuid in uuids):
            there = numbers if name.isdecimal() else uuids
            raise FedbenchError(f"{CHOSEN}={text}: there is no GPU {name} here; `nvidia-smi -L` has {', '.join(there)}")
    return names


def visible() -> list[str]:
    """Names of the GPUs that jobs may use: numbers, or the UUIDs of GPUs and of MIG slices.

    The first that is set decides: FEDBENCH_GPUS, CUDA_VISIBLE_DEVICES, and what ``nvidia-smi`` lists. With
    FEDBENCH_DEVICE=cpu there are none.
    """
    if os.environ.get("FEDBENCH_DEVICE") == "cpu":
        return []
    names = named()
    if names is not None:
        return names
    if VISIBLE in os.environ:
        # CUDA stops at what is no name, too: schedulers hide every GPU with "-1" or "NoDevFiles"
        return list(takewhile(NAME.fullmatch, (name.strip() for name in os.environ[VISIBLE].split(","))))
    return listed(_listing())


def _listing() -> str:
    return ask(["nvidia-smi", "-L"], 20).output


def listed(text: str) -> list[str]:
    """UUIDs in the output of ``nvidia-smi -L``; a GPU that is cut into MIG slices stands for them."""
    found: list[str] = []
    for line in text.splitlines():
        uuid = re.search(r"\(UUID: (\S+?)\)", line)
        if uuid and uuid[1].startswith("MIG-") and found and not found[-1].startswith("MIG-"):
            found[-1] = uuid[1]
        elif uuid:
            found.append(uuid[1])
    return found


@contextmanager
def own_gpu(device: str, say: Callable[[str], None]) -> Iterator[str | None]:
    """Hold one of the GPUs that jobs may use, waiting until one is free, and show only this one to the process.

    Nothing is chosen where there is nothing to choose: a device other than ``auto`` or ``cuda``, a job of SLURM
    (which has chosen already), fewer than two GPUs unless FEDBENCH_GPUS names them. CUDA must not have been
    initialised yet.

    Parameters
    ----------
    device : as in ``--device``
    say : called with a line when the GPU is chosen, and with one when all are taken

    Yields
    ------
    str or None
        What is in CUDA_VISIBLE_DEVICES then: the GPU's name, or nothing if FEDBENCH_GPUS is empty.
    """
    names = _choice(device)
    if names is None:
        yield None
        return
    with ExitStack() as stack:
        name = _take(names, _folder(), stack, say) if names else ""
        say(f"using GPU {name} of {','.join(names)}" if names else f"using no GPU, {CHOSEN} is empty")
        before = os.environ.get(VISIBLE)
        os.environ[VISIBLE] = name
        try:
            yield name
        finally:
            if before is None:
                del os.environ[VISIBLE]
            else:
                os.environ[VISIBLE] = before


def resolve(device: str, found: int) -> str:
    """Name of the torch device that ``--device`` means: a GPU for ``auto`` where there is one.

    Parameters
    ----------
    device : ``auto``, ``cpu``, ``cuda`` or ``cuda:1``
    found : GPUs that torch sees

    Raises
    ------
    FedbenchError
        If there is no such device, or none of the GPUs that FEDBENCH_GPUS names.
    """
    if not found and heeds(device) and named():
        text = f"{CHOSEN}={os.environ[CHOSEN]}"
        raise FedbenchError(f"{text}: torch finds no such GPU here; correct it, or use --device cpu (FEDBENCH_DEVICE)")
    if device == "auto":
        return "cuda" if found else "cpu"
    gpu = re.fullmatch(r"cuda(?::(0|[1-9][0-9]*))?", device)
    if device != "cpu" and (gpu is None or int(gpu[1] or 0) >= found):
        others = f", or cuda:N with N < {found}" if found else ""
        raise FedbenchError(f"--device {device}: not here; use auto or cpu{others}")
    return device


def _choice(device: str) -> list[str] | None:
    """GPUs to take one of, none at all, or None where there is no choice."""
    if not heeds(device):
        return None
    names = named()
    if names is None:
        found = visible()
        return found if len(found) > 1 else None
    return names


def _folder() -> Path:
    """A folder for locks on this machine's own disk, which belongs to this user alone."""
    folder = Path(tempfile.gettempdir()) / f"fedbench-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise FedbenchError(f"{folder}: belongs to someone else; remove it or set TMPDIR to a folder of your own")
    return folder


def _take(names: list[str], folder: Path, stack: ExitStack, say: Callable[[str], None]) -> str:
    from filelock import FileLock, Timeout

    waiting = False
    while True:
        for index, name in enumerate(names):
            number = names[:index].count(name)  # a GPU that is named twice has two slots
            lock = FileLock(folder / f"{re.sub(r'[^A-Za-z0-9-]', '_', name)}.{number}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            stack.callback(lock.release)
            return name
        if not waiting:
            say(f"waiting for one of the GPUs {','.join(names)}")
            waiting = True
        time.sleep(POLL_SECONDS)
