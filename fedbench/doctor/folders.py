"""Folders that runs write to: writable, lockable, with room."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fedbench.doctor.finding import Finding, Level
from fedbench.site.progress import size

NEEDED_BYTES, WISHED_BYTES = 1e9, 20e9


def usable(what: str, path: Path, option: str) -> Iterator[Finding]:
    """Try a folder, or the nearest one above it where it does not exist yet, with a temporary file.

    Parameters
    ----------
    option : the option that chooses another one
    """
    above = path
    while not above.exists() and above != above.parent:
        above = above.parent
    place = str(path) if above == path else f"{path} (not made yet)"
    if not above.is_dir():
        yield Finding("missing", what, f"{above} is a file, not a folder", f"remove it or give another {option}")
        return
    try:
        with tempfile.TemporaryFile(dir=above, prefix=".doctor-") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
            lockable = _lockable(file.fileno())
        free = shutil.disk_usage(above).free
    except OSError as error:
        text = f"{place}: cannot write ({error.strerror or error})"
        yield Finding("missing", what, text, f"make it writable or give another {option}")
        return
    if not lockable:
        fix = f"give a {option} whose file system has locks, or never start one run twice at a time"
        yield Finding("warning", what, f"{place}: files cannot be locked", fix)
    if free < WISHED_BYTES:
        level: Level = "missing" if free < NEEDED_BYTES else "warning"
        yield Finding(level, what, f"{place}: only {size(free)} free", f"free some space or give another {option}")
    else:
        yield Finding("ok", what, f"{place}: writable, {size(free)} free")


def _lockable(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
