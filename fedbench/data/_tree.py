"""Files below a root, whatever they are packed in, and how much of one file is ever read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedbench.errors import FedbenchError

# Limits of one file. What an archive's header claims is checked against them, and no more is read than they allow.
IMAGE_BYTES = 256 << 20  # an uncompressed image of as many pixels as are decoded at all fits
TEXT_BYTES = 128 << 20  # lists and tables of some million images fit


class Tree:
    """Files below a root.

    Attributes
    ----------
    path : the folder or archive
    files : sorted POSIX names relative to the root, without hidden ones
    folders : names of folders that are there explicitly, empty ones included
    texts : names of the files that :meth:`read_texts` has read
    repeated : sorted names of links to folders that are read under another name already, and so not again
    """

    def __init__(self, path: Path):
        self.path = path
        self.files: list[str] = []
        self.folders: set[str] = set()
        self.repeated: list[str] = []
        self.texts: set[str] = set()

    def read(self, names: Iterable[str], most: int = IMAGE_BYTES) -> Iterator[tuple[str, bytes]]:
        """Yield each named file once, in whatever order is fastest; a file of more than `most` bytes is an error."""
        raise NotImplementedError

    def read_texts(self, names: Iterable[str]) -> dict[str, str]:
        """Files as UTF-8 text, by name."""
        texts = {}
        for name, data in self.read(names, TEXT_BYTES):
            try:
                texts[name] = data.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise FedbenchError(f"{self.path}: {name}: not UTF-8 text ({error.reason} at {error.start})") from None
        self.texts |= set(texts)
        return texts

    def read_text(self, name: str) -> str:
        """One file as UTF-8 text."""
        return self.read_texts([name])[name]

    def close(self) -> None:
        """Let go of the archive's file."""

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _check_size(self, name: str, size: int, most: int) -> None:
        """Refuse a file of more than `most` bytes; `size` is what was declared, or what was read so far."""
        if size > most:
            raise FedbenchError(
                f"{self.path}: {name}: {size:,} bytes, but at most {most:,} of one file are read; replace or remove it"
            )

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


def hidden(part: str) -> bool:
    """Names that operating systems leave behind: .DS_Store, ._resource forks, __MACOSX, lost+found at a mount point."""
    return part.startswith(".") or part in ("__MACOSX", "lost+found")


def twice(names: Iterable[str]) -> str | None:
    """The first name that occurs more than once, if any."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
