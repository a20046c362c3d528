"""Temporary neighbours of what is written, which no dead process leaves behind for good.

A writer holds a lock on its temporary file or folder while it lives, and the system drops the lock however it ends.
So what is not locked was left by a process that was killed, and the next writer in the same folder removes it. Where
a file system has no locks, nothing is removed.
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

NAME = re.compile(r"\.(.+)\.fedbench-[a-z0-9_]{8}\.part", re.DOTALL)
LOCK, NEW, OLD = "lock", "new", "old"


@contextmanager
def temporary_file(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Yield an open file beside `path` and its name; it is gone afterwards unless it was renamed."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.fedbench-", suffix=".part")
        if _hold(descriptor, name):
            break
        os.close(descriptor)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file, Path(name)
    finally:
        with suppress(OSError):
            os.unlink(name)


@contextmanager
def temporary_folder(path: Path, files: Collection[str]) -> Iterator[Path]:
    """Yield a folder beside `path` for what will be there (``new``) and what was there (``old``), gone afterwards.

    Parameters
    ----------
    files : names of the files that may be deleted from ``old``
    """
    while True:
        place = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.fedbench-", suffix=".part"))
        # somebody who removes left-overs may find the folder before it is locked
        with suppress(FileNotFoundError):
            descriptor = os.open(place / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            if _hold(descriptor, place / LOCK):
                break
            os.close(descriptor)
    try:
        yield place
    finally:
        _discard(place, files)
        os.close(descriptor)


def remove_leftovers(folder: Path, files: Collection[str] = ()) -> None:
    """Remove what killed processes have left in `folder`; with `files`, their temporary folders too."""
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if NAME.fullmatch(entry.name)]
    for entry in found:
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            if files:
                with _unheld(path / LOCK) as free:
                    if free:
                        _discard(path, files)
                with suppress(OSError):  # killed before it made its lock, or after it removed it
                    path.rmdir()
        elif entry.is_file(follow_symlinks=False):
            with _unheld(path) as free, suppress(OSError):
                if free:
                    path.unlink()


def _hold(descriptor: int, path: Path | str) -> bool:
    """Lock an open file; False if someone who took it for a left-over is removing it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # no locks here, so nobody else gets one and removes it
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


@contextmanager
def _unheld(path: Path) -> Iterator[bool]:
    """Whether no living process holds this file; nobody can take it within the block."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _discard(place: Path, files: Collection[str]) -> None:
    """Remove a temporary folder. What was moved into it goes back if nothing took its place."""
    shutil.rmtree(place / NEW, ignore_errors=True)
    for old in sorted(place.glob(f"{OLD}*")):
        target = place.parent / NAME.fullmatch(place.name)[1]
        with suppress(OSError):
            if not os.path.lexists(target):
                os.replace(old, target)
                continue
            for name in files:
                (old / name).unlink(missing_ok=True)
            old.rmdir()  # not if anything else came into it meanwhile
    if not any(place.glob(f"{OLD}*")):
        with suppress(OSError):
            (place / LOCK).unlink()
            place.rmdir()
