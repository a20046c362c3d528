"""Zips and tars seen like folders: a sorted list of file names, and a way to read them fast.

Nothing is ever extracted to disk. Members that would climb out of an extraction, and links, are refused all the same:
an archive that contains them is broken or hostile, and half of it should not become a data set. What an archive says
about its sizes is not believed: of each member, and of what stands between members, a limited amount is read.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import stat
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fedbench.data._folder import Folder
from fedbench.data._tree import IMAGE_BYTES, Tree, hidden
from fedbench.errors import FedbenchError

MEMBERS = 2_000_000  # in one archive; each takes about a kilobyte of memory once its name is read
DIRECTORY_BYTES = 512 << 20  # a zip's table of contents
DICTIONARY_BYTES = 1 << 28  # of an xz stream, which says itself how much memory is set aside for it
HEADER_BYTES = 1 << 20  # what a tar says about one member: long names, extended headers
NAME_LENGTH = 4096  # what systems allow of a path
CHUNK = 1 << 20
ZIP = re.compile(rb"PK(\x03\x04|\x05\x06|\x07\x08)")
COMPRESSIONS = {
    re.compile(rb"\x1f\x8b"): gzip.GzipFile,
    re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"): bz2.BZ2File,
    re.compile(rb"\xfd7zXZ\0|\x5d\0\0"): lzma.LZMAFile,
}


class _Zip(Tree):
    def __init__(self, path: Path):
        super().__init__(path)
        self._file = _Directory(path)
        try:
            with self._undamaged():
                self._archive = zipfile.ZipFile(self._file)
            self._members: dict[str, zipfile.ZipInfo] = {}
            for info in self._archive.infolist():
                self._list(info)
        except BaseException:
            self._file.close()
            raise
        _finish(self, self._members)

    def _list(self, info: zipfile.ZipInfo) -> None:
        name = _safe(self.path, info.filename)
        kind = stat.S_IFMT(info.external_attr >> 16)  # the upper half holds Unix modes where it was made on Unix
        if kind == stat.S_IFLNK:
            raise _link(self.path, name)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _special(self.path, name)
        if info.flag_bits & 1:
            raise FedbenchError(f"{self.path}: {name} is encrypted; pack the archive again without a password")
        # With other methods, the zip module inflates all that a few bytes hold at once, however much that is.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            method = zipfile.compressor_names.get(info.compress_type, info.compress_type)  # type: ignore[attr-defined]  # public, not in typeshed
            raise FedbenchError(f"{self.path}: {name} is compressed by {method}; pack the archive again with deflate")
        if info.is_dir():
            self.folders.add(name)
        else:
            _add(self._members, self.path, name, info)

    def read(self, names: Iterable[str], most: int = IMAGE_BYTES) -> Iterator[tuple[str, bytes]]:
        for name in sorted(names, key=lambda name: self._members[name].header_offset):
            info = self._members[name]
            self._check_size(name, info.file_size, most)
            with self._undamaged(name), self._archive.open(info) as file:
                # In pieces: as much as is asked for at once is inflated, and only then cut to the declared size.
                data = b"".join(iter(lambda: file.read(CHUNK), b""))
            yield name, data

    def close(self) -> None:
        self._archive.close()
        self._file.close()


class _Directory(io.BufferedReader):
    """A zip's file, of which no table of contents is read that would fill the memory."""

    def __init__(self, path: Path):
        super().__init__(io.FileIO(path))
        self._path = path

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > DIRECTORY_BYTES:
            raise FedbenchError(f"{self._path}: a table of contents of {size:,} bytes; unpack this archive")
        data = super().read(size)
        if size is not None and size > CHUNK and data.count(b"PK\1\2") > MEMBERS:
            raise _many(self._path)
        return data


def _check_dictionary(path: Path) -> None:
    with open(path, "rb") as file:
        start = file.read(CHUNK)
    try:
        lzma.LZMADecompressor(memlimit=DICTIONARY_BYTES).decompress(start, 1)
    except lzma.LZMAError as error:
        if "Memory usage limit" in str(error):  # anything else is damage, which is reported where it is read
            raise FedbenchError(
                f"{path}: unpacking needs more than {DICTIONARY_BYTES:,} bytes of memory; pack it again with xz -9"
            ) from None


class _Tar(Tree):
    def __init__(self, path: Path):
        super().__init__(path)
        self._stream = _Stream(path)
        try:
            self._open()
        except BaseException:
            self._stream.close()
            raise
        _finish(self, self._members)

    def _open(self) -> None:
        try:
            self._archive = tarfile.TarFile(fileobj=self._stream)  # type: ignore[arg-type]  # reading needs no write()
        except FedbenchError:
            raise
        except Exception:  # as many kinds as there are compressions
            raise FedbenchError(f"{self.path}: neither a folder nor a readable zip or tar archive") from None
        self._members: dict[str, tarfile.TarInfo] = {}
        with self._undamaged():
            for member in self._archive:
                self._stream.allow(HEADER_BYTES)
                self._list(member)
            self._check_end()

    def _list(self, member: tarfile.TarInfo) -> None:
        name = _safe(self.path, member.name)
        if member.issym() or member.islnk():
            raise _link(self.path, name)
        if member.issparse():
            raise FedbenchError(f"{self.path}: {name} is a sparse file; pack the archive again without --sparse")
        member.pax_headers = {}  # said all that is needed; of millions of members they fill the memory
        if member.isdir():
            self.folders.add(name)
        elif member.isreg():
            _add(self._members, self.path, name, member)
        else:
            raise _special(self.path, name)
        if len(self._archive.members) > MEMBERS:  # type: ignore[attr-defined]  # not in typeshed
            raise _many(self.path)

    def _check_end(self) -> None:
        """Tell the end of the archive from a cut or damaged header, which tarfile passes over in silence.

        A compressed stream has its checksum behind its last byte, so it is read up to there.
        """
        self._stream.allow(None)
        self._stream.seek(self._archive.offset)
        if self._stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise EOFError("the end-of-archive mark is missing")
        if self._stream.compressed:
            while self._stream.read(CHUNK):
                pass

    def read(self, names: Iterable[str], most: int = IMAGE_BYTES) -> Iterator[tuple[str, bytes]]:
        # In archive order, a compressed stream is read once from front to back.
        for name in sorted(names, key=lambda name: self._members[name].offset):
            self._check_size(name, self._members[name].size, most)
            with self._undamaged(name):
                data = self._archive.extractfile(self._members[name]).read()
            yield name, data

    def close(self) -> None:
        self._archive.close()
        self._stream.close()


class _Stream:
    """A tar's bytes, uncompressed; while members are listed, only so many may be read for each."""

    def __init__(self, path: Path):
        self._path = path
        with open(path, "rb") as file:
            start = file.read(10)
        kind = next((kind for magic, kind in COMPRESSIONS.items() if magic.match(start)), None)
        self.compressed = kind is not None
        if kind is lzma.LZMAFile:
            _check_dictionary(path)
        self._file = kind(path) if kind else open(path, "rb")  # noqa: SIM115 - closed by close()
        self._left: int | None = HEADER_BYTES

    def allow(self, size: int | None) -> None:
        """Let the next reads ask for `size` bytes altogether; None for any number."""
        self._left = size

    def read(self, size: int) -> bytes:
        if self._left is not None:
            self._left -= size
            if self._left < 0:
                raise FedbenchError(
                    f"{self._path}: headers of more than {HEADER_BYTES:,} bytes before one member; pack it again"
                )
        return self._file.read(size)

    def seek(self, position: int) -> int:
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def open_tree(path: Path) -> Tree:
    """Open a folder, zip or tar (compressed or not) for reading; use it as a context manager.

    Raises
    ------
    FedbenchError
        If nothing is there, or neither a folder nor a regular file; if the archive is damaged, or a member's path
        climbs out or is a link.
    """
    advice = "give a folder, zip or tar"
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return Folder(path)
        if not stat.S_ISREG(mode):
            raise FedbenchError(f"{path}: a device, pipe or socket, not a file; {advice}")
        with open(path, "rb") as file:
            start = file.read(10)
    except OSError as error:
        raise FedbenchError(f"{path}: cannot read: {error.strerror}; {advice}") from None
    # By its first bytes, not by is_zipfile, which does not recognise a zip that lost its end.
    return _Zip(path) if ZIP.match(start) else _Tar(path)


def _safe(path: Path, name: str) -> str:
    """Normalise a member's name, or refuse one that points outside of the archive."""
    if len(name) > NAME_LENGTH:
        raise FedbenchError(f"{path}: a member's name of {len(name):,} characters; pack the archive again")
    posix = name.replace("\\", "/")
    parts = posix.split("/")  # not pathlib, which takes seconds over tens of thousands of names
    if posix.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:", posix):
        raise FedbenchError(
            f"{path}: member {name!r} points outside of the archive; do not use this file, pack it again"
        )
    return "/".join(part for part in parts if part not in ("", "."))


def _link(path: Path, name: str) -> FedbenchError:
    return FedbenchError(f"{path}: {name} is a link; pack the archive again with files instead of links")


def _special(path: Path, name: str) -> FedbenchError:
    return FedbenchError(f"{path}: {name} is a device or pipe, not a file; pack the archive again")


def _many(path: Path) -> FedbenchError:
    return FedbenchError(f"{path}: more than {MEMBERS:,} files in one archive; unpack it and give the folder")


def _add(members: dict[str, Any], path: Path, name: str, info: Any) -> None:
    if name in members:
        raise FedbenchError(f"{path}: {name} is in the archive twice; pack it again")
    members[name] = info


def _finish(tree: Tree, members: dict[str, Any]) -> None:
    tree.files = sorted(name for name in members if not any(map(hidden, name.split("/"))))
    tree.folders = {name for name in tree.folders if name and not any(map(hidden, name.split("/")))}
