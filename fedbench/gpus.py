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
from pathlib import Path

from fedbench.commands import ask
from fedbench.errors import FedbenchError

CHOSEN, VISIBLE = "FEDBENCH_GPUS", "CUDA_VISIBLE_DEVICES"
HIDDEN = {"", "-1", "NoDevFiles"}  # what schedulers write to hide every GPU
POLL_SECONDS = 0.5


def visible() -> list[str]:
    """Names of the GPUs that jobs may use: numbers, or the UUIDs of GPUs and of MIG slices.

    The first that is set decides: FEDBENCH_GPUS (where a GPU named twice takes two jobs at a time),
    CUDA_VISIBLE_DEVICES, and what ``nvidia-smi`` lists. With FEDBENCH_DEVICE=cpu there are none.
    """
    if os.environ.get("FEDBENCH_DEVICE") == "cpu":
        return []
    for variable in (CHOSEN, VISIBLE):
        if variable in os.environ:
            names = [name.strip() for name in os.environ[variable].split(",")]
            return [] if names[0] in HIDDEN else [name for name in names if name]
    return listed(ask(["nvidia-smi", "-L"], 20).output)


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
    """Hold one of several visible GPUs, waiting until one is free, and show only this one to the process.

    Nothing is chosen where there is nothing to choose: a device other than ``auto`` or ``cuda``, a job of SLURM
    (which has chosen already), fewer than two GPUs. CUDA must not have been initialised yet.

    Parameters
    ----------
    device : as in ``--device``
    say : called with a line when the GPU is chosen, and with one when all are taken

    Yields
    ------
    str or None
        The GPU's name as in CUDA_VISIBLE_DEVICES.
    """
    names = visible() if device in ("auto", "cuda") and "SLURM_JOB_ID" not in os.environ else []
    if len(names) < 2:
        yield None
        return
    with ExitStack() as stack:
        name = _take(names, _folder(), stack, say)
        say(f"using GPU {name} of {','.join(names)}")
        before = os.environ.get(VISIBLE)
        os.environ[VISIBLE] = name
        try:
            yield name
        finally:
            if before is None:
                del os.environ[VISIBLE]
            else:
                os.environ[VISIBLE] = before


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
