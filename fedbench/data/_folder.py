"""A folder as a tree of files. Links are followed, but no folder is read twice, and only regular files are read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedbench.data._tree import IMAGE_BYTES, Tree, hidden
from fedbench.errors import FedbenchError


class Folder(Tree):
    """What lies below a folder."""

    def __init__(self, path: Path):
        super().__init__(path)
        self._seen: set[tuple[int, int]] = set()
        # Links wait until all real folders are read, so that a folder keeps its own name and not that of a link to it.
        self._links: list[str] = []
        self._walk("")
        while self._links:
            self._links.sort()
            self._walk(self._links.pop(0))
        self.files.sort()
        self.repeated.sort()

    def _walk(self, top: str) -> None:
        """Collect what is below the folder `top`, and behind a link no folder a second time: links may make a loop."""
        waiting = [top]
        while waiting:
            name = waiting.pop()
            try:
                status = os.stat(self.path / name)
                # Only behind links, as real folders make no loops, and some network file systems number none.
                if top and (status.st_dev, status.st_ino) in self._seen:
                    self.repeated.append(name)
                    continue
                self._seen.add((status.st_dev, status.st_ino))
                if name:
                    self.folders.add(name)
                with os.scandir(self.path / name) as entries:
                    waiting += [below for entry in entries if (below := self._enter(name, entry))]
            except OSError as error:
                raise FedbenchError(f"{self.path / name}: cannot read this folder: {error.strerror}") from None

    def _enter(self, parent: str, entry: os.DirEntry) -> str | None:
        """Note one entry of a folder; returns its name if it is a folder to go into."""
        name = f"{parent}/{entry.name}" if parent else entry.name
        if hidden(entry.name):
            return None
        if entry.is_dir():
            if not entry.is_symlink():
                return name
            self._links.append(name)
            return None
        # A link to nothing counts as a file: reading it says so, if it is read at all.
        if not entry.is_file() and os.path.exists(entry.path):
            raise FedbenchError(f"{self.path}: {name} is a device, pipe or socket, not a file; remove it")
        self.files.append(name)
        return None

    def read(self, names: Iterable[str], most: int = IMAGE_BYTES) -> Iterator[tuple[str, bytes]]:
        """Yield each named file once, sorted."""
        for name in sorted(names):
            try:
                data = self._read(name, most)
            except OSError as error:
                raise FedbenchError(f"{self.path / name}: cannot read: {error.strerror}") from None
            yield name, data

    def _read(self, name: str, most: int) -> bytes:
        # Not blocking: what was a file when names were collected may be a pipe by now.
        descriptor = os.open(self.path / name, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise FedbenchError(f"{self.path}: {name} is not a file; remove it")
            self._check_size(name, status.st_size, most)
            data = file.read(status.st_size + 1)
            # On to the end, whatever size was declared: a file may grow meanwhile, and those of /proc say 0.
            while more := file.read(1 << 16):
                data += more
                self._check_size(name, len(data), most)
        return data
