"""Folders, zips and tars seen alike: a sorted list of file names, and a way to read them fast.

Nothing is ever extracted to disk. Members that would climb out of an extraction, and links, are refused all the same:
an archive that contains them is broken or hostile, and half of it should not become a data set.
"""

from __future__ import annotations

import os
import re
import stat
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedbench.errors import FedbenchError


class Tree:
    """Files below a root.

    Attributes
    ----------
    path : the folder or archive
    files : sorted POSIX names relative to the root, without hidden ones
    folders : names of folders that are there explicitly, empty ones included
    """

    def __init__(self, path: Path):
        self.path = path
        self.files: list[str] = []
        self.folders: set[str] = set()

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield each named file once, in whatever order is fastest."""
        raise NotImplementedError

    def read_text(self, name: str) -> str:
        """One file as UTF-8 text."""
        [(_, data)] = self.read([name])
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise FedbenchError(f"{self.path}: {name}: not UTF-8 text ({error.reason} at {error.start})") from None

    def close(self) -> None:
        """Let go of the archive's file."""

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @contextmanager
    def _undamaged(self, name: str = "") -> Iterator[None]:
        """Name the archive, and the member if there is one, when its bytes make no sense."""
        try:
            yield
        except FedbenchError:
            raise
        except Exception as error:  # each archive module and decompressor has several complaints of its own
            reason = " ".join(str(error).split()) or type(error).__name__
            place = f"{self.path}: {name}" if name else f"{self.path}"
            raise FedbenchError(f"{place}: truncated or damaged ({reason}); fetch or pack it again") from None


class _Folder(Tree):
    def __init__(self, path: Path):
        super().__init__(path)

        def fail(error: OSError):
            raise FedbenchError(f"{error.filename}: cannot read this folder: {error.strerror}") from None

        for parent, folders, files in os.walk(path, onerror=fail, followlinks=True):
            folders[:] = [name for name in folders if not _hidden(name)]
            relative = Path(parent).relative_to(path)
            self.folders |= {(relative / name).as_posix() for name in folders}
            self.files += [(relative / name).as_posix() for name in files if not _hidden(name)]
        self.files.sort()

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for name in sorted(names):
            try:
                data = (self.path / name).read_bytes()
            except OSError as error:
                raise FedbenchError(f"{self.path / name}: cannot read: {error.strerror}") from None
            yield name, data


class _Zip(Tree):
    def __init__(self, path: Path):
        super().__init__(path)
        with self._undamaged():
            self._archive = zipfile.ZipFile(path)
        self._members = {}
        for info in self._archive.infolist():
            name = _safe(path, info.filename)
            # The upper half holds Unix modes where the archive was made on Unix.
            if stat.S_ISLNK(info.external_attr >> 16):
                raise _link(path, name)
            if info.flag_bits & 1:
                raise FedbenchError(f"{path}: {name} is encrypted; pack the archive again without a password")
            if info.is_dir():
                self.folders.add(name)
            else:
                _add(self._members, path, name, info)
        _finish(self, self._members)

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for name in sorted(names, key=lambda name: self._members[name].header_offset):
            with self._undamaged(name):
                data = self._archive.read(self._members[name])
            yield name, data

    def close(self) -> None:
        self._archive.close()


class _Tar(Tree):
    def __init__(self, path: Path):
        super().__init__(path)
        try:
            self._archive = tarfile.open(path)  # noqa: SIM115 - closed by close(); compression is detected
        except Exception:  # as many kinds as there are compressions
            raise FedbenchError(f"{path}: neither a folder nor a readable zip or tar archive") from None
        self._members = {}
        with self._undamaged():
            self._list()
            self._check_end()
        _finish(self, self._members)

    def _list(self) -> None:
        for member in self._archive:
            name = _safe(self.path, member.name)
            if member.issym() or member.islnk():
                raise _link(self.path, name)
            if member.isdir():
                self.folders.add(name)
            elif member.isreg():
                _add(self._members, self.path, name, member)
            else:
                raise FedbenchError(f"{self.path}: {name} is a device or pipe, not a file; pack the archive again")

    def _check_end(self) -> None:
        """Tell the end of the archive from a cut or damaged header, which tarfile passes over in silence."""
        self._archive.fileobj.seek(self._archive.offset)
        if self._archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise EOFError("the end-of-archive mark is missing")

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        # In archive order, a compressed stream is read once from front to back.
        for name in sorted(names, key=lambda name: self._members[name].offset):
            with self._undamaged(name):
                data = self._archive.extractfile(self._members[name]).read()
            yield name, data

    def close(self) -> None:
        self._archive.close()


def open_tree(path: Path) -> Tree:
    """Open a folder, zip or tar (compressed or not) for reading; use it as a context manager.

    Raises
    ------
    FedbenchError
        If nothing is there, the archive is damaged, or a member's path climbs out or is a link.
    """
    if path.is_dir():
        return _Folder(path)
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError as error:
        raise FedbenchError(f"{path}: cannot read: {error.strerror}; give a folder, zip or tar") from None
    # By its first bytes, not by is_zipfile, which does not recognise a zip that lost its end.
    return _Zip(path) if start[:2] == b"PK" else _Tar(path)


def _safe(path: Path, name: str) -> str:
    """Normalise a member's name, or refuse one that points outside of the archive."""
    posix = name.replace("\\", "/")
    parts = posix.split("/")  # not pathlib, which takes seconds over tens of thousands of names
    if posix.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:", posix):
        raise FedbenchError(
            f"{path}: member {name!r} points outside of the archive; do not use this file, pack it again"
        )
    return "/".join(part for part in parts if part not in ("", "."))


def _link(path: Path, name: str) -> FedbenchError:
    return FedbenchError(f"{path}: {name} is a link; pack the archive again with files instead of links")


def _add(members: dict, path: Path, name: str, info) -> None:
    if name in members:
        raise FedbenchError(f"{path}: {name} is in the archive twice; pack it again")
    members[name] = info


def _finish(tree: Tree, members: dict) -> None:
    tree.files = sorted(name for name in members if not any(map(_hidden, name.split("/"))))
    tree.folders = {name for name in tree.folders if name and not any(map(_hidden, name.split("/")))}


def _hidden(part: str) -> bool:
    """Names that operating systems leave behind: .DS_Store, ._resource forks, __MACOSX."""
    return part.startswith(".") or part == "__MACOSX"


def twice(names: Iterable[str]) -> str | None:
    """The first name that occurs more than once, if any."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
