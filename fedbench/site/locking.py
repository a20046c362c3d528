"""One process at a time at a run or a base: a lock beside its checkpoint, which the system drops with its holder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedbench.errors import FedbenchError
from fedbench.files.io import writing_errors


@contextmanager
def alone(folder: Path, checkpoint: Path, say: Callable[[str], None], seconds: float | None = None) -> Iterator[None]:
    """Hold the lock of `folder`, waiting until no other process makes it.

    Waiting, because Snakemake may start a job whose predecessor lives on: after it was killed and started again.

    Parameters
    ----------
    folder : what is made, for messages
    checkpoint : where its checkpoint lies; the lock is a file beside it
    say : called with a line if there is somebody to wait for
    seconds : how long to wait at most; None for as long as it takes

    Raises
    ------
    FedbenchError
        If the other process is not done in time, or the lock cannot be written, or its name is taken.
    """
    from filelock import FileLock, Timeout

    path = checkpoint.with_name(f"{checkpoint.name}.lock")
    with writing_errors(checkpoint):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or (path.exists() and path.stat().st_size):  # locks are empty; uv.lock is somebody's
        raise FedbenchError(f"{path}: no lock of fedbench's, which is left as it is; give other --checkpoints or --out")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"another process is making {folder}; waiting for it")
        try:
            lock.acquire(timeout=-1 if seconds is None else seconds)
        except Timeout:
            raise FedbenchError(f"{folder}: another process is still making it; start again later") from None
    try:
        yield
    finally:
        # before it is released: who waits for it then notices and locks a new one
        with suppress(OSError):
            path.unlink()
        lock.release()
