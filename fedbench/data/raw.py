"""Whether raw files are still those that something was made from.

Contents decide, times only say whether to look: a file that nobody has touched since is the same one. The time is that
of the last change of a file's inode, which no tool can set back, unlike that of its last change of contents.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any


def record(paths: Iterable[Path]) -> dict[str, Any] | None:
    """Number, bytes and SHA-256 of files and of all visible files in folders; None where there are none."""
    files = dict(_walk(paths))
    return {**_size(files), "sha256": _contents(files)} if files else None


def changed(recorded: dict[str, Any] | None, paths: Iterable[Path], made: Path) -> bool:
    """Whether files differ from what :func:`record` said of them.

    Parameters
    ----------
    recorded : what it said; None, from an earlier version or a source without files, is no statement
    paths : where the files are now; nothing there is no statement either
    made : a file that was written after they were read
    """
    files = dict(_walk(paths)) if recorded else {}
    if not files:
        return False
    if any(value != recorded[name] for name, value in _size(files).items()):
        return True
    since = made.stat().st_mtime_ns
    touched = any(status.st_ctime_ns >= since for _, status in files.values())
    return touched and _contents(files) != recorded["sha256"]


def _size(files: dict[str, tuple[Path, os.stat_result]]) -> dict[str, int]:
    return {"files": len(files), "bytes": sum(status.st_size for _, status in files.values())}


def _contents(files: dict[str, tuple[Path, os.stat_result]]) -> str:
    total = hashlib.sha256()
    for name in sorted(files):
        with open(files[name][0], "rb") as file:
            total.update(f"{hashlib.file_digest(file, 'sha256').hexdigest()} {name}\n".encode(errors="surrogateescape"))
    return total.hexdigest()


def _walk(paths: Iterable[Path]) -> Iterator[tuple[str, tuple[Path, os.stat_result]]]:
    """(name, (path, status)) of regular files; names start below the folder, so that it may move."""
    for path in paths:
        if path.is_dir():
            yield from _folder(path)
        elif path.is_file():
            yield "", (path, path.stat())


def _folder(root: Path) -> Iterator[tuple[str, tuple[Path, os.stat_result]]]:
    visited = set()
    for parent, folders, files in os.walk(root, followlinks=True):
        status = os.stat(parent)
        if (status.st_dev, status.st_ino) in visited:  # links may lead back up
            folders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        folders[:] = [name for name in sorted(folders) if not name.startswith(".")]
        for name in files:
            path = Path(parent, name)
            with suppress(FileNotFoundError):  # a link to nowhere
                if not name.startswith(".") and stat.S_ISREG((status := os.stat(path)).st_mode):
                    yield os.path.relpath(path, root), (path, status)
